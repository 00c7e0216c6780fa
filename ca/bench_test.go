package ca_test

import (
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca"
)

func BenchmarkParseVerify(b *testing.B) {
	text, profile := csrNaming(b, cart.String()), ca.DefaultProfile(trustDomain)
	b.ReportAllocs()
	for b.Loop() {
		csr, err := ca.ParseCSR(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := csr.Verify(profile); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIssue(b *testing.B) {
	a, grant, r := anAuthority(b), grantCart(b), aRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		issued, err := a.Issue(noon, grant, r, 0)
		if err != nil {
			b.Fatal(err)
		}
		if len(issued.Elements()) != 3 {
			b.Fatal("not three elements")
		}
	}
}

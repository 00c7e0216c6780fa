package ca_test

import (
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// Whatever the CSR, it is refused as the request's fault, or a leaf is issued
// that names what was granted.
func FuzzParseCSR(f *testing.F) {
	good := csrNaming(f, cart.String())
	for _, seed := range []string{
		good,
		good + good,
		strings.TrimSpace(good),
		strings.ReplaceAll(good, "\n", "\r\n"),
		good[:len(good)/2],
		csrNaming(f),
		csrNaming(f, "SPIFFE://cluster.local/ns/shop/sa/cart"),
		csrNaming(f, cart.String(), "https://example.com"),
		csrPEM([]byte{0x30, 0x80}),
		"-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n",
		"",
	} {
		f.Add(seed)
	}
	a, grant := anAuthority(f), grantCart(f)
	f.Fuzz(func(t *testing.T, text string) {
		csr, err := ca.ParseCSR(text)
		if err != nil {
			if reasonOf(err) != ca.BadCSR {
				t.Errorf("ParseCSR: %v", err)
			}
			return
		}
		r, err := csr.Verify(a.Profile())
		if err != nil {
			if reason := reasonOf(err); reason != ca.BadKey && reason != ca.NoPossession {
				t.Errorf("Verify: %v", err)
			}
			return
		}
		issued, err := a.Issue(noon, grant, r, 0)
		switch {
		case err != nil && reasonOf(err) != ca.CSRNamesAnother:
			t.Errorf("Issue: %v", err)
		case err == nil && (len(issued.Leaf.URIs) != 1 || issued.Leaf.URIs[0].String() != cart.String()):
			t.Errorf("the leaf names %v", issued.Leaf.URIs)
		}
	})
}

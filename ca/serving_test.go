package ca_test

import (
	"crypto/x509"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
)

func TestIssueServing(t *testing.T) {
	a := anAuthority(t)
	names := ca.ServingNames{
		DNS: []string{"bailiwick.istio-system.svc", "localhost"},
		IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	}
	issued, err := a.IssueServing(noon, newP256(t).Public(), names)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bailiwick.istio-system.svc", "localhost", "127.0.0.1", "::1"} {
		if err := issued.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if life := issued.Leaf.NotAfter.Sub(noon); life > 24*time.Hour || life < 22*time.Hour {
		t.Errorf("it lives for %v", life)
	}
	e := issued.Elements()
	opensslVerify(t, "sslserver", e[0], e[1], e[2])
}

func TestServingRefused(t *testing.T) {
	fenced := newCA(t, "fenced", newP256(t), nil, func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"example.com"} })
	underFenced := newAuthority(t, material(fenced), ca.DefaultProfile(trustDomain))
	a := anAuthority(t)
	dns := func(names ...string) ca.ServingNames { return ca.ServingNames{DNS: names} }
	ip := func(addr netip.Addr) ca.ServingNames { return ca.ServingNames{IPs: []netip.Addr{addr}} }
	for _, tt := range []struct {
		name  string
		a     *ca.Authority
		names ca.ServingNames
		says  string // "" if it is issued
	}{
		{"one name", a, dns("a"), ""},
		{"the longest label", a, dns(strings.Repeat("a", 63) + ".b"), ""},
		{"the longest name", a, dns(strings.Repeat("a.", 126) + "a"), ""},
		{"no name", a, dns(), "needs a name"},
		{"an empty name", a, dns(""), "not a host name"},
		{"an empty label", a, dns("a..b"), "not a host name"},
		{"a dot at the end", a, dns("a."), "not a host name"},
		{"a wildcard", a, dns("*.example.com"), "not a host name"},
		{"a dash in front", a, dns("-a"), "not a host name"},
		{"a label too long", a, dns(strings.Repeat("a", 64)), "not a host name"},
		{"a name too long", a, dns(strings.Repeat("a.", 126) + "aa"), "not a host name"},
		{"not ASCII", a, dns("bücher"), "not a host name"},
		{"a URI", a, dns("spiffe://cluster.local/ns/a/sa/b"), "not a host name"},
		{"no address", a, ip(netip.Addr{}), "not an IP address"},
		{"an address with a zone", a, ip(netip.MustParseAddr("fe80::1%eth0")), "not an IP address"},
		{"an IPv4 address in IPv6", a, ip(netip.MustParseAddr("::ffff:1.2.3.4")), "not an IP address"},
		{"a name that the CA may not certify", underFenced, dns("a.example.org"), "as a client would"},
		{"a name that it may", underFenced, dns("a.example.com"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.a.IssueServing(noon, newP256(t).Public(), tt.names)
			says(t, err, tt.says)
		})
	}
	t.Run("a key that is not accepted", func(t *testing.T) {
		if _, err := a.IssueServing(noon, newKey(t, "Ed25519").Public(), dns("a")); err == nil {
			t.Error("it was issued")
		}
	})
	t.Run("an issuer that expires", func(t *testing.T) {
		if _, err := a.IssueServing(noon.AddDate(1, 0, 0), newP256(t).Public(), dns("a")); reasonOf(err) != ca.IssuerExpiring {
			t.Errorf("IssueServing: %v", err)
		}
	})
}

package main

import (
	"crypto/x509"
	"testing"
	"time"
)

// [SRV-5] The server's own certificate has the names of the configuration, all of
// them and no other.
func TestServingNames(t *testing.T) {
	for _, tt := range []struct {
		name, config string
		good, bad    []string
	}{
		{"by default", "", []string{"bailiwick.istio-system.svc"}, []string{"bailiwick", "localhost", "other.istio-system.svc", "bailiwick.other.svc"}},
		{"in another namespace", "istioNamespace: mesh", []string{"bailiwick.mesh.svc"}, []string{"bailiwick.istio-system.svc"}},
		{"more names", "servingNames: [bailiwick.istio-system.svc, istiod.istio-system.svc, ca.example.org, 192.0.2.1, '2001:db8::1']",
			[]string{"bailiwick.istio-system.svc", "istiod.istio-system.svc", "ca.example.org", "[192.0.2.1]", "[2001:db8::1]"}, []string{"example.org", "x.ca.example.org", "192.0.2.2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseConfig([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			authority, err := selfMade(now, c.profile())
			if err != nil {
				t.Fatal(err)
			}
			cert, err := issueServing(now, authority, c.servingNames())
			if err != nil {
				t.Fatal(err)
			}
			opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
			opts.Roots.AddCert(authority.Root())
			for _, der := range cert.Certificate[1:] {
				issuer, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				opts.Intermediates.AddCert(issuer)
			}
			for _, known := range []struct {
				names []string
				good  bool
			}{{tt.good, true}, {tt.bad, false}} {
				for _, opts.DNSName = range known.names {
					if _, err := cert.Leaf.Verify(opts); (err == nil) != known.good {
						t.Errorf("as %s: %v", opts.DNSName, err)
					}
				}
			}
		})
	}
}

package ca_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestProfile(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(*ca.Profile)
		ok   bool
	}{
		{"the default", func(*ca.Profile) {}, true},
		{"no trust domain", func(p *ca.Profile) { p.TrustDomain = spiffeid.TrustDomain{} }, false},
		{"no lives", func(p *ca.Profile) { p.MinLeafLife, p.MaxLeafLife = 0, 0 }, false},
		{"one life", func(p *ca.Profile) { p.MinLeafLife = p.MaxLeafLife }, true},
		{"the longest below the shortest", func(p *ca.Profile) { p.MaxLeafLife = p.MinLeafLife - time.Second }, false},
		{"a second", func(p *ca.Profile) { p.MinLeafLife = time.Second }, true},
		{"less than a second", func(p *ca.Profile) { p.MinLeafLife = time.Second - 1 }, false},
		{"negative", func(p *ca.Profile) { p.MinLeafLife = -time.Hour }, false},
		{"parts of a second", func(p *ca.Profile) { p.MaxLeafLife += time.Millisecond }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := newCA(t, "root", newP256(t), nil)
			p := ca.DefaultProfile(trustDomain)
			tt.edit(&p)
			if err := p.Validate(); (err == nil) != tt.ok {
				t.Errorf("Validate: %v", err)
			}
			if _, err := ca.NewAuthority(noon, material(root), p); (err == nil) != tt.ok {
				t.Errorf("NewAuthority: %v", err)
			}
		})
	}
}

// A fault that one certificate of a path has, and what is said about it.
type pathFault struct {
	name string
	edit func(*x509.Certificate)
	says string // "" if it is none
}

func pathFaults() []pathFault {
	foreign := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{0x05, 0x00}}
	return []pathFault{
		{"none", func(*x509.Certificate) {}, ""},
		{"CA-6 an end-entity certificate", func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage, c.ExtKeyUsage = false, x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, "is not a certificate authority"},
		{"CA-6 no basic constraints", func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, false }, "is not a certificate authority"},
		{"CA-6 CA:TRUE without certSign", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, "may not sign certificates"},
		{"CA-6 no key usage", func(c *x509.Certificate) { c.KeyUsage = 0 }, "may not sign certificates"},
		{"CSR-8 no subject key identifier", func(c *x509.Certificate) { noSKI(c) }, "no subject key identifier"},
		{"an empty subject", func(c *x509.Certificate) { c.Subject = pkix.Name{} }, "empty subject"},
		{"a critical extension that nobody knows", func(c *x509.Certificate) { c.ExtraExtensions = []pkix.Extension{foreign} }, "critical extension"},
		{"for servers only", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "extended key usage"},
		{"for clients only", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "extended key usage"},
		{"for code only", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }, "extended key usage"},
		{"for a purpose that nobody knows", func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }, "extended key usage"},
		{"for servers and clients", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		}, ""},
		{"for anything", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }, ""},
		{"OPS-5 expired", func(c *x509.Certificate) { c.NotAfter = noon.Add(-time.Second) }, "has expired"},
		{"OPS-5 from the future", func(c *x509.Certificate) { c.NotBefore = noon.Add(time.Second) }, "is not valid yet"},
		{"OPS-5 almost expired", func(c *x509.Certificate) { c.NotAfter = noon.Add(10*time.Minute - time.Second) }, "issuer-expiring"},
	}
}

// noSKI makes x509 sign a CA without a subject key identifier, by signing
// another extension in its place: x509 itself would add one.
func noSKI(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid = false, false
	c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}})
}

// CA-6, CSR-8, OPS-5: each certificate on the path is judged, wherever it stands.
func TestPathIsJudged(t *testing.T) {
	for place, name := range []string{"root", "intermediate", "issuer"} {
		for _, tt := range pathFaults() {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				edits := make([][]func(*x509.Certificate), 3)
				edits[place] = append(edits[place], tt.edit)
				root := newCA(t, "root", newP256(t), nil, edits[0]...)
				intermediate := newCA(t, "intermediate", newP256(t), root, edits[1]...)
				issuer := newCA(t, "issuer", newP256(t), intermediate, edits[2]...)
				_, err := ca.NewAuthority(noon, material(issuer, intermediate, root), ca.DefaultProfile(trustDomain))
				bad := []*pair{root, intermediate, issuer}[place].cert
				says(t, err, tt.says)
				if err != nil && !strings.Contains(err.Error(), ca.Describe(bad)) {
					t.Errorf("%q does not describe %s", err, ca.Describe(bad))
				}
			})
		}
	}
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

// What only shows when certificates are seen together.
func TestPathHoldsTogether(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil)
	inter := newCA(t, "inter", newP256(t), root)
	issuer := newCA(t, "issuer", newP256(t), inter)
	namesake := newCA(t, "root", newP256(t), nil)
	stranger := newCA(t, "stranger", newP256(t), nil)
	pathLen := func(n int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = n, n == 0 }
	}
	permitting := func(host string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.PermittedURIDomains = []string{host} }
	}
	root0 := newCA(t, "root0", newP256(t), nil, pathLen(0))
	root1 := newCA(t, "root1", newP256(t), nil, pathLen(1))
	inter0 := newCA(t, "inter0", newP256(t), root, pathLen(0))
	fenced := newCA(t, "fenced", newP256(t), nil, permitting("other.local"))
	ours := newCA(t, "ours", newP256(t), nil, permitting("cluster.local"))
	under0, under1 := newCA(t, "under0", newP256(t), root0), newCA(t, "under1", newP256(t), root1)
	underInter0 := newCA(t, "underInter0", newP256(t), inter0)
	underFenced, underOurs := newCA(t, "underFenced", newP256(t), fenced), newCA(t, "underOurs", newP256(t), ours)
	renamed := newCA(t, "renamed", root.key, nil)
	renumbered := newCA(t, "root", root.key, nil, func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} })
	unnumbered := newCA(t, "unnumbered", newP256(t), &pair{withoutSKI(root.cert), root.key})
	next := newCA(t, "root", newP256(t), root)
	underNext := newCA(t, "under next", newP256(t), next)
	leaf := newCA(t, "leaf", newP256(t), root, func(c *x509.Certificate) { c.IsCA = false; c.KeyUsage = x509.KeyUsageDigitalSignature })
	weak := newCA(t, "weak", newECDSA(t, elliptic.P521()), nil)
	for _, tt := range []struct {
		name  string
		key   *pair
		chain []*pair
		roots []*pair
		says  string
	}{
		{"all is well", issuer, []*pair{issuer, inter}, []*pair{root}, ""},
		{"no chain", issuer, nil, []*pair{root}, "no signing certificate"},
		{"no roots", issuer, []*pair{issuer, inter}, nil, "no root certificate"},
		{"another key", inter, []*pair{issuer, inter}, []*pair{root}, "the signing key is not the key of"},
		{"out of order", issuer, []*pair{inter, issuer}, []*pair{root}, "the signing key is not the key of"},
		{"CA-9 the root of another CA", issuer, []*pair{issuer, inter}, []*pair{stranger}, ca.Describe(stranger.cert)},
		{"CA-9 the same name with another key", issuer, []*pair{issuer, inter}, []*pair{namesake}, fmt.Sprintf("key id %x", root.cert.SubjectKeyId)},
		{"CA-9 the same, and no authority key identifier", unnumbered, []*pair{unnumbered}, []*pair{namesake}, "does not chain to the trust bundle"},
		{"CA-9 the same key with another name", issuer, []*pair{issuer, inter}, []*pair{renamed}, "does not chain to the trust bundle"},
		{"CA-9 the same name and key with another key identifier", issuer, []*pair{issuer, inter}, []*pair{renumbered}, "does not chain to the trust bundle"},
		{"an issuer without authority key identifier", unnumbered, []*pair{unnumbered}, []*pair{root}, ""},
		{"a root's next key, certified by its old one", underNext, []*pair{underNext, next}, []*pair{root}, ""},
		{"CA-9 the intermediate is missing", issuer, []*pair{issuer}, []*pair{root}, "does not chain to the trust bundle"},
		{"CA-9 something else in its place", issuer, []*pair{issuer, inter0}, []*pair{root}, "but the next certificate of the chain is " + ca.Describe(inter0.cert)},
		{"CA-9 a self-signed CA that is not in the bundle", stranger, []*pair{stranger}, []*pair{root}, "does not chain to the trust bundle"},
		{"CA-8 path length 0, with an intermediate", under0, []*pair{under0}, []*pair{root0}, "path length 0, but there are 1"},
		{"CA-8 path length 0, without", root0, []*pair{root0}, []*pair{root0}, ""},
		{"CA-8 path length 1, with an intermediate", under1, []*pair{under1}, []*pair{root1}, ""},
		{"CA-8 an intermediate of path length 0", underInter0, []*pair{underInter0, inter0}, []*pair{root}, "path length 0, but there are 1"},
		{"name constraints that exclude us", underFenced, []*pair{underFenced}, []*pair{fenced}, "verifying it as a peer would"},
		{"name constraints that include us", underOurs, []*pair{underOurs}, []*pair{ours}, ""},
		{"an intermediate in the bundle, besides its root", issuer, []*pair{issuer, inter}, []*pair{inter, root}, ""},
		{"the issuer in the bundle, besides its root", issuer, []*pair{issuer, inter}, []*pair{issuer, root}, ""},
		{"an intermediate for a root", issuer, []*pair{issuer}, []*pair{inter}, "not self-signed"},
		{"an end-entity certificate among the roots", issuer, []*pair{issuer, inter}, []*pair{root, leaf}, "is not a certificate authority"},
		{"a key on P-521", weak, []*pair{weak}, []*pair{weak}, "P-521"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ca.Material{Signer: tt.key.key, Chain: certs(tt.chain...), Roots: certs(tt.roots...)}
			a, err := ca.NewAuthority(noon, m, ca.DefaultProfile(trustDomain))
			says(t, err, tt.says)
			if err == nil && !a.Issuer().Equal(tt.key.cert) {
				t.Errorf("the issuer is %s", ca.Describe(a.Issuer()))
			}
		})
	}
	t.Run("no key", func(t *testing.T) {
		m := material(root)
		m.Signer = nil
		_, err := ca.NewAuthority(noon, m, ca.DefaultProfile(trustDomain))
		says(t, err, "no signing key")
	})
}

// CA-11: a root that has expired beside one that has not.
func TestExpiredRoot(t *testing.T) {
	old := newCA(t, "old", newP256(t), nil, endsAfter(-24*time.Hour), func(c *x509.Certificate) { c.NotBefore = noon.AddDate(-10, 0, 0) })
	root := newCA(t, "root", newP256(t), nil)
	issuer := newCA(t, "issuer", newP256(t), root)
	t.Run("CA-11 it is served, with one warning", func(t *testing.T) {
		m := ca.Material{Signer: issuer.key, Chain: certs(issuer), Roots: certs(old, root)}
		a := newAuthority(t, m, ca.DefaultProfile(trustDomain))
		if len(a.Roots()) != 2 {
			t.Errorf("the bundle has %d roots", len(a.Roots()))
		}
		want := []string{"the trust bundle: " + ca.Describe(old.cert) + " has expired: our clock says 2026-01-02T12:00:00Z"}
		if diff := cmp.Diff(want, a.Warnings(noon)); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
	t.Run("CA-11 nothing is signed under it", func(t *testing.T) {
		_, err := ca.NewAuthority(noon, material(newCA(t, "issuer", newP256(t), old), old), ca.DefaultProfile(trustDomain))
		invalid, ok := errors.AsType[*ca.ValidityError](err)
		if !ok || invalid.Cert != old.cert || !invalid.Now.Equal(noon) {
			t.Errorf("NewAuthority: %v", err)
		}
	})
	t.Run("ROT-6 a root renewed with its key and name lasts as long as the newer one", func(t *testing.T) {
		newer := newCA(t, "root", root.key, nil, func(c *x509.Certificate) { c.NotAfter = noon.AddDate(9, 0, 0) })
		long := newCA(t, "issuer", newP256(t), root, func(c *x509.Certificate) { c.NotAfter = noon.AddDate(5, 0, 0) })
		a := newAuthority(t, ca.Material{Signer: long.key, Chain: certs(long), Roots: certs(root, newer)}, ca.DefaultProfile(trustDomain))
		if !a.NotAfter().Equal(long.cert.NotAfter) || !a.Root().Equal(newer.cert) {
			t.Errorf("the path ends at %v, under %s", a.NotAfter(), ca.Describe(a.Root()))
		}
	})
}

func TestWarnings(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil, func(c *x509.Certificate) {
		noSKI(c)
		c.SubjectKeyId = []byte{1}
		c.ExtraExtensions[0].Critical = false
	})
	issuer := newCA(t, "issuer", newP256(t), &pair{withoutSKI(root.cert), root.key}, endsAfter(time.Hour))
	m := material(issuer, root)
	m.Roots = append(m.Roots, issuer.cert)
	got := strings.Join(newAuthority(t, m, ca.DefaultProfile(trustDomain)).Warnings(noon), "\n")
	for _, want := range []string{
		"leaves will be shorter than 24h0m0s: our clock says 2026-01-02T12:00:00Z, and " + ca.Describe(issuer.cert) + " ends first", // ROT-1
		ca.Describe(root.cert) + " has basicConstraints that are not critical",
		ca.Describe(issuer.cert) + " has no authority key identifier",
		ca.Describe(issuer.cert) + " is not self-signed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the warnings:\n%s", want, got)
		}
	}
	if got := anAuthority(t).Warnings(noon.AddDate(1, 0, -1)); got != nil { // exactly the longest life is left
		t.Errorf("of nothing: %q", got)
	}
}

// withoutSKI makes x509 sign under cert without an authority key identifier.
func withoutSKI(cert *x509.Certificate) *x509.Certificate {
	c := *cert
	c.SubjectKeyId = nil
	return &c
}

// OPS-5: an error about validity has all that tells an old certificate from a
// wrong clock.
func TestValidityErrorHasTheFacts(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil, endsAfter(-time.Minute))
	_, err := ca.NewAuthority(noon, material(root), ca.DefaultProfile(trustDomain))
	if err == nil {
		t.Fatal("NewAuthority took an expired root")
	}
	for _, fact := range []string{"CN=root", fmt.Sprintf("%x", root.cert.SubjectKeyId), "2026-01-02T11:00:00Z", "2026-01-02T11:59:00Z", "2026-01-02T12:00:00Z"} {
		if !strings.Contains(err.Error(), fact) {
			t.Errorf("OPS-5 %q is not in %q", fact, err)
		}
	}
}

// An authority does not change with what it was made of.
func TestAuthorityIsImmutable(t *testing.T) {
	root, other := newCA(t, "root", newP256(t), nil), newCA(t, "other", newP256(t), nil)
	m := material(newCA(t, "issuer", newP256(t), root), root)
	a := newAuthority(t, m, ca.DefaultProfile(trustDomain))
	m.Chain[0], m.Roots[0] = other.cert, other.cert
	a.Roots()[0] = other.cert
	checkByOthers(t, issue(t, a, aRequest(t), 0))
	if !a.Roots()[0].Equal(root.cert) {
		t.Error("the bundle has changed")
	}
}

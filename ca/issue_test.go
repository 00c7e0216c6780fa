package ca_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

func TestIssueNeedsGrantAndRequest(t *testing.T) {
	a := anAuthority(t)
	for _, tt := range []struct {
		name  string
		grant authz.Grant
		r     *ca.Request
		says  string
	}{
		{"no grant", authz.Grant{}, aRequest(t), "without a grant"},
		{"no request", grantCart(t), nil, "not verified"},
		{"a request that nobody verified", grantCart(t), new(ca.Request), "not verified"},
		{"a grant in another trust domain", grantIn(t, spiffeid.RequireTrustDomainFromString("other.local")), aRequest(t), `trust domain "cluster.local"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			issued, err := a.Issue(noon, tt.grant, tt.r, 0)
			says(t, err, tt.says)
			if issued != nil || reasonOf(err) != "" {
				t.Errorf("Issue: %v, %v", issued, err)
			}
		})
	}
}

// A leaf's life is what was asked for within bounds, less at most a twentieth,
// and never below the minimum.
func TestLife(t *testing.T) {
	const day, minute = 24 * time.Hour, time.Minute
	for _, tt := range []struct {
		name     string
		seconds  int64
		left     time.Duration // of the issuer
		want     time.Duration // before the drawback
		backdate time.Duration
		reason   ca.Reason
	}{
		{"none asked for", 0, 365 * day, day, 2 * minute, ""},
		{"an hour", 3600, 365 * day, time.Hour, 2 * minute, ""},
		{"exactly the longest", 86400, 365 * day, day, 2 * minute, ""},
		{"above the longest, which is cut down", 86401, 365 * day, day, 2 * minute, ""},
		{"years, which is cut down", 10 * 365 * 86400, 365 * day, day, 2 * minute, ""},
		{"the most that a duration holds", math.MaxInt64 / 1_000_000_000, 365 * day, day, 2 * minute, ""},
		{"one more, which would overflow", math.MaxInt64/1_000_000_000 + 1, 365 * day, 0, 0, ca.BadLifetime},
		{"what overflows to less than a second", 18446744074, 365 * day, 0, 0, ca.BadLifetime},
		{"the largest number", math.MaxInt64, 365 * day, 0, 0, ca.BadLifetime},
		{"what overflows to an hour", 18446747674, 365 * day, 0, 0, ca.BadLifetime},
		{"negative, which overflows to an hour", -18446740473, 365 * day, 0, 0, ca.BadLifetime},
		{"negative", -1, 365 * day, 0, 0, ca.BadLifetime},
		{"the smallest number", math.MinInt64, 365 * day, 0, 0, ca.BadLifetime},
		{"exactly the shortest", 600, 365 * day, 10 * minute, 2 * minute, ""},
		{"a second below the shortest", 599, 365 * day, 0, 0, ca.BadLifetime},
		{"ROT-1 exactly what the issuer has left", 7200, 2 * time.Hour, 2 * time.Hour, 2 * minute, ""},
		{"ROT-1 more than the issuer has left", 0, 2 * time.Hour, 2 * time.Hour, 2 * minute, ""},
		{"ROT-1 the issuer has exactly the shortest life left", 0, 10 * minute, 10 * minute, 2 * minute, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := newCA(t, "root", newP256(t), nil)
			issuer := newCA(t, "issuer", newP256(t), root, endsAfter(tt.left))
			a := newAuthority(t, material(issuer, root), ca.DefaultProfile(trustDomain))
			issued, err := a.Issue(noon, grantCart(t), aRequest(t), tt.seconds)
			if reasonOf(err) != tt.reason || (err == nil) != (tt.reason == "") {
				t.Fatalf("Issue: %v, want %q", err, tt.reason)
			}
			if err != nil {
				return
			}
			least := max(tt.want-tt.want/20, 10*minute)
			if life := issued.Leaf.NotAfter.Sub(noon); life > tt.want || life < least {
				t.Errorf("the leaf lives for %v, want %v to %v", life, least, tt.want)
			}
			if got := noon.Sub(issued.Leaf.NotBefore); got != tt.backdate {
				t.Errorf("it is backdated by %v, want %v", got, tt.backdate)
			}
			if want := tt.seconds == 0 && tt.left < day; issued.Shortened != want {
				t.Errorf("Shortened = %t", issued.Shortened)
			}
		})
	}
}

// ROT-1: the earliest end on the path bounds the leaf, whichever it is of.
func TestLeafDoesNotOutliveItsPath(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		root, intermediate, issuer time.Duration
	}{
		{"ROT-1 the root ends first", time.Hour, 2 * time.Hour, 3 * time.Hour},
		{"ROT-1 the intermediate ends first", 2 * time.Hour, time.Hour, 3 * time.Hour},
		{"ROT-1 the issuer ends first", 3 * time.Hour, 2 * time.Hour, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := newCA(t, "root", newP256(t), nil, endsAfter(tt.root))
			intermediate := newCA(t, "intermediate", newP256(t), root, endsAfter(tt.intermediate))
			issuer := newCA(t, "issuer", newP256(t), intermediate, endsAfter(tt.issuer))
			a := newAuthority(t, material(issuer, intermediate, root), ca.DefaultProfile(trustDomain))
			issued := issue(t, a, aRequest(t), 0)
			if end := noon.Add(time.Hour); issued.Leaf.NotAfter.After(end) || !a.NotAfter().Equal(end) || !issued.Shortened {
				t.Errorf("the leaf ends at %v, the path at %v, want %v; shortened %t", issued.Leaf.NotAfter, a.NotAfter(), end, issued.Shortened)
			}
		})
	}
}

// OPS-5: the clock moves on after an authority was loaded, or is set back.
func TestIssuerNotValid(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil)
	issuer := newCA(t, "issuer", newP256(t), root, endsAfter(time.Hour))
	a := newAuthority(t, material(issuer, root), ca.DefaultProfile(trustDomain))
	for _, tt := range []struct {
		name string
		now  time.Time
		want ca.Reason
	}{
		{"the shortest life is left", noon.Add(50 * time.Minute), ""},
		{"OPS-5 a second less", noon.Add(50*time.Minute + time.Second), ca.IssuerExpiring},
		{"OPS-5 expired", noon.Add(2 * time.Hour), ca.IssuerExpiring},
		{"it begins now", noon.Add(-time.Hour), ""},
		{"OPS-5 it begins in a second", noon.Add(-time.Hour - time.Second), ca.IssuerEarly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			issued, err := a.Issue(tt.now, grantCart(t), aRequest(t), 600)
			if reasonOf(err) != tt.want {
				t.Fatalf("Issue: %v, want %q", err, tt.want)
			}
			if usable := a.Usable(tt.now); reasonOf(usable) != tt.want {
				t.Errorf("Usable: %v, want %q", usable, tt.want)
			}
			if err == nil {
				if issued.Leaf.NotBefore.Before(issuer.cert.NotBefore) {
					t.Errorf("the leaf is valid from %v, before its issuer", issued.Leaf.NotBefore)
				}
				return
			}
			for _, fact := range []string{"CN=issuer", fmt.Sprintf("%x", issuer.cert.SubjectKeyId), "2026-01-02T11:00:00Z", "2026-01-02T13:00:00Z", tt.now.Format(time.RFC3339)} {
				if !strings.Contains(err.Error(), fact) {
					t.Errorf("%q is not in %q", fact, err)
				}
			}
		})
	}
}

// ROT-13: a fresh leaf is valid for clocks that are a minute off, and half-way
// between NotBefore and NotAfter, when ztunnel renews it, lies well ahead.
func TestClockSkew(t *testing.T) {
	for _, life := range []time.Duration{24 * time.Hour, 5 * time.Minute} {
		t.Run("ROT-13 "+life.String(), func(t *testing.T) {
			root := newCA(t, "root", newP256(t), nil)
			profile := ca.Profile{TrustDomain: trustDomain, MaxLeafLife: life, MinLeafLife: time.Minute}
			a := newAuthority(t, material(newCA(t, "issuer", newP256(t), root), root), profile)
			leaf := issue(t, a, aRequest(t), 0).Leaf
			for _, skew := range []time.Duration{-time.Minute, time.Minute} {
				if clock := noon.Add(skew); clock.Before(leaf.NotBefore) || clock.After(leaf.NotAfter) {
					t.Errorf("a clock %v off is outside %v to %v", skew, leaf.NotBefore, leaf.NotAfter)
				}
			}
			middle := leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
			if until := middle.Sub(noon); until < life/3 {
				t.Errorf("renewal is due in %v of %v", until, life)
			}
		})
	}
}

// Leaves that are issued at one time do not end at one time.
func TestDrawback(t *testing.T) {
	a, r := anAuthority(t), aRequest(t)
	ends := make(map[time.Time]bool)
	serials := make(map[string]bool)
	for range 50 {
		leaf := issue(t, a, r, 0).Leaf
		ends[leaf.NotAfter] = true
		serials[leaf.SerialNumber.String()] = true
		if n := leaf.SerialNumber.BitLen(); n != 127 {
			t.Errorf("the serial number %x has %d bits: 16 octets, of which the first begins with 01, have 127", leaf.SerialNumber, n)
		}
	}
	if len(ends) < 10 || len(serials) != 50 {
		t.Errorf("50 leaves end at %d times and have %d serial numbers", len(ends), len(serials))
	}
	for range 50 { // none is drawn back below the shortest life
		if leaf := issue(t, a, r, 601).Leaf; leaf.NotAfter.Sub(noon) < 10*time.Minute {
			t.Fatalf("a leaf of 601 s lives for %v", leaf.NotAfter.Sub(noon))
		}
	}
}

// A clock has fractions of a second, and a certificate has not.
func TestIssueBetweenSeconds(t *testing.T) {
	a := anAuthority(t)
	last := a.NotAfter().Add(-10 * time.Minute) // in which the shortest life is left
	for _, now := range []time.Time{noon, last} {
		if _, err := a.Issue(now.Add(999*time.Millisecond), grantCart(t), aRequest(t), 600); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Issue(last.Add(time.Second), grantCart(t), aRequest(t), 600); reasonOf(err) != ca.IssuerExpiring {
		t.Errorf("a second later: %v", err)
	}
}

// CSR-3, CSR-8, CSR-9: every chain is judged by verifiers other than our own.
func TestMatrix(t *testing.T) {
	kinds := []string{"P-256", "P-384", "RSA-2048", "Ed25519"}
	for _, caKind := range kinds {
		profile := ca.DefaultProfile(trustDomain)
		profile.AllowEd25519 = true
		root := newCA(t, "root", newKey(t, caKind), nil)
		issuer := newCA(t, "issuer", newOtherKey(t, caKind), root)
		a := newAuthority(t, material(issuer, root), profile)
		for _, kind := range kinds {
			t.Run(fmt.Sprintf("CSR-3 a %s CSR under a %s CA", kind, caKind), func(t *testing.T) {
				key := newKey(t, kind)
				issued := issue(t, a, verified(t, newCSR(t, key, x509.CertificateRequest{})), 0)
				if pub := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !pub.Equal(issued.Leaf.PublicKey) {
					t.Error("the leaf has another key")
				}
				if !slices.Equal(issued.Leaf.AuthorityKeyId, issuer.cert.SubjectKeyId) || len(issued.Leaf.AuthorityKeyId) == 0 {
					t.Errorf("CSR-8 the leaf's authority key identifier is %x", issued.Leaf.AuthorityKeyId)
				}
				checkUsage(t, issued.Leaf)
				checkByOthers(t, issued)
			})
		}
	}
}

// newOtherKey is newKey for a second CA, which RSA does not share.
func newOtherKey(t *testing.T, kind string) crypto.Signer {
	if kind != "RSA-2048" {
		return newKey(t, kind)
	}
	key, err := anotherRSAKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// checkUsage is CSR-9: usages that do not contradict each other.
func checkUsage(t *testing.T, leaf *x509.Certificate) {
	t.Helper()
	want := x509.KeyUsageDigitalSignature
	if _, ok := leaf.PublicKey.(*rsa.PublicKey); ok {
		want |= x509.KeyUsageKeyEncipherment
	}
	if leaf.KeyUsage != want || leaf.IsCA || !leaf.BasicConstraintsValid {
		t.Errorf("CSR-9 the leaf has key usage %b and CA:%t", leaf.KeyUsage, leaf.IsCA)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, leaf.ExtKeyUsage); diff != "" {
		t.Errorf("CSR-9 extended key usage (-want +got):\n%s", diff)
	}
}

// checkByOthers verifies what a client was sent with crypto/x509, go-spiffe and
// OpenSSL, in the roles of server and client, as it was sent.
func checkByOthers(t *testing.T, issued *ca.Issued) {
	t.Helper()
	elements := issued.Elements()
	last := len(elements) - 1
	leaf, issuers, roots := elements[0], strings.Join(elements[1:last], ""), elements[last]

	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: noon}
	opts.Roots.AppendCertsFromPEM([]byte(roots))
	opts.Intermediates.AppendCertsFromPEM([]byte(issuers))
	for _, purpose := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		opts.KeyUsages = []x509.ExtKeyUsage{purpose}
		if _, err := parseAll(t, leaf)[0].Verify(opts); err != nil {
			t.Errorf("crypto/x509: %v", err)
		}
	}
	bundle := x509bundle.FromX509Authorities(trustDomain, parseAll(t, roots))
	id, _, err := x509svid.Verify(parseAll(t, leaf+issuers), bundle, x509svid.WithTime(noon))
	if err != nil || id != cart {
		t.Errorf("go-spiffe: %v, %v", id, err)
	}
	for _, purpose := range []string{"sslserver", "sslclient"} {
		opensslVerify(t, purpose, leaf, issuers, roots)
	}
}

func opensslVerify(t *testing.T, purpose, leaf, issuers, roots string) {
	t.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal("openssl is not installed, and it judges every certificate: install the package openssl")
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	args := []string{"verify", "-x509_strict", "-no-CApath", "-attime", fmt.Sprint(noon.Unix()), "-purpose", purpose, "-CAfile", write("roots", roots)}
	if issuers != "" {
		args = append(args, "-untrusted", write("issuers", issuers))
	}
	if out, err := exec.Command(openssl, append(args, write("leaf", leaf))...).CombinedOutput(); err != nil {
		t.Errorf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func parseAll(t *testing.T, text string) []*x509.Certificate {
	t.Helper()
	var all []*x509.Certificate
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cert)
	}
	return all
}

// CA-1, CA-3, CA-4, ROT-4: the reply is laid out for clients that read one
// certificate from each element but the last.
func TestElements(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil)
	other := newCA(t, "other", newP256(t), nil)
	inter1 := newCA(t, "inter1", newP256(t), root)
	inter2 := newCA(t, "inter2", newP256(t), inter1)
	for _, tt := range []struct {
		name  string
		chain []*pair
		roots []*pair
		want  []string // common names by element; the leaf has none
	}{
		{"CA-4 a self-signed CA", []*pair{root}, []*pair{root}, []string{"", "root"}},
		{"CA-4 two intermediates", []*pair{inter2, inter1}, []*pair{root}, []string{"", "inter2", "inter1", "root"}},
		{"CA-3 the root is in the chain too", []*pair{inter1, root}, []*pair{root}, []string{"", "inter1", "root"}},
		{"CA-3 an unrelated root in the bundle", []*pair{inter1}, []*pair{root, other}, []string{"", "inter1", "root other"}},
		{"CA-3 an unrelated root in the chain", []*pair{inter1, other}, []*pair{root}, []string{"", "inter1", "root"}},
		{"CA-3 repetitions", []*pair{inter1, inter1, root, root}, []*pair{root, other, root}, []string{"", "inter1", "root other"}},
		{"ROT-4 a self-signed CA and another root", []*pair{root}, []*pair{other, root}, []string{"", "other root"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := ca.Material{Signer: tt.chain[0].key, Chain: certs(tt.chain...), Roots: certs(tt.roots...)}
			a := newAuthority(t, m, ca.DefaultProfile(trustDomain))
			issued := issue(t, a, aRequest(t), 0)
			var got []string
			for _, e := range issued.Elements() {
				var names []string
				for _, cert := range parseAll(t, e) {
					names = append(names, cert.Subject.CommonName)
				}
				got = append(got, strings.Join(names, " "))
				if !strings.HasSuffix(e, "-----\n") || !strings.HasPrefix(e, "-----BEGIN ") {
					t.Errorf("element %q", e)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("elements (-want +got):\n%s", diff)
			}
			if bundle := issued.Elements()[len(got)-1]; bundle != a.BundlePEM() {
				t.Errorf("the bundle is %q", a.BundlePEM())
			}
			checkByOthers(t, issued)
		})
	}
}

// A signer that breaks, or lies about its key, does not get a certificate out.
func TestBrokenSigner(t *testing.T) {
	root := newCA(t, "root", newP256(t), nil)
	broken := &turncoat{Signer: root.key}
	a := newAuthority(t, ca.Material{Signer: broken, Chain: certs(root), Roots: certs(root)}, ca.DefaultProfile(trustDomain))
	broken.Signer = newP256(t)
	if issued, err := a.Issue(noon, grantCart(t), aRequest(t), 0); err == nil || issued != nil {
		t.Errorf("Issue: %v, %v", issued, err)
	}
}

type turncoat struct{ crypto.Signer }

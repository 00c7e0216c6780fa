package istio_test

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"istio.io/istio/pkg/features"
	"istio.io/istio/pkg/security"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
)

// quick is a configuration for tests that live through a renewal, or that end a
// server: nobody's endpoint is withdrawn here.
const quick = `{minLeafLife: 2s, limits: {drainDelay: 1ms}}`

func TestFirstCertificate(t *testing.T) {
	m := begin(t, quick)
	for _, tt := range []struct {
		name   string
		change func(*security.Options)
		key    x509.PublicKeyAlgorithm
	}{
		{"RSA 2048, the default", nil, x509.RSA},
		{"RSA 4096", func(o *security.Options) { o.WorkloadRSAKeySize = 4096 }, x509.RSA},
		{"P-256", func(o *security.Options) { o.ECCSigAlg = "ECDSA" }, x509.ECDSA},
		{"P-384", func(o *security.Options) { o.ECCSigAlg, o.ECCCurve = "ECDSA", "P384" }, x509.ECDSA},
		{"P-256 in PKCS #8", func(o *security.Options) { o.ECCSigAlg, o.Pkcs8Keys = "ECDSA", true }, x509.ECDSA},
		{"of a cluster by another name", func(o *security.Options) { o.ClusterID = "east" }, x509.RSA},
		{"with the name of a signer", func(o *security.Options) { o.CertSigner = "signers.example/one" }, x509.RSA},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := m.defaults(t)
			if tt.change != nil {
				tt.change(o)
			}
			a := m.agent(t, o)
			item := a.fetch(t, m.roots)
			if got := leaf(t, item).PublicKeyAlgorithm; got != tt.key {
				t.Errorf("a certificate for a key of %v", got)
			}
			if n := len(certificates(t, item.CertificateChain)); n != 3 {
				t.Errorf("%d certificates, want leaf, issuer and root", n)
			}
			if left := time.Until(item.ExpireTime); left > 24*time.Hour || left < 22*time.Hour {
				t.Errorf("%v are left of 24 h, from which up to a twentieth is taken", left)
			}
			if diff := cmp.Diff(subjects(t, read(t, m.roots)), a.roots(t)); diff != "" {
				t.Errorf("the roots that Envoy gets (-want +got):\n%s", diff)
			}
		})
	}
}

// The agent renews at half of what is left, and goes on with what it has until
// the new certificate is there.
func TestRenewal(t *testing.T) {
	m := begin(t, quick)
	o := m.defaults(t)
	o.ECCSigAlg, o.SecretTTL = "ECDSA", 6*time.Second
	a := m.agent(t, o)
	last := a.fetch(t, m.roots)
	for range 2 {
		a.pushed(t, last.ExpireTime.Sub(last.CreatedTime), security.WorkloadKeyCertResourceName)
		if !time.Now().Before(last.ExpireTime) {
			t.Fatal("the certificate had expired when it was to be renewed")
		}
		next := a.fetch(t, m.roots)
		if !next.ExpireTime.After(last.ExpireTime) || bytes.Equal(next.PrivateKey, last.PrivateKey) {
			t.Errorf("a certificate until %v, after one until %v", next.ExpireTime, last.ExpireTime)
		}
		last = next
	}
}

// An agent of a mesh that keeps to FIPS 140-2 speaks TLS 1.2, with P-256 only.
func TestAgentThatSpeaksTLS12(t *testing.T) {
	before := features.CompliancePolicy
	t.Cleanup(func() { features.CompliancePolicy = before })
	for _, tt := range []struct {
		policy, config string
		served         bool
	}{
		{features.FIPS_140_2, quick, true},
		{features.FIPS_140_2, `{onlyTLS13: true, limits: {drainDelay: 1ms}}`, false},
		{features.FIPS_140_3, quick, true},
		{features.PQC, quick, true},
	} {
		t.Run(tt.policy+" "+tt.config, func(t *testing.T) {
			m := begin(t, tt.config)
			features.CompliancePolicy = tt.policy
			o := m.defaults(t)
			o.ECCSigAlg = "ECDSA"
			a := m.agent(t, o)
			if tt.served {
				a.fetch(t, m.roots)
				return
			}
			if _, err := a.GenerateSecret(security.WorkloadKeyCertResourceName); err == nil {
				t.Error("served, to a client that does not speak TLS 1.3")
			}
			if got := m.Answers(t); len(got) > 0 {
				t.Errorf("answered: %v", got)
			}
		})
	}
}

// Roots change in the order that never leaves anybody alone: both are published,
// then the other one signs, then the first is withdrawn. The client reads the
// roots again only after a request has failed, so there is one that fails, and
// Envoy asks again.
func TestRootChange(t *testing.T) {
	m := begin(t, quick)
	now := time.Now()
	first, second := root(t, now, "first"), root(t, now, "second")
	under := func(issuer *certs.Authority, roots ...*certs.Authority) (dir string, bundle []byte) {
		dir = t.TempDir()
		if err := issuer.WriteCacerts(dir, roots[0]); err != nil {
			t.Fatal(err)
		}
		for _, r := range roots {
			bundle = append(bundle, r.PEM()...)
		}
		write(t, filepath.Join(dir, "cert-chain.pem"), issuer.PEM())
		write(t, filepath.Join(dir, "root-cert.pem"), bundle)
		return dir, bundle
	}
	one, two := intermediate(t, first, now), intermediate(t, second, now)
	o := m.defaults(t)
	o.ECCSigAlg, o.SecretTTL = "ECDSA", 4*time.Second
	var a *agent
	for _, stage := range []struct {
		name   string
		issuer *certs.Authority
		roots  []*certs.Authority
		fails  bool // the first request
		told   bool // Envoy is, that there are other roots
	}{
		{"the first", one, []*certs.Authority{first}, false, true},
		{"both, and the first signs", one, []*certs.Authority{first, second}, false, true},
		{"both, and the second signs", two, []*certs.Authority{first, second}, true, false},
		{"the second", two, []*certs.Authority{second}, false, true},
	} {
		dir, bundle := under(stage.issuer, stage.roots...)
		m.serveAgain(t, dir)
		if a == nil {
			write(t, m.roots, bundle)
			a = m.agent(t, o)
		} else {
			a.pushed(t, 10*time.Second, security.WorkloadKeyCertResourceName)
		}
		if stage.fails {
			if _, err := a.GenerateSecret(security.WorkloadKeyCertResourceName); err == nil {
				t.Errorf("%s: the client knew the other root already", stage.name)
			}
		}
		a.fetch(t, m.roots) // judged by the roots that everybody had before
		if told := slices.Contains(a.drain(), security.RootCertReqResourceName); told != stage.told {
			t.Errorf("%s: Envoy was told of other roots: %v", stage.name, told)
		}
		if diff := cmp.Diff(subjects(t, bundle), a.roots(t)); diff != "" {
			t.Errorf("%s: the roots that Envoy gets (-want +got):\n%s", stage.name, diff)
		}
		write(t, m.roots, bundle) // as the ConfigMap does, once it is published
	}
}

func root(t *testing.T, now time.Time, name string) *certs.Authority {
	t.Helper()
	r, err := certs.NewRoot(now, name+" root of the tests")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func intermediate(t *testing.T, root *certs.Authority, now time.Time) *certs.Authority {
	t.Helper()
	i, err := root.Intermediate(now, "issuer below the "+root.Cert.Subject.CommonName)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// roots is what Envoy gets to verify others with, by name.
func (a *agent) roots(t *testing.T) []string {
	t.Helper()
	item, err := a.GenerateSecret(security.RootCertReqResourceName)
	if err != nil {
		t.Fatal(err)
	}
	return subjects(t, item.RootCert)
}

func subjects(t *testing.T, bundle []byte) (names []string) {
	t.Helper()
	for _, c := range certificates(t, bundle) {
		names = append(names, c.Subject.CommonName)
	}
	slices.Sort(names)
	return names
}

func certificates(t *testing.T, chain []byte) (all []*x509.Certificate) {
	t.Helper()
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

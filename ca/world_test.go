package ca_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	noon        = time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)
	trustDomain = spiffeid.RequireTrustDomainFromString("cluster.local")
	cart        = spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/cart")

	oidSAN = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// An everything knows every service account.
type everything struct{}

func (everything) Look(time.Time, authz.Query) (authz.Facts, error) {
	return authz.Facts{CallerAccount: authz.Account{UID: "u"}}, nil
}

func (everything) Confirm(context.Context, authz.Query, func(authz.Facts) bool) (authz.Facts, error) {
	return authz.Facts{}, errors.ErrUnsupported
}

// grantCart returns the grant for the identity of shop/cart, which only authz
// can make.
func grantCart(t testing.TB) authz.Grant { return grantIn(t, trustDomain) }

func grantIn(t testing.TB, td spiffeid.TrustDomain) authz.Grant {
	t.Helper()
	policy := &authz.Policy{TrustDomain: td, Inventory: everything{}, Now: func() time.Time { return noon }}
	caller := authz.Caller{
		ServiceAccount:    authz.ServiceAccount{Namespace: "shop", Name: "cart"},
		ServiceAccountUID: "u",
	}
	grant, err := policy.Authorize(t.Context(), caller, "")
	if err != nil {
		t.Fatal(err)
	}
	return grant
}

// A pair is a CA certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newCA makes a CA under parent, or a root if that is nil. Edits change what is
// signed.
func newCA(t testing.TB, name string, key crypto.Signer, parent *pair, edits ...func(*x509.Certificate)) *pair {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             noon.Add(-time.Hour),
		NotAfter:              noon.AddDate(1, 0, 0),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	for _, edit := range edits {
		edit(template)
	}
	signer := &pair{template, key}
	if parent != nil {
		signer = parent
	}
	return &pair{sign(t, template, signer, key.Public()), key}
}

func sign(t testing.TB, template *x509.Certificate, parent *pair, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, pub, parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func endsAfter(d time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = noon.Add(d) }
}

// material is the signing key of the first of path, which ends with the root.
func material(path ...*pair) ca.Material {
	m := ca.Material{Signer: path[0].key}
	for _, p := range path[:len(path)-1] {
		m.Chain = append(m.Chain, p.cert)
	}
	m.Roots = []*x509.Certificate{path[len(path)-1].cert}
	if len(path) == 1 {
		m.Chain = m.Roots
	}
	return m
}

func certs(pairs ...*pair) []*x509.Certificate {
	var all []*x509.Certificate
	for _, p := range pairs {
		all = append(all, p.cert)
	}
	return all
}

func newAuthority(t testing.TB, m ca.Material, p ca.Profile) *ca.Authority {
	t.Helper()
	a, err := ca.NewAuthority(noon, m, p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// anAuthority is one as the keeper makes it: an issuer under a root.
func anAuthority(t testing.TB) *ca.Authority {
	root := newCA(t, "root", newP256(t), nil)
	return newAuthority(t, material(newCA(t, "issuer", newP256(t), root), root), ca.DefaultProfile(trustDomain))
}

func newP256(t testing.TB) crypto.Signer { return newECDSA(t, elliptic.P256()) }

func newECDSA(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// RSA keys are slow to make, so tests share them.
var (
	anRSAKey      = sync.OnceValues(newRSA)
	anotherRSAKey = sync.OnceValues(newRSA)
)

func newRSA() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }

// newKey returns a key of the kind that the matrix of CSR-3 names.
func newKey(t testing.TB, kind string) crypto.Signer {
	t.Helper()
	switch kind {
	case "P-256":
		return newP256(t)
	case "P-384":
		return newECDSA(t, elliptic.P384())
	case "RSA-2048":
		key, err := anRSAKey()
		if err != nil {
			t.Fatal(err)
		}
		return key
	case "Ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	t.Fatalf("no kind of key is called %q", kind)
	return nil
}

// newCSR returns a request for the key, with what the template says.
func newCSR(t testing.TB, key crypto.Signer, template x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	return csrPEM(der)
}

func csrPEM(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// sanOf returns the extension with these URI names, spelt as they are.
func sanOf(t testing.TB, critical bool, uris ...string) pkix.Extension {
	t.Helper()
	var names []asn1.RawValue
	for _, u := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(u)})
	}
	return pkix.Extension{Id: oidSAN, Critical: critical, Value: marshal(t, names)}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	der, err := asn1.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// csrNaming returns a request for a new key that asks for these URI names.
func csrNaming(t testing.TB, uris ...string) string {
	return newCSR(t, newP256(t), x509.CertificateRequest{ExtraExtensions: []pkix.Extension{sanOf(t, true, uris...)}})
}

// verified returns the request in text, which is in order.
func verified(t testing.TB, text string) *ca.Request {
	t.Helper()
	csr, err := ca.ParseCSR(text)
	if err != nil {
		t.Fatal(err)
	}
	profile := ca.DefaultProfile(trustDomain)
	profile.AllowEd25519 = true
	r, err := csr.Verify(profile)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// aRequest is as ztunnel makes it.
func aRequest(t testing.TB) *ca.Request { return verified(t, csrNaming(t, cart.String())) }

// issue issues a leaf, which must succeed.
func issue(t testing.TB, a *ca.Authority, r *ca.Request, lifeSeconds int64) *ca.Issued {
	t.Helper()
	issued, err := a.Issue(noon, grantCart(t), r, lifeSeconds)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

// reasonOf returns the reason word of an error, or "" if it has none.
func reasonOf(err error) ca.Reason {
	if e, ok := errors.AsType[*ca.RequestError](err); ok {
		return e.Reason
	}
	if e, ok := errors.AsType[*ca.IssuerError](err); ok {
		return e.Reason
	}
	return ""
}

package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Issued is a leaf with what its holder and its peers need to use it, all of one
// [Authority]. It must not be changed.
type Issued struct {
	Leaf    *x509.Certificate
	Issuers []*x509.Certificate // from the one that signed Leaf up, roots left out

	// Shortened reports whether the signing path does not last as long as the
	// leaf was meant to.
	Shortened bool

	chainPEM  []string
	bundlePEM string
}

// Elements returns the certificates as the client reads them: the leaf, each
// issuer, and last the whole trust bundle. ztunnel reads one certificate from
// each element but the last. Each element ends with one newline.
func (i *Issued) Elements() []string {
	all := make([]string, 0, len(i.chainPEM)+2)
	all = append(all, encode(i.Leaf))
	all = append(all, i.chainPEM...)
	return append(all, i.bundlePEM)
}

// Issue signs a leaf for the identity that g grants and the key that r proves
// possession of, at the time now. Zero lifeSeconds ask for the longest life.
//
// An error is a [*RequestError] if the request is at fault, an [*IssuerError] if
// the authority cannot sign now, and otherwise a bug or a broken key.
func (a *Authority) Issue(now time.Time, g authz.Grant, r *Request, lifeSeconds int64) (*Issued, error) {
	switch {
	case g.IsZero():
		return nil, errors.New("nothing is signed without a grant")
	case r == nil || r.publicKey == nil:
		return nil, errors.New("nothing is signed for a request that was not verified")
	case !g.ID().MemberOf(a.profile.TrustDomain):
		return nil, fmt.Errorf("%s was granted, but the authority is of trust domain %q", g.ID(), a.profile.TrustDomain.Name())
	}
	if err := r.contradicts(g.ID()); err != nil {
		return nil, err
	}
	life, err := a.profile.life(lifeSeconds)
	if err != nil {
		return nil, err
	}
	return a.issue(now, g.ID(), r.publicKey, life)
}

// issue signs a leaf and checks it. Callers have a grant for id, or ask for
// nobody's.
func (a *Authority) issue(now time.Time, id spiffeid.ID, pub crypto.PublicKey, life time.Duration) (*Issued, error) {
	v, err := a.validity(now, life)
	if err != nil {
		return nil, err
	}
	template := newTemplate(v, pub)
	template.URIs = []*url.URL{id.URL()}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf, err := a.sign(template, pub)
	if err != nil {
		return nil, err
	}
	if err := Check(leaf, a.issuer, id, a.want(now, pub)); err != nil {
		return nil, fmt.Errorf("a certificate was signed that must not be: %w", err)
	}
	return a.issued(leaf, v), nil
}

// newTemplate returns what leaves have in common. The subject is empty, so the
// name must be in a critical SAN (RFC 5280, Section 4.2.1.6), which x509 sees
// to. The signature algorithm is left to follow from the signing key.
func newTemplate(v validity, pub crypto.PublicKey) *x509.Certificate {
	usage := x509.KeyUsageDigitalSignature
	if _, ok := pub.(*rsa.PublicKey); ok {
		usage |= x509.KeyUsageKeyEncipherment // for the RSA key exchange of TLS 1.2
	}
	return &x509.Certificate{
		SerialNumber:          NewSerial(),
		NotBefore:             v.notBefore,
		NotAfter:              v.notAfter,
		KeyUsage:              usage,
		BasicConstraintsValid: true,
	}
}

// sign signs template for pub. x509 verifies the signature that it made, with
// the public key that [NewAuthority] found in the issuer's certificate.
func (a *Authority) sign(template *x509.Certificate, pub crypto.PublicKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.issuer, pub, a.signer)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate under %s: %w", Describe(a.issuer), err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parsing the signed certificate: %w", err)
	}
	return leaf, nil
}

func (a *Authority) want(now time.Time, pub crypto.PublicKey) Want {
	return Want{PublicKey: pub, Now: now, MinLife: a.profile.MinLeafLife, MaxLife: a.profile.MaxLeafLife, PathEnd: a.NotAfter()}
}

func (a *Authority) issued(leaf *x509.Certificate, v validity) *Issued {
	return &Issued{
		Leaf: leaf, Issuers: a.chain, Shortened: v.shortened,
		chainPEM: a.chainPEM, bundlePEM: a.bundlePEM,
	}
}

// NewSerial returns a serial number of 16 octets with 126 random bits: positive, and
// below the 20 octets of RFC 5280, Section 4.1.2.2.
func NewSerial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] = b[0]&0x3f | 0x40
	return new(big.Int).SetBytes(b[:])
}

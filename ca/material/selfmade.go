package material

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// Lives of the certificates that [Make] makes.
const (
	rootLife   = 10 * 365 * 24 * time.Hour
	issuerLife = 365 * 24 * time.Hour
)

// backdate is for verifiers whose clock is behind ours.
const backdate = time.Hour

// maxCommonName is from RFC 5280, Appendix A.1 (ub-common-name).
const maxCommonName = 64

// A Pair is a CA certificate and its private key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Make makes a new root and an issuer under it. The root's key is forgotten:
// nothing else can be issued under it.
func Make(now time.Time) (ca.Material, error) {
	root, err := NewRoot(now, rootLife)
	if err != nil {
		return ca.Material{}, err
	}
	issuer, err := NewIssuer(now, root, issuerLife)
	if err != nil {
		return ca.Material{}, err
	}
	return ca.Material{
		Signer: issuer.Key,
		Chain:  []*x509.Certificate{issuer.Cert},
		Roots:  []*x509.Certificate{root.Cert},
	}, nil
}

// NewRoot makes a root that is valid for life from now.
func NewRoot(now time.Time, life time.Duration) (Pair, error) {
	pair, err := newPair(now, now.Add(life), "Bailiwick root", nil)
	if err != nil {
		return Pair{}, fmt.Errorf("making a root: %w", err)
	}
	return pair, nil
}

// NewIssuer makes an issuer under root, valid for life from now but not for
// longer than root. Its path length leaves room for one CA below it.
func NewIssuer(now time.Time, root Pair, life time.Duration) (Pair, error) {
	end := now.Add(life)
	if end.After(root.Cert.NotAfter) {
		end = root.Cert.NotAfter
	}
	pair, err := newPair(now, end, "Bailiwick issuer", &root)
	if err != nil {
		return Pair{}, fmt.Errorf("making an issuer under %s: %w", ca.Describe(root.Cert), err)
	}
	return pair, nil
}

// newPair makes a CA under parent, or a root if there is none. The key is on
// P-256, which every client of a mesh can verify.
func newPair(now, end time.Time, name string, parent *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	id, err := keyID(&key.PublicKey)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		SerialNumber: ca.NewSerial(),
		// With the key in the name, no two CAs have one name. A CRL is found by
		// the name of its issuer.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s %x", name, id)},
		SubjectKeyId:          id,
		NotBefore:             now.UTC().Add(-backdate),
		NotAfter:              end.UTC(),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	signer := &Pair{template, key}
	if parent != nil {
		signer = parent
		template.MaxPathLen = 1
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Cert, &key.PublicKey, signer.Key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return Pair{}, fmt.Errorf("parsing what was signed: %w", err)
	}
	return Pair{cert, key}, checkMade(now, cert, parent)
}

// checkMade reports what distinguishes cert, which was just signed, from what we
// make: more than [ca.CheckCA] asks of the CAs of others.
func checkMade(now time.Time, cert *x509.Certificate, parent *Pair) error {
	if err := ca.CheckCA(now, cert); err != nil {
		return err
	}
	pathLen, authority := -1, cert // of a root: none, and itself
	if parent != nil {
		pathLen, authority = 1, parent.Cert
	}
	switch {
	case cert.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign:
		return fmt.Errorf("its key usage is %#x", int(cert.KeyUsage))
	case cert.MaxPathLen != pathLen:
		return fmt.Errorf("its path length is %d", cert.MaxPathLen)
	case len(cert.Subject.CommonName) > maxCommonName:
		return fmt.Errorf("its common name %q is too long", cert.Subject.CommonName)
	case cert.NotAfter.After(authority.NotAfter):
		return errors.New("it outlives its issuer")
	}
	return cert.CheckSignatureFrom(authority)
}

// keyID returns the identifier of a key: RFC 7093, Section 2, method 1.
func keyID(pub *ecdsa.PublicKey) ([]byte, error) {
	point, err := pub.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(point)
	return sum[:20], nil
}

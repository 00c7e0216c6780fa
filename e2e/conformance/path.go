package conformance

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
)

// An algorithm is one that all clients can check a signature with.
type algorithm struct {
	oid  asn1.ObjectIdentifier
	key  asn1.ObjectIdentifier // of the key that signs, in subjectPublicKeyInfo
	name x509.SignatureAlgorithm
}

// algorithms returns them: RFC 5758, Section 3.2, RFC 4055, Section 5, and RFC
// 8410. There is no SHA-1 and no MD5 among them.
func algorithms() []algorithm {
	rsa := func(n int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, n} }
	ecdsa := func(n int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, n} }
	ec, ed25519 := asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}, asn1.ObjectIdentifier{1, 3, 101, 112}
	return []algorithm{
		{rsa(11), rsa(1), x509.SHA256WithRSA},
		{rsa(12), rsa(1), x509.SHA384WithRSA},
		{rsa(13), rsa(1), x509.SHA512WithRSA},
		{ecdsa(2), ec, x509.ECDSAWithSHA256},
		{ecdsa(3), ec, x509.ECDSAWithSHA384},
		{ecdsa(4), ec, x509.ECDSAWithSHA512},
		{ed25519, ed25519, x509.PureEd25519},
	}
}

// signedWith returns the algorithm of the certificate's signature.
func (r *reading) signedWith() (algorithm, error) {
	for _, a := range algorithms() {
		if a.oid.Equal(r.Algorithm.Algorithm) {
			return a, nil
		}
	}
	return algorithm{}, fmt.Errorf("it is signed with algorithm %v, which not all clients trust", r.Algorithm.Algorithm)
}

// keyKind returns the algorithm of the certificate's own key.
func (r *reading) keyKind() (asn1.ObjectIdentifier, error) {
	var v struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(r.TBS.PublicKey.FullBytes, &v); err != nil {
		return nil, fmt.Errorf("reading the public key: %w", err)
	}
	var kind asn1.ObjectIdentifier
	if _, err := asn1.Unmarshal(v.Algorithm.Bytes, &kind); err != nil {
		return nil, fmt.Errorf("reading the public key's algorithm: %w", err)
	}
	return kind, nil
}

// signedBy checks that the issuer's name and key are those that the certificate
// was signed with.
func (r *reading) signedBy(issuer *reading) error {
	if string(r.TBS.Issuer.FullBytes) != string(issuer.TBS.Subject.FullBytes) {
		return errors.New("its issuer has another name")
	}
	a, err := r.signedWith()
	if err != nil {
		return err
	}
	key, err := x509.ParsePKIXPublicKey(issuer.TBS.PublicKey.FullBytes)
	if err != nil {
		return err
	}
	return (&x509.Certificate{PublicKey: key}).CheckSignature(a.name, r.TBS.Raw, r.Signature.RightAlign())
}

// climb returns the leaf, the issuers and the root, each signed by the next.
func (c *certificate) climb() ([]*reading, error) {
	path := append([]*reading{c.leaf}, c.path...)
	for i, r := range path[1:] {
		if err := path[i].signedBy(r); err != nil {
			return nil, fmt.Errorf("element %d is not signed by the next: %w", i, err)
		}
	}
	var errs error
	for _, root := range c.roots {
		err := path[len(path)-1].signedBy(root)
		if err == nil {
			return append(path, root), nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, fmt.Errorf("element %d is not signed by a root: %w", len(path)-1, errs)
}

// issuers returns the issuers and the root.
func (c *certificate) issuers() ([]*reading, error) {
	all, err := c.climb()
	if err != nil {
		return nil, err
	}
	return all[1:], nil
}

package conformance

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// A certificate is an answer with one, taken apart as node proxies do.
type certificate struct {
	*answer

	leaf  *reading
	path  []*reading // the issuers, from the leaf up
	roots []*reading // the trust bundle

	wanted string            // the identity
	x509   *x509.Certificate // the leaf, as Go reads it; nil unless judged
}

// judge takes an answer apart, and ends the case if it is not what every client
// needs, whatever the case is about: one certificate in each element but the
// last, roots in that one, a leaf for the key and the identity that were asked
// for, and a path from it to one of the roots.
func (t *T) judge(a *answer, id string) *certificate {
	c, err := judged(a, id)
	if err != nil {
		t.fatalf("the certificate for %s: %v", id, err)
	}
	return c
}

// judged is for cases that go on.
func judged(a *answer, id string) (*certificate, error) {
	c, err := open(a)
	if err != nil {
		return nil, err
	}
	c.wanted = id
	return c, c.verify(id)
}

// open reads the elements of an answer.
func open(a *answer) (*certificate, error) {
	c := &certificate{answer: a}
	last := len(a.chain) - 1
	if last < 1 {
		return nil, fmt.Errorf("the reply has %d elements, want two or more", len(a.chain))
	}
	for i, element := range a.chain {
		certs, err := readElement(element)
		switch {
		case err != nil:
			return nil, fmt.Errorf("element %d of the reply: %w", i, err)
		case i == last && len(certs) == 0:
			return nil, errors.New("the last element of the reply has no root")
		case i == last:
			c.roots = certs
		case len(certs) != 1:
			return nil, fmt.Errorf("element %d of the reply has %d certificates, want one", i, len(certs))
		case i == 0:
			c.leaf = certs[0]
		default:
			c.path = append(c.path, certs[0])
		}
	}
	return c, nil
}

// verify has crypto/x509 and go-spiffe judge the certificate, with the roots
// that came with it.
func (c *certificate) verify(id string) (err error) {
	if c.x509, err = x509.ParseCertificate(c.leaf.der); err != nil {
		return err
	}
	if c.key != nil {
		if public, ok := c.key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(c.x509.PublicKey) {
			return errors.New("it is for another key")
		}
	}
	names, _, err := c.leaf.names()
	if err != nil {
		return err
	}
	if len(names) != 1 || names[0] != (generalName{tagURI, id}) {
		return fmt.Errorf("it names %v", names)
	}
	path, err := parseAll(c.path)
	if err != nil {
		return err
	}
	roots, err := parseAll(c.roots)
	if err != nil {
		return err
	}
	return errors.Join(c.verifyX509(path, roots), c.verifySPIFFE(id, path, roots))
}

func parseAll(all []*reading) (certs []*x509.Certificate, err error) {
	for _, r := range all {
		c, err := x509.ParseCertificate(r.der)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	return certs, nil
}

func (c *certificate) verifyX509(path, roots []*x509.Certificate) error {
	o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	for _, r := range roots {
		o.Roots.AddCert(r)
	}
	for _, i := range path {
		o.Intermediates.AddCert(i)
	}
	var errs error
	for _, purpose := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		o.KeyUsages = []x509.ExtKeyUsage{purpose}
		_, err := c.x509.Verify(o)
		errs = errors.Join(errs, err)
	}
	return errs
}

func (c *certificate) verifySPIFFE(want string, path, roots []*x509.Certificate) error {
	id, err := spiffeid.FromString(want)
	if err != nil {
		return err
	}
	chain := append([]*x509.Certificate{c.x509}, path...)
	got, _, err := x509svid.Verify(chain, x509bundle.FromX509Authorities(id.TrustDomain(), roots))
	if err == nil && got != id {
		err = fmt.Errorf("go-spiffe reads %v", got)
	}
	return err
}

package ztunnel

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// A Certificate is what ztunnel has of an identity: its own key, and what it
// believed of a reply. It need not fit together.
type Certificate struct {
	Identity Identity
	Key      *ecdsa.PrivateKey
	Leaf     *x509.Certificate
	Chain    []*x509.Certificate // the issuers, sent to peers after the leaf, in this order
	Roots    []*x509.Certificate // whom this identity believes in a peer
}

// RefreshAt is when to ask for the next one: half-way between the leaf's dates,
// and for everybody the same.
func (c *Certificate) RefreshAt() time.Time {
	life := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore)
	if life < 0 {
		return c.Leaf.NotAfter
	}
	return c.Leaf.NotBefore.Add(life / 2)
}

// Expired reports whether the leaf's life is over, as it is in its last moment.
func (c *Certificate) Expired(at time.Time) bool { return !at.Before(c.Leaf.NotAfter) }

// Read reads the elements of a reply for an identity, without the key and
// without asking whether it is the one for which the leaf is: see Verify.
func Read(id Identity, elements []string) (*Certificate, error) {
	c, err := parseReply(elements)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for %s: %w", id, err)
	}
	c.Identity = id
	return c, nil
}

// parseReply reads a reply: the first certificate of each element but the last,
// and all of the last, which are the roots. Nothing is verified, neither that
// one certificate leads to the next nor any date nor key.
//
// It reads with crypto/x509, which refuses more than ztunnel's parser does.
func parseReply(elements []string) (*Certificate, error) {
	last := len(elements) - 1
	if last < 0 {
		return nil, errors.New("the reply is empty")
	}
	if last == 0 {
		return nil, errors.New("the reply has no roots")
	}
	var path []*x509.Certificate
	for i, element := range elements[:last] {
		c, _, err := parseOne([]byte(element))
		if err != nil {
			return nil, fmt.Errorf("element %d of the reply: %w", i, err)
		}
		path = append(path, c) // whatever comes after it is lost
	}
	c := &Certificate{Leaf: path[0], Chain: path[1:]}
	for rest := []byte(elements[last]); ; {
		root, after, err := parseOne(rest)
		if errors.Is(err, errNoPEM) && len(c.Roots) > 0 {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the roots of the reply: %w", err)
		}
		c.Roots, rest = append(c.Roots, root), after
	}
}

var errNoPEM = errors.New("there is no PEM")

// parseOne reads the first block, and returns what comes after it.
func parseOne(text []byte) (*x509.Certificate, []byte, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, nil, errNoPEM
	}
	if block.Type != "CERTIFICATE" {
		return nil, nil, fmt.Errorf("it has a %s", block.Type)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return c, rest, err
}

// names returns the identity in the leaf's first URI. Others may follow it.
func (c *Certificate) names() (Identity, error) {
	for _, e := range c.Leaf.Extensions {
		if !e.Id.Equal(oidSAN()) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(e.Value, &names); err != nil {
			return Identity{}, err
		}
		for _, n := range names {
			if n.Class == asn1.ClassContextSpecific && n.Tag == tagURI {
				return ParseIdentity(string(n.Bytes))
			}
		}
	}
	return Identity{}, errors.New("there is no URI")
}

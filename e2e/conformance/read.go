package conformance

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// The certificate is read here by RFC 5280 alone, without crypto/x509, which
// the authority under test may well have written it with.

// The last arcs of the extensions' identifiers (RFC 5280, Section 4.2.1).
const (
	subjectKeyIdentifier   = 14
	keyUsage               = 15
	subjectAltName         = 17
	basicConstraints       = 19
	authorityKeyIdentifier = 35
	extKeyUsage            = 37
)

// ce returns the identifier of an extension: id-ce.
func ce(arc int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, arc} }

// The last arcs of the purposes' identifiers (RFC 5280, Section 4.2.1.12).
const (
	serverAuth = 1
	clientAuth = 2
)

// kp returns the identifier of a purpose: id-kp.
func kp(arc int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, arc} }

// A reading is a certificate that was read.
type reading struct {
	layout

	der []byte
}

// A layout is a certificate as RFC 5280, Section 4.1 lays it out.
type layout struct {
	TBS struct {
		Raw       asn1.RawContent
		Version   int `asn1:"optional,explicit,default:0,tag:0"`
		Serial    *big.Int
		Algorithm pkix.AlgorithmIdentifier
		Issuer    asn1.RawValue
		Validity  struct {
			Raw                 asn1.RawContent
			NotBefore, NotAfter time.Time
		}
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		IssuerUID  asn1.BitString   `asn1:"optional,tag:1"`
		SubjectUID asn1.BitString   `asn1:"optional,tag:2"`
		Extensions []pkix.Extension `asn1:"omitempty,optional,explicit,tag:3"`
	}
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

// read reads the DER of one certificate, and nothing after it.
func read(der []byte) (*reading, error) {
	r := &reading{der: der}
	rest, err := asn1.Unmarshal(der, &r.layout)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading a certificate: %w", err)
	case len(rest) > 0:
		return nil, fmt.Errorf("reading a certificate: %d bytes follow it", len(rest))
	}
	return r, nil
}

// readElement reads an element of the reply: PEM certificates and nothing else.
func readElement(text string) (all []*reading, err error) {
	for rest := []byte(text); len(strings.TrimSpace(string(rest))) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("it has something that is not PEM")
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it has a block of type %q", block.Type)
		}
		r, err := read(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// extension returns an extension, and how often it is there.
func (r *reading) extension(id asn1.ObjectIdentifier) (e pkix.Extension, n int) {
	for _, x := range r.TBS.Extensions {
		if x.Id.Equal(id) {
			e, n = x, n+1
		}
	}
	return e, n
}

// only returns the value of an extension that must be there once.
func (r *reading) only(name string, id asn1.ObjectIdentifier) (pkix.Extension, error) {
	e, n := r.extension(id)
	if n != 1 {
		return e, fmt.Errorf("%s is there %d times, want once", name, n)
	}
	return e, nil
}

// unmarshal reads all of an extension's value.
func unmarshal(name string, e pkix.Extension, into any) error {
	rest, err := asn1.Unmarshal(e.Value, into)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes follow it", len(rest))
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// A generalName is a name of RFC 5280, Section 4.2.1.6: its tag, and its bytes.
type generalName struct {
	tag   int
	value string
}

const tagURI = 6

func (n generalName) String() string { return fmt.Sprintf("[%d] %q", n.tag, n.value) }

// names returns the subject alternative names, and whether they are critical.
func (r *reading) names() (all []generalName, critical bool, err error) {
	e, err := r.only("subjectAltName", ce(subjectAltName))
	if err != nil {
		return nil, false, err
	}
	var raw []asn1.RawValue
	if err := unmarshal("subjectAltName", e, &raw); err != nil {
		return nil, false, err
	}
	for _, v := range raw {
		if v.Class != asn1.ClassContextSpecific {
			return nil, false, fmt.Errorf("subjectAltName has a name of class %d", v.Class)
		}
		all = append(all, generalName{v.Tag, string(v.Bytes)})
	}
	return all, e.Critical, nil
}

// usage returns the bits of keyUsage (RFC 5280, Section 4.2.1.3), the first of
// which is digitalSignature, and whether it is critical.
func (r *reading) usage() (bits asn1.BitString, critical bool, err error) {
	e, err := r.only("keyUsage", ce(keyUsage))
	if err == nil {
		err = unmarshal("keyUsage", e, &bits)
	}
	return bits, e.Critical, err
}

// The bits of keyUsage, by number.
const (
	digitalSignature = 0
	keyEncipherment  = 2
	keyCertSign      = 5
	cRLSign          = 6
)

// purposes returns extKeyUsage.
func (r *reading) purposes() (ids []asn1.ObjectIdentifier, err error) {
	e, err := r.only("extKeyUsage", ce(extKeyUsage))
	if err == nil {
		err = unmarshal("extKeyUsage", e, &ids)
	}
	return ids, err
}

// constraints returns basicConstraints.
func (r *reading) constraints() (ca, critical bool, err error) {
	ca, _, critical, err = r.authority()
	return ca, critical, err
}

// authority returns all of basicConstraints: whether the certificate is a CA's,
// how many others may follow it before the leaf, or -1 if that is not limited,
// and whether the extension is critical.
func (r *reading) authority() (ca bool, pathLen int, critical bool, err error) {
	e, err := r.only("basicConstraints", ce(basicConstraints))
	if err != nil {
		return false, 0, false, err
	}
	var v struct {
		CA      bool `asn1:"optional"`
		PathLen int  `asn1:"optional,default:-1"`
	}
	err = unmarshal("basicConstraints", e, &v)
	return v.CA, v.PathLen, e.Critical, err
}

// authorityKeyID returns the key identifier in authorityKeyIdentifier, which is
// not critical (RFC 5280, Section 4.2.1.1).
func (r *reading) authorityKeyID() ([]byte, error) {
	e, err := r.only("authorityKeyIdentifier", ce(authorityKeyIdentifier))
	if err != nil {
		return nil, err
	}
	var v struct {
		KeyID  []byte        `asn1:"optional,tag:0"`
		Issuer asn1.RawValue `asn1:"optional,tag:1"`
		Serial *big.Int      `asn1:"optional,tag:2"`
	}
	err = unmarshal("authorityKeyIdentifier", e, &v)
	if err == nil && e.Critical {
		err = errors.New("authorityKeyIdentifier is critical")
	}
	return v.KeyID, err
}

// subjectKeyID returns subjectKeyIdentifier, or nil if there is none.
func (r *reading) subjectKeyID() (id []byte, err error) {
	e, n := r.extension(ce(subjectKeyIdentifier))
	if n == 0 {
		return nil, nil
	}
	return id, unmarshal("subjectKeyIdentifier", e, &id)
}

// selfSigned reports whether issuer and subject are the same, as of a root.
func (r *reading) selfSigned() bool {
	return string(r.TBS.Issuer.FullBytes) == string(r.TBS.Subject.FullBytes)
}

// life is how long the certificate is valid.
func (r *reading) life() time.Duration {
	return r.TBS.Validity.NotAfter.Sub(r.TBS.Validity.NotBefore)
}

// midpoint is when node proxies renew.
func (r *reading) midpoint() time.Time { return r.TBS.Validity.NotBefore.Add(r.life() / 2) }

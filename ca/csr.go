package ca

import (
	"crypto"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// maxCSR is the size of the largest request that is looked at. One for a
// 4096-bit RSA key takes 1.7 KiB.
const maxCSR = 16 << 10

// A CSR is a request for a certificate that is well-formed. Nothing in it has
// been proven: see [CSR.Verify].
type CSR struct {
	req *x509.CertificateRequest
	ids []string // the SPIFFE IDs it asks for, as written
}

// A Request is a CSR whose sender holds the private key.
//
// It is all that is kept of the CSR: the public key to certify, and what SPIFFE
// IDs it asked for, which are compared with the one granted and then forgotten.
type Request struct {
	publicKey crypto.PublicKey
	ids       []string
}

// ParseCSR parses a PKCS #10 request in PEM: one block labelled CERTIFICATE
// REQUEST, white space, and nothing else. It does no cryptography. Errors are of
// type [*RequestError].
func ParseCSR(text string) (*CSR, error) {
	if len(text) > maxCSR {
		return nil, refuse(BadCSR, "it is %d bytes long, more than %d", len(text), maxCSR)
	}
	der, err := onlyBlock(text, "CERTIFICATE REQUEST")
	if err != nil {
		return nil, refuse(BadCSR, "%w", err)
	}
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		// The cause may quote a name as long as the CSR.
		return nil, refuse(BadCSR, "parsing: %s", clip(err.Error()))
	}
	ids, err := requestedIDs(req)
	if err != nil {
		return nil, refuse(BadCSR, "parsing its subject alternative names: %s", clip(err.Error()))
	}
	return &CSR{req, ids}, nil
}

// Verify checks that the public key is of a kind that p lets us certify, and
// then that the CSR is signed with its private key. The order matters: the cost
// of the signature check is chosen by whoever chose the key. Errors are of type
// [*RequestError].
func (c *CSR) Verify(p Profile) (*Request, error) {
	if err := checkLeafKey(c.req.PublicKey, p.AllowEd25519); err != nil {
		return nil, refuse(BadKey, "%w", err)
	}
	if !isSound(c.req.SignatureAlgorithm) {
		return nil, refuse(NoPossession, "it is signed with %v, which proves nothing", c.req.SignatureAlgorithm)
	}
	if err := c.req.CheckSignature(); err != nil {
		return nil, refuse(NoPossession, "checking its signature: %w", err)
	}
	return &Request{c.req.PublicKey, c.ids}, nil
}

// contradicts returns an error if the request asks for another identity than id.
// There is one spelling of it, so nothing is normalised before it is compared.
func (r *Request) contradicts(id spiffeid.ID) error {
	for _, s := range r.ids {
		if s != id.String() {
			return refuse(CSRNamesAnother, "it names %q, but %s was granted", clip(s), id)
		}
	}
	return nil
}

// onlyBlock decodes the one PEM block that text consists of. The standard
// decoder skips whatever is not a block, so the block is written again: white
// space aside, that must be what was read.
func onlyBlock(text, label string) ([]byte, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("there is no PEM block in it")
	}
	if block.Type != label {
		return nil, fmt.Errorf("its PEM block is labelled %q, not %q", clip(block.Type), label)
	}
	again := pem.EncodeToMemory(&pem.Block{Type: label, Bytes: block.Bytes})
	if !equalButSpace(text, string(again)) {
		return nil, errors.New("it is more than one plain PEM block: there are headers, another block, or other text")
	}
	return block.Bytes, nil
}

// equalButSpace reports whether a and b are equal when white space is left out.
func equalButSpace(a, b string) bool {
	const space = " \t\r\n"
	i := 0
	for _, c := range []byte(a) {
		if strings.IndexByte(space, c) >= 0 {
			continue
		}
		for i < len(b) && strings.IndexByte(space, b[i]) >= 0 {
			i++
		}
		if i == len(b) || b[i] != c {
			return false
		}
		i++
	}
	return strings.Trim(b[i:], space) == ""
}

// requestedIDs returns the URI names with scheme spiffe, byte for byte. Those
// that x509 parsed will not do: a url.URL has forgotten how it was spelt.
func requestedIDs(req *x509.CertificateRequest) ([]string, error) {
	const uniformResourceIdentifier = 6 // RFC 5280, Section 4.2.1.6
	var ids []string
	for _, ext := range req.Extensions {
		if !ext.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(ext.Value, &names); err != nil {
			return nil, err
		} else if len(rest) != 0 {
			return nil, errors.New("there is trailing data")
		}
		for _, n := range names {
			if n.Class != asn1.ClassContextSpecific || n.Tag != uniformResourceIdentifier {
				continue
			}
			scheme, _, _ := strings.Cut(string(n.Bytes), ":")
			if strings.EqualFold(scheme, "spiffe") {
				ids = append(ids, string(n.Bytes))
			}
		}
	}
	return ids, nil
}

// clip shortens what a stranger wrote, so that it can be told to an operator.
func clip(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

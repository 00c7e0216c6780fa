package material

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
)

// A Warning is about something in a file that does not keep the CA from working.
type Warning struct {
	File string
	Line int
	Text string
}

func (w Warning) String() string { return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text) }

// A source is a certificate, and where it was read.
type source struct {
	cert *x509.Certificate
	file string
	line int
}

// A stranger is a certificate that our parser refuses, though it looks like one.
// Go 1.23, for one, began to refuse negative serial numbers, of which there are
// some in bundles that have been around for long.
type stranger struct {
	file    string
	line    int
	subject []byte // DER
	name    string // subject and serial number, for people
	err     error  // what the parser said
}

// parseCerts returns the certificates of a file, those that the parser refuses
// apart.
func parseCerts(file, data string) ([]source, []stranger, error) {
	blocks, err := parseBlocks(file, data)
	if err != nil {
		return nil, nil, err
	}
	var certs []source
	var strangers []stranger
	for _, b := range blocks {
		if b.label != "CERTIFICATE" || b.encrypted {
			return nil, nil, fault(file, b.line, "found a %s block, where only certificates should be", b.label)
		}
		cert, err := x509.ParseCertificate(b.der)
		if err == nil {
			certs = append(certs, source{cert, file, b.line})
			continue
		}
		s, ok := parseStranger(b.der)
		if !ok {
			return nil, nil, fault(file, b.line, "the block does not hold a certificate: %w", err)
		}
		s.file, s.line, s.err = file, b.line, err
		strangers = append(strangers, s)
	}
	return certs, strangers, nil
}

// parseStranger reads as much of a certificate (RFC 5280, Section 4.1) as it
// takes to name it.
func parseStranger(der []byte) (stranger, bool) {
	var cert struct {
		TBS struct {
			Version   int `asn1:"optional,explicit,default:0,tag:0"`
			Serial    *big.Int
			Algorithm asn1.RawValue
			Issuer    asn1.RawValue
			Validity  asn1.RawValue
			Subject   asn1.RawValue
		}
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	if rest, err := asn1.Unmarshal(der, &cert); err != nil || len(rest) != 0 {
		return stranger{}, false
	}
	var subject pkix.RDNSequence
	if _, err := asn1.Unmarshal(cert.TBS.Subject.FullBytes, &subject); err != nil {
		return stranger{}, false
	}
	return stranger{
		subject: cert.TBS.Subject.FullBytes,
		name:    fmt.Sprintf("certificate %q, serial number %v,", subject, cert.TBS.Serial),
	}, true
}

// issued returns the first of certs that names s as its issuer, if none of
// others could be that issuer instead.
func (s stranger) issued(certs, others []source) (source, bool) {
	for _, o := range others {
		if bytes.Equal(o.cert.RawSubject, s.subject) {
			return source{}, false
		}
	}
	for _, c := range certs {
		if bytes.Equal(c.cert.RawIssuer, s.subject) {
			return c, true
		}
	}
	return source{}, false
}

package ca

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Want is what a leaf is held to, besides the standards.
type Want struct {
	PublicKey        crypto.PublicKey
	Now              time.Time
	MinLife, MaxLife time.Duration // from Now to NotAfter
	PathEnd          time.Time     // when the first certificate above the leaf expires
}

// Check reports the first way in which leaf departs from an X509-SVID for id,
// issued under issuer.
//
// It is written from the standards and shares nothing with what makes leaves,
// so that each guards the other. The signature is not verified again: x509 does
// that as it signs.
func Check(leaf, issuer *x509.Certificate, id spiffeid.ID, want Want) error {
	const uri = 6 // RFC 5280, Section 4.2.1.6
	// X509-SVID, Section 2: exactly one URI. We allow no name beside it.
	names := []asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: uri, Bytes: []byte(id.String())}}
	// X509-SVID, Section 4.4: workloads are clients and servers.
	purposes := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return checkLeaf(leaf, issuer, names, purposes, want)
}

// checkLeaf is what [Check] and [CheckServing] have in common.
func checkLeaf(leaf, issuer *x509.Certificate, names []asn1.RawValue, purposes []x509.ExtKeyUsage, want Want) error {
	if err := checkFields(leaf, issuer); err != nil {
		return err
	}
	if err := checkExtensions(leaf); err != nil {
		return err
	}
	if err := checkNames(leaf, names); err != nil {
		return err
	}
	if err := checkUse(leaf, purposes); err != nil {
		return err
	}
	if err := checkKeys(leaf, issuer, want.PublicKey); err != nil {
		return err
	}
	return checkTerm(leaf, want)
}

func checkFields(leaf, issuer *x509.Certificate) error {
	emptyName := []byte{0x30, 0x00}
	switch {
	// RFC 5280, Section 4.1.2.1.
	case leaf.Version != 3:
		return fmt.Errorf("it is of version %d, not 3", leaf.Version)
	// RFC 5280, Section 4.1.2.2. An octet holds seven bits of a positive
	// number, or eight but for the first.
	case leaf.SerialNumber.Sign() <= 0:
		return fmt.Errorf("its serial number %v is not positive", leaf.SerialNumber)
	case leaf.SerialNumber.BitLen() >= 20*8:
		return errors.New("its serial number is longer than 20 octets")
	// RFC 5280, Section 4.1.2.4.
	case !bytes.Equal(leaf.RawIssuer, issuer.RawSubject):
		return fmt.Errorf("its issuer is %q, not %q", leaf.Issuer, issuer.Subject)
	// X509-SVID, Section 3: the name is in the SAN; a subject could only
	// disagree with it.
	case !bytes.Equal(leaf.RawSubject, emptyName):
		return fmt.Errorf("its subject is %q, not empty", leaf.Subject)
	}
	return nil
}

// checkExtensions checks which extensions there are, and their criticality. An
// extension that nobody meant to be there is how a CSR gets its way.
func checkExtensions(leaf *x509.Certificate) error {
	wanted := []struct {
		name     string
		oid      asn1.ObjectIdentifier
		critical bool
	}{
		{"authorityKeyIdentifier", asn1.ObjectIdentifier{2, 5, 29, 35}, false}, // RFC 5280, Section 4.2.1.1
		{"keyUsage", asn1.ObjectIdentifier{2, 5, 29, 15}, true},                // X509-SVID, Section 4.3
		{"subjectAltName", asn1.ObjectIdentifier{2, 5, 29, 17}, true},          // RFC 5280, Section 4.2.1.6: the subject is empty
		{"basicConstraints", asn1.ObjectIdentifier{2, 5, 29, 19}, true},        // RFC 5280, Section 4.2.1.9
		{"extKeyUsage", asn1.ObjectIdentifier{2, 5, 29, 37}, false},            // RFC 5280, Section 4.2.1.12
	}
	seen := 0
	for _, ext := range leaf.Extensions {
		for _, w := range wanted {
			if !ext.Id.Equal(w.oid) {
				continue
			}
			if ext.Critical != w.critical {
				return fmt.Errorf("%s has critical = %t", w.name, ext.Critical)
			}
			seen++
		}
	}
	for _, w := range wanted {
		if _, ok := extension(leaf, w.oid); !ok {
			return fmt.Errorf("%s is missing", w.name)
		}
	}
	if seen != len(leaf.Extensions) {
		return fmt.Errorf("of its %d extensions only %d should be there", len(leaf.Extensions), seen)
	}
	return nil
}

// checkNames compares bytes: what x509 makes of a name is not how it is spelt.
func checkNames(leaf *x509.Certificate, names []asn1.RawValue) error {
	want, err := asn1.Marshal(names)
	if err != nil {
		return fmt.Errorf("encoding the names it should have: %w", err)
	}
	if got, _ := extension(leaf, asn1.ObjectIdentifier{2, 5, 29, 17}); !bytes.Equal(got.Value, want) {
		return fmt.Errorf("its names are %q, %q, %q, %v, which is not what was asked for", leaf.URIs, leaf.DNSNames, leaf.EmailAddresses, leaf.IPAddresses)
	}
	return nil
}

func checkUse(leaf *x509.Certificate, purposes []x509.ExtKeyUsage) error {
	usage := x509.KeyUsageDigitalSignature
	if leaf.PublicKeyAlgorithm == x509.RSA {
		usage |= x509.KeyUsageKeyEncipherment
	}
	noCA := []byte{0x30, 0x00} // DER leaves out FALSE, and a leaf has no path length
	constraints, _ := extension(leaf, asn1.ObjectIdentifier{2, 5, 29, 19})
	switch {
	// X509-SVID, Section 4.1; RFC 5280, Section 4.2.1.9.
	case leaf.IsCA || !bytes.Equal(constraints.Value, noCA):
		return errors.New("its basicConstraints are not CA:FALSE")
	// X509-SVID, Section 4.3: digitalSignature set, keyCertSign and cRLSign not.
	// RFC 5280, Section 4.2.1.3 and RFC 8813, Section 3: keyEncipherment is for
	// RSA keys.
	case leaf.KeyUsage != usage:
		return fmt.Errorf("its key usage is %#x, not %#x", int(leaf.KeyUsage), int(usage))
	case !slices.Equal(leaf.ExtKeyUsage, purposes) || len(leaf.UnknownExtKeyUsage) != 0:
		return fmt.Errorf("its extended key usages are %v and %v, not %v", leaf.ExtKeyUsage, leaf.UnknownExtKeyUsage, purposes)
	}
	return nil
}

func checkKeys(leaf, issuer *x509.Certificate, pub crypto.PublicKey) error {
	key, ok := pub.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !key.Equal(leaf.PublicKey):
		return errors.New("its public key is not the one of the request")
	// RFC 5280, Section 4.2.1.1.
	case len(leaf.AuthorityKeyId) == 0 || !bytes.Equal(leaf.AuthorityKeyId, issuer.SubjectKeyId):
		return fmt.Errorf("its authority key identifier is %x, the issuer's key is %x", leaf.AuthorityKeyId, issuer.SubjectKeyId)
	// The algorithm follows from the issuer's key, never from the leaf's.
	case leaf.SignatureAlgorithm != signatureBy(issuer.PublicKey):
		return fmt.Errorf("its signature algorithm is %v, but the issuer's key is of type %v", leaf.SignatureAlgorithm, issuer.PublicKeyAlgorithm)
	}
	return nil
}

// signatureBy returns the signature algorithm that all clients of a mesh know
// for a CA's key: with RSA PKCS #1 v1.5 and SHA-256, with ECDSA the hash as long
// as the curve (RFC 8446, Section 4.2.3), and Ed25519 (RFC 8410).
func signatureBy(pub crypto.PublicKey) x509.SignatureAlgorithm {
	switch pub := pub.(type) {
	case *rsa.PublicKey:
		return x509.SHA256WithRSA
	case *ecdsa.PublicKey:
		if pub.Curve == elliptic.P384() {
			return x509.ECDSAWithSHA384
		}
		return x509.ECDSAWithSHA256
	case ed25519.PublicKey:
		return x509.PureEd25519
	default:
		return x509.UnknownSignatureAlgorithm
	}
}

// checkTerm checks the validity (RFC 5280, Section 4.1.2.5), to the second.
func checkTerm(leaf *x509.Certificate, want Want) error {
	now := want.Now.Truncate(time.Second)
	ahead := leaf.NotAfter.Sub(now)
	behind := now.Sub(leaf.NotBefore)
	var cause string
	switch {
	case behind < 0:
		cause = "it is not valid yet"
	case behind > 2*time.Minute:
		cause = "it is backdated by more than 2 minutes"
	case ahead < want.MinLife:
		cause = "it lives for too short a time"
	case ahead > want.MaxLife:
		cause = "it lives for too long"
	case leaf.NotAfter.After(want.PathEnd):
		cause = "it outlives its issuers"
	case ahead <= behind:
		cause = "the middle of its life, when ztunnel renews it, is past"
	default:
		return nil
	}
	return fmt.Errorf("%s: it is valid from %s to %s, our clock says %s, its life is %v to %v and the path ends at %s",
		cause, stamp(leaf.NotBefore), stamp(leaf.NotAfter), stamp(want.Now), want.MinLife, want.MaxLife, stamp(want.PathEnd))
}

// extension returns an extension of cert. x509 refuses one that occurs twice.
func extension(cert *x509.Certificate, oid asn1.ObjectIdentifier) (pkix.Extension, bool) {
	for _, ext := range cert.Extensions {
		if ext.Id.Equal(oid) {
			return ext, true
		}
	}
	return pkix.Extension{}, false
}

package ca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A ValidityError says that a certificate is not valid at a time. It has what
// one needs to tell an old certificate from a wrong clock.
type ValidityError struct {
	Cert *x509.Certificate
	Now  time.Time // our clock
}

func (e *ValidityError) Error() string {
	what := "has expired"
	if e.Now.Before(e.Cert.NotBefore) {
		what = "is not valid yet"
	}
	return fmt.Sprintf("%s %s: our clock says %s", Describe(e.Cert), what, stamp(e.Now))
}

// CheckCA reports the first reason why what cert signs would be refused. It
// judges cert alone, not its place in a path. Lesser faults, which only strict
// verifiers mind and which CAs in use have, are in [Authority.Warnings].
func CheckCA(now time.Time, cert *x509.Certificate) error {
	if err := CheckAnchor(cert); err != nil {
		return err
	}
	for _, check := range []func(*x509.Certificate) error{checkCAFields, checkCAPurposes} {
		if err := check(cert); err != nil {
			return fmt.Errorf("%s %w", Describe(cert), err)
		}
	}
	if err := checkCAKey(cert.PublicKey); err != nil {
		return fmt.Errorf("%s has a key that is not accepted: %w", Describe(cert), err)
	}
	return checkValidAt(now, cert)
}

// CheckAnchor reports why cert may not stand in a trust bundle, even if nothing
// is signed under it here. Some verifiers ask nothing of a trust anchor, so an
// end-entity certificate there would let its holder certify anybody.
func CheckAnchor(cert *x509.Certificate) error {
	switch {
	// RFC 5280, Section 4.2.1.9.
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return fmt.Errorf("%s is not a certificate authority: it lacks basicConstraints CA:TRUE, as end-entity certificates do", Describe(cert))
	// RFC 5280, Section 4.2.1.3. The absent extension is left to CheckCA: in an
	// anchor under which nothing is signed it does no harm.
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return fmt.Errorf("%s may not sign certificates: its key usage lacks keyCertSign", Describe(cert))
	}
	return nil
}

func checkCAFields(cert *x509.Certificate) error {
	switch {
	// RFC 5280, Section 4.2.1.3.
	case cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("may not sign certificates: it has no key usage with keyCertSign")
	// RFC 5280, Section 4.2.1.2. The authority key identifier of every leaf is
	// made of it.
	case len(cert.SubjectKeyId) == 0:
		return errors.New("has no subject key identifier, so strict verifiers would refuse its leaves")
	// RFC 5280, Section 4.1.2.6.
	case len(cert.Subject.Names) == 0:
		return errors.New("has an empty subject")
	// RFC 5280, Section 4.2.
	case len(cert.UnhandledCriticalExtensions) != 0:
		return fmt.Errorf("has a critical extension that verifiers may not know: %v", cert.UnhandledCriticalExtensions[0])
	}
	return nil
}

// checkCAPurposes holds cert to what verifiers make of an extended key usage in
// a CA certificate: a bound for everything below it.
func checkCAPurposes(cert *x509.Certificate) error {
	if len(cert.ExtKeyUsage) == 0 && len(cert.UnknownExtKeyUsage) == 0 {
		return nil
	}
	if slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	for _, purpose := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if !slices.Contains(cert.ExtKeyUsage, purpose) {
			return errors.New("has an extended key usage that makes leaves fail: it must permit both serverAuth and clientAuth, or be absent")
		}
	}
	return nil
}

func checkValidAt(now time.Time, cert *x509.Certificate) error {
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return &ValidityError{Cert: cert, Now: now}
	}
	return nil
}

// checkPath reports the first place where path, issuer first and root last, is
// not a path as in RFC 5280, Section 6.1. That every certificate is a valid CA
// has been checked.
func checkPath(path []*x509.Certificate) error {
	below := 0 // intermediates under path[i] that count against its path length
	for i, cert := range path {
		// x509 parses an absent path length as -1.
		if limit := cert.MaxPathLen; limit >= 0 && below > limit {
			return fmt.Errorf("%s has path length %d, but there are %d intermediates below it, so leaves would fail", Describe(cert), limit, below)
		}
		// RFC 5280, Section 6.1.4 (l): self-issued certificates are not counted.
		if !bytes.Equal(cert.RawSubject, cert.RawIssuer) {
			below++
		}
		if i+1 < len(path) && !certifies(path[i+1], cert) {
			return fmt.Errorf("%s was issued by %s, but the next certificate of the chain is %s",
				Describe(cert), describeIssuer(cert), Describe(path[i+1]))
		}
	}
	return nil
}

// certifies reports whether child is issued and signed by parent, and whether a
// verifier that goes by key identifiers would think so too.
func certifies(parent, child *x509.Certificate) bool {
	return bytes.Equal(parent.RawSubject, child.RawIssuer) &&
		(len(child.AuthorityKeyId) == 0 || bytes.Equal(child.AuthorityKeyId, parent.SubjectKeyId)) &&
		child.CheckSignatureFrom(parent) == nil
}

// isSelfSigned reports whether cert is signed with its own key (RFC 5280,
// Section 3.2).
func isSelfSigned(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawSubject, cert.RawIssuer) &&
		cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature) == nil
}

// Describe says which certificate cert is, for errors and warnings: its
// subject, its key identifier, and when it is valid.
func Describe(cert *x509.Certificate) string {
	return fmt.Sprintf("certificate %q (key id %s, valid from %s to %s)",
		cert.Subject, keyID(cert.SubjectKeyId), stamp(cert.NotBefore), stamp(cert.NotAfter))
}

func describeIssuer(cert *x509.Certificate) string {
	return fmt.Sprintf("%q (key id %s)", cert.Issuer, keyID(cert.AuthorityKeyId))
}

func describeAll(certs []*x509.Certificate) string {
	all := make([]string, len(certs))
	for i, cert := range certs {
		all[i] = Describe(cert)
	}
	return strings.Join(all, "; ")
}

func keyID(id []byte) string {
	if len(id) == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", id)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

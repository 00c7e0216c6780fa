package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Material is what an [Authority] is made of.
type Material struct {
	Signer crypto.Signer
	Chain  []*x509.Certificate // the issuer, whose key Signer is, then what leads to a root
	Roots  []*x509.Certificate // the trust bundle
}

// An Authority is a signing key, its certificate chain, the trust bundle and
// the profile. It is immutable, so one request that uses one Authority sees one
// CA; to rotate, make another one.
type Authority struct {
	signer  crypto.Signer
	issuer  *x509.Certificate
	chain   []*x509.Certificate // issuer first, roots never; empty if the issuer is a root
	root    *x509.Certificate   // where the path ends
	roots   []*x509.Certificate
	profile Profile

	// The certificates on the path, root included, that bound when it is valid.
	beginsLast, endsFirst *x509.Certificate

	chainPEM  []string
	bundlePEM string
}

// NewAuthority returns an Authority made of m, if leaves that it issues would be
// accepted by verifiers that know only its bundle. It does not infer that: it
// signs a leaf and verifies it.
//
// The chain is held to its order, each certificate issued by the next, because
// that is how peers receive it. Roots in it are dropped, as are duplicates
// anywhere.
func NewAuthority(now time.Time, m Material, p Profile) (*Authority, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	path, err := m.path(now)
	if err != nil {
		return nil, err
	}
	a := &Authority{signer: m.Signer, issuer: path[0], root: path[len(path)-1], profile: p}
	a.chain = path[:len(path)-1]
	a.roots = distinct(m.Roots)
	a.beginsLast = slices.MaxFunc(path, func(x, y *x509.Certificate) int { return x.NotBefore.Compare(y.NotBefore) })
	a.endsFirst = slices.MinFunc(path, func(x, y *x509.Certificate) int { return x.NotAfter.Compare(y.NotAfter) })
	for _, cert := range a.chain {
		a.chainPEM = append(a.chainPEM, encode(cert))
	}
	for _, cert := range a.roots {
		a.bundlePEM += encode(cert)
	}
	if err := a.probe(now); err != nil {
		return nil, fmt.Errorf("issuing a leaf to try, under %s: %w", Describe(a.issuer), err)
	}
	return a, nil
}

// check reports what is wrong with the material short of its path.
func (m Material) check() error {
	switch {
	case m.Signer == nil:
		return errors.New("there is no signing key")
	case len(m.Chain) == 0:
		return errors.New("there is no signing certificate")
	case len(m.Roots) == 0:
		return errors.New("there is no root certificate")
	}
	for _, root := range m.Roots {
		if err := CheckAnchor(root); err != nil {
			return fmt.Errorf("judging the trust bundle: %w", err)
		}
	}
	if pub, ok := m.Signer.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(m.Chain[0].PublicKey) {
		return fmt.Errorf("the signing key is not the key of %s", Describe(m.Chain[0]))
	}
	return nil
}

// path returns the signing path, issuer first and root last; the two may be one.
func (m Material) path(now time.Time) ([]*x509.Certificate, error) {
	path := m.intermediates()
	for _, cert := range path {
		if err := CheckCA(now, cert); err != nil {
			return nil, err
		}
	}
	root, err := m.root(now, path)
	if err != nil {
		return nil, err
	}
	path = append(path, root)
	return path, checkPath(path)
}

// intermediates returns the chain without duplicates and roots: peers have those
// already, and some refuse a chain that repeats one. An issuer that is a root is
// one only if the bundle says so.
func (m Material) intermediates() []*x509.Certificate {
	return slices.DeleteFunc(distinct(m.Chain), func(cert *x509.Certificate) bool {
		return isSelfSigned(cert) && (cert != m.Chain[0] || slices.ContainsFunc(m.Roots, cert.Equal))
	})
}

// root returns the root under which the intermediates are. Where a root has been
// renewed with its key and name, several will do: the one that lasts longest is
// the one that verifiers end up with.
func (m Material) root(now time.Time, intermediates []*x509.Certificate) (*x509.Certificate, error) {
	var found *x509.Certificate
	var errs []error
	for _, root := range m.Roots {
		if !m.isAbove(root, intermediates) {
			continue
		}
		err := CheckCA(now, root)
		if err == nil && !isSelfSigned(root) {
			// Verifiers that follow RFC 5280 to the letter of Section 6.1 would
			// accept any anchor; OpenSSL, as most people run it, does not.
			err = fmt.Errorf("%s is in the trust bundle but is not self-signed: it belongs into the chain, and its root into the bundle", Describe(root))
		}
		if err != nil {
			errs = append(errs, err)
		} else if found == nil || root.NotAfter.After(found.NotAfter) {
			found = root
		}
	}
	switch {
	case found != nil:
		return found, nil
	case len(errs) != 0:
		return nil, errors.Join(errs...)
	}
	top := intermediates[len(intermediates)-1]
	return nil, fmt.Errorf("%s does not chain to the trust bundle: it was issued by %s, and the bundle has %s",
		Describe(top), describeIssuer(top), describeAll(m.Roots))
}

// isAbove reports whether root comes next after the intermediates, or is itself
// the issuer.
func (m Material) isAbove(root *x509.Certificate, intermediates []*x509.Certificate) bool {
	if len(intermediates) == 0 {
		return root.Equal(m.Chain[0])
	}
	top := intermediates[len(intermediates)-1]
	return !isSelfSigned(top) && certifies(root, top)
}

// probe issues the shortest leaf there can be, and verifies it as a peer would,
// in both roles. It finds what no look at single certificates does, such as name
// constraints that exclude the trust domain.
func (a *Authority) probe(now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// No service account has an identity of this form.
	id, err := spiffeid.FromSegments(a.profile.TrustDomain, "probe")
	if err != nil {
		return err
	}
	issued, err := a.issue(now, id, key.Public(), a.profile.MinLeafLife)
	if err != nil {
		return err
	}
	if err := a.verify(now, issued.Leaf, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth); err != nil {
		return fmt.Errorf("verifying it as a peer would: %w", err)
	}
	return nil
}

// verify verifies leaf through the whole path, for each of the purposes.
func (a *Authority) verify(now time.Time, leaf *x509.Certificate, purposes ...x509.ExtKeyUsage) error {
	opts := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: now}
	opts.Roots.AddCert(a.root)
	for _, cert := range a.chain {
		opts.Intermediates.AddCert(cert)
	}
	for _, purpose := range purposes {
		opts.KeyUsages = []x509.ExtKeyUsage{purpose}
		if _, err := leaf.Verify(opts); err != nil {
			return err
		}
	}
	return nil
}

// Issuer returns the certificate under which leaves are signed.
func (a *Authority) Issuer() *x509.Certificate { return a.issuer }

// Root returns the certificate where the signing path ends.
func (a *Authority) Root() *x509.Certificate { return a.root }

// Roots returns the trust bundle.
func (a *Authority) Roots() []*x509.Certificate { return slices.Clone(a.roots) }

// BundlePEM returns the trust bundle in PEM.
func (a *Authority) BundlePEM() string { return a.bundlePEM }

// Profile returns what bounds the certificates.
func (a *Authority) Profile() Profile { return a.profile }

// NotAfter returns when the first certificate on the signing path expires, root
// included. No leaf is valid for longer.
func (a *Authority) NotAfter() time.Time { return a.endsFirst.NotAfter }

// Warnings returns what of the material does not keep the authority from working
// at now, but should be known to an operator.
func (a *Authority) Warnings(now time.Time) []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if left := a.NotAfter().Sub(now); left < a.profile.MaxLeafLife {
		warn("leaves will be shorter than %v: our clock says %s, and %s ends first on the signing path", a.profile.MaxLeafLife, stamp(now), Describe(a.endsFirst))
	}
	for _, root := range a.roots {
		if err := checkValidAt(now, root); err != nil {
			warn("the trust bundle: %v", err)
		}
		if !isSelfSigned(root) {
			warn("the trust bundle: %s is not self-signed, so not everybody takes it for a root", Describe(root))
		}
	}
	for _, cert := range append(slices.Clone(a.chain), a.root) {
		// Both are what Istio's own sample and make files leave out.
		if bc, _ := extension(cert, asn1.ObjectIdentifier{2, 5, 29, 19}); !bc.Critical { // RFC 5280, Section 4.2.1.9
			warn("%s has basicConstraints that are not critical: strict verifiers refuse it", Describe(cert))
		}
		if !isSelfSigned(cert) && len(cert.AuthorityKeyId) == 0 { // RFC 5280, Section 4.2.1.1
			warn("%s has no authority key identifier: strict verifiers refuse it", Describe(cert))
		}
	}
	return all
}

// distinct returns certs without repetitions, in their order.
func distinct(certs []*x509.Certificate) []*x509.Certificate {
	var out []*x509.Certificate
	for _, cert := range certs {
		if !slices.ContainsFunc(out, cert.Equal) {
			out = append(out, cert)
		}
	}
	return out
}

// encode returns cert in PEM, which ends with its only newline after the last
// dash: clients join elements of a reply.
func encode(cert *x509.Certificate) string {
	var b strings.Builder
	_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // a Builder takes everything
	return b.String()
}

package conformance

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const peers = "rustls-webpki, Go and OpenSSL, which peers verify with"

func certificateCases() []Case {
	return []Case{
		{ID: "certificate-01", Level: Must, Source: "RFC 5280, Section 4.1.2.1; " + peers, run: profile(version3),
			Says: "the certificate is of version 3"},
		{ID: "certificate-02", Level: Must, Source: "RFC 5280, Section 4.1.2.2; " + peers, run: profile(serial),
			Says: "its serial number is positive and has 20 octets at most"},
		{ID: "certificate-03", Level: Should, Source: "CA/Browser Forum Baseline Requirements, Section 7.1", run: randomSerials,
			Says: "serial numbers have 64 random bits at least"},
		{ID: "certificate-04", Level: Must, Source: "istio, ztunnel: a certificate for another key fails at the first connection", run: profile(rightKey),
			Says: "it is for the key that the CSR has"},
		{ID: "certificate-05", Level: Must, Source: "X509-SVID, Section 2; istio, ztunnel: equal byte for byte", run: profile(oneURI),
			Says: "it has exactly one URI, the identity, byte for byte"},
		{ID: "certificate-06", Level: Must, Source: "X509-SVID, Section 2: other names were not granted", run: profile(noOtherName),
			Says: "it has no DNS name, address, or name of any other kind"},
		{ID: "certificate-07", Level: Profile, Source: "X509-SVID, Section 2: the identity is in the SAN", run: profile(emptySubject),
			Says: "its subject is empty"},
		{ID: "certificate-08", Level: Should, Source: "RFC 5280, Section 4.1.2.6", run: profile(criticalNames),
			Says: "its names are critical if its subject is empty"},
		{ID: "certificate-09", Level: Must, Source: "X509-SVID, Section 4.3", run: profile(usages),
			Says: "its key may sign, and may sign neither certificates nor revocation lists"},
		{ID: "certificate-10", Level: Should, Source: "X509-SVID, Section 4.3", run: profile(criticalUsage),
			Says: "keyUsage is critical"},
		{ID: "certificate-11", Level: Should, Source: "RFC 8813, Section 3; RFC 3279, Section 2.3.1", run: usageOfKey,
			Says: "keyUsage has no bits but digitalSignature, and keyEncipherment if the key is RSA"},
		{ID: "certificate-12", Level: Must, Source: "X509-SVID, Section 4.4; istio, ztunnel is both client and server", run: profile(bothPurposes),
			Says: "it is for servers and for clients"},
		{ID: "certificate-13", Level: Should, Source: "X509-SVID, Section 4.4", run: profile(noOtherPurpose),
			Says: "it is for no other purpose"},
		{ID: "certificate-14", Level: Must, Source: "X509-SVID, Section 4.1", run: profile(noAuthority),
			Says: "it is no authority's"},
		{ID: "certificate-15", Level: Profile, Source: "istio: istiod says so, too", run: profile(saysNoAuthority),
			Says: "basicConstraints says so, and is critical"},
		{ID: "certificate-16", Level: Should, Source: "RFC 5280, Section 4.2.1.1; openssl/openssl#28391", run: profile(leafNamesKey),
			Says: "it names its issuer's key"},
		{ID: "certificate-17", Level: Must, Source: "RFC 5280, Section 4.2; " + peers, run: profile(extensions),
			Says: "it has no extension twice, and no critical one that clients do not know"},
		{ID: "certificate-18", Level: Must, Source: "RFC 5280, Section 4.1.1.2; istio/istio#27238", run: profile(fittingAlgorithm),
			Says: "it and its issuers are signed with an algorithm that fits the signer's key, and not with SHA-1 or MD5"},
		{ID: "certificate-19", Level: Must, Source: "RFC 5280, Section 4.1.1.2; " + peers, run: profile(sameAlgorithm),
			Says: "the algorithm that is signed is the one that it was signed with"},
		{ID: "certificate-20", Level: Must, Source: "RFC 5280, Section 4.1.2.5; " + peers, run: profile(exactTimes),
			Says: "its times have seconds and no fractions, and are in UTC"},
		{ID: "certificate-21", Level: Should, Source: "RFC 5280, Section 4.1.2.5", run: profile(timesByYear),
			Says: "its times are UTCTime until 2049, and GeneralizedTime after"},
		{ID: "certificate-22", Level: Should, Source: "RFC 5280, Section 4.1.2.8", run: profile(noUniqueID),
			Says: "it has no unique identifiers"},
		{ID: "certificate-23", Level: Must, Source: "RFC 5280, Sections 4.2.1.3 and 4.2.1.9; " + peers, run: profile(soundIssuers),
			Says: "its issuers are authorities that may sign certificates, and such long paths"},
		{ID: "certificate-24", Level: Should, Source: "RFC 5280, Sections 4.2.1.3 and 4.2.1.9", run: profile(criticalIssuers),
			Says: "basicConstraints and keyUsage of its issuers are critical"},
		{ID: "certificate-25", Level: Should, Source: "istio, ztunnel: a revocation list counts if its issuer may sign it", run: profile(revokingIssuers),
			Says: "its issuers may sign revocation lists"},
		{ID: "certificate-26", Level: Should, Source: "OpenSSL, -x509_strict; openssl/openssl#28391", run: openssl,
			Says: "openssl verify -x509_strict accepts it for both purposes"},
	}
}

// profile is a case about every certificate: one of another's identity, and one
// of the caller's own. Nothing but its elements has been judged.
func profile(check func(*certificate) error) func(*T) {
	return func(t *T) {
		for _, id := range []string{t.cart.id(), ""} {
			if err := check(t.opened(t.agent1, id)); err != nil {
				t.errorf("the certificate for %s: %v", orOwn(t.agent1, id), err)
			}
		}
	}
}

// opened asks until there is a certificate, and judges the elements of the reply
// only.
func (t *T) opened(c *caller, id string, options ...option) *certificate {
	cert, err := open(t.granted(c, id, options...))
	if err != nil {
		t.fatalf("the reply for %s: %v", orOwn(c, id), err)
	}
	cert.wanted = orOwn(c, id)
	return cert
}

func version3(c *certificate) error {
	if v := c.leaf.TBS.Version; v != 2 {
		return fmt.Errorf("its version is %d", v+1)
	}
	return nil
}

func serial(c *certificate) error {
	n := c.leaf.TBS.Serial
	switch {
	case n.Sign() <= 0:
		return fmt.Errorf("its serial number is %v", n)
	case n.BitLen() > 20*8-1: // the first bit is the sign
		return fmt.Errorf("its serial number has %d bits, of which 20 octets hold 159", n.BitLen())
	}
	return nil
}

// randomSerials counts the bits in which many serial numbers differ. A random
// bit is the same in all of them once in 32 thousand times.
func randomSerials(t *T) {
	const many, least = 16, 56
	serials := make([]*big.Int, many)
	for i := range serials {
		serials[i] = t.opened(t.agent1, t.cart.id()).leaf.TBS.Serial
	}
	differ := new(big.Int)
	for _, n := range serials[1:] {
		differ.Or(differ, new(big.Int).Xor(new(big.Int).Abs(serials[0]), new(big.Int).Abs(n)))
	}
	n := 0
	for _, word := range differ.Bits() {
		n += bits.OnesCount(uint(word))
	}
	t.note("%d serial numbers differ in %d bits", many, n)
	if n < least {
		t.errorf("%d serial numbers differ in %d bits only, such as %x and %x", many, n, serials[0], serials[1])
	}
}

func rightKey(c *certificate) error {
	want, err := x509.MarshalPKIXPublicKey(c.key.Public())
	if err == nil && !bytes.Equal(c.leaf.TBS.PublicKey.FullBytes, want) {
		err = errors.New("it is for another key")
	}
	return err
}

func oneURI(c *certificate) error {
	names, _, err := c.leaf.names()
	if err != nil {
		return err
	}
	var uris []string
	for _, n := range names {
		if n.tag == tagURI {
			uris = append(uris, n.value)
		}
	}
	if len(uris) != 1 || uris[0] != c.wanted {
		return fmt.Errorf("its URIs are %q", uris)
	}
	return nil
}

func noOtherName(c *certificate) error {
	names, _, err := c.leaf.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if n.tag != tagURI {
			return fmt.Errorf("it has the name %v", n)
		}
	}
	return nil
}

// hasSubject reports whether there is a name in the subject.
func (r *reading) hasSubject() bool { return len(r.TBS.Subject.Bytes) > 0 }

func emptySubject(c *certificate) error {
	if c.leaf.hasSubject() {
		return fmt.Errorf("its subject is %x", c.leaf.TBS.Subject.FullBytes)
	}
	return nil
}

func criticalNames(c *certificate) error {
	_, critical, err := c.leaf.names()
	if err == nil && !critical && !c.leaf.hasSubject() {
		err = errors.New("subjectAltName is not critical")
	}
	return err
}

func usages(c *certificate) error {
	bits, _, err := c.leaf.usage()
	switch {
	case err != nil:
		return err
	case bits.At(digitalSignature) == 0:
		return errors.New("keyUsage has no digitalSignature")
	case bits.At(keyCertSign) == 1:
		return errors.New("keyUsage has keyCertSign")
	case bits.At(cRLSign) == 1:
		return errors.New("keyUsage has cRLSign")
	}
	return nil
}

func criticalUsage(c *certificate) error {
	_, critical, err := c.leaf.usage()
	if err == nil && !critical {
		err = errors.New("keyUsage is not critical")
	}
	return err
}

func usageOfKey(t *T) {
	rsa := t.rsa(2048)
	for _, tt := range []struct {
		key     string
		options []option
		also    int // a bit beside digitalSignature
	}{
		{"an EC", nil, digitalSignature},
		{"an RSA", []option{t.newCSR(rsa, csrSpec{uri: []string{t.cart.id()}})}, keyEncipherment},
	} {
		bits, _, err := t.opened(t.agent1, t.cart.id(), tt.options...).leaf.usage()
		if err != nil {
			t.fatalf("%v", err)
		}
		for i := range bits.BitLength {
			if bits.At(i) == 1 && i != digitalSignature && i != tt.also {
				t.errorf("keyUsage of %s key has bit %d", tt.key, i)
			}
		}
	}
}

func bothPurposes(c *certificate) error {
	ids, err := c.leaf.purposes()
	for _, want := range []asn1.ObjectIdentifier{kp(serverAuth), kp(clientAuth)} {
		found := false
		for _, id := range ids {
			found = found || id.Equal(want)
		}
		if err == nil && !found {
			err = fmt.Errorf("extKeyUsage has %v, without %v", ids, want)
		}
	}
	return err
}

func noOtherPurpose(c *certificate) error {
	ids, err := c.leaf.purposes()
	for _, id := range ids {
		if !id.Equal(kp(serverAuth)) && !id.Equal(kp(clientAuth)) {
			err = fmt.Errorf("extKeyUsage has %v", id)
		}
	}
	return err
}

func noAuthority(c *certificate) error {
	if _, n := c.leaf.extension(ce(basicConstraints)); n == 0 {
		return nil
	}
	ca, _, err := c.leaf.constraints()
	if err == nil && ca {
		err = errors.New("basicConstraints makes it an authority")
	}
	return err
}

func saysNoAuthority(c *certificate) error {
	_, critical, err := c.leaf.constraints()
	if err == nil && !critical {
		err = errors.New("basicConstraints is not critical")
	}
	return err
}

func leafNamesKey(c *certificate) error {
	issuers, err := c.issuers()
	if err != nil {
		return err
	}
	return namesKey(c.leaf, issuers[0])
}

// extensions checks those that RFC 5280, Section 4.2 has all clients know.
func extensions(c *certificate) error {
	known := map[string]bool{}
	for _, id := range []asn1.ObjectIdentifier{ce(keyUsage), ce(subjectAltName), ce(basicConstraints), ce(extKeyUsage)} {
		known[id.String()] = true
	}
	seen := map[string]bool{}
	for _, e := range c.leaf.TBS.Extensions {
		id := e.Id.String()
		if e.Critical && !known[id] {
			return fmt.Errorf("extension %v is critical", id)
		}
		if seen[id] {
			return fmt.Errorf("extension %v is there twice", id)
		}
		seen[id] = true
	}
	return nil
}

func fittingAlgorithm(c *certificate) error {
	all := append([]*reading{c.leaf}, c.path...)
	for i, r := range all {
		a, err := r.signedWith()
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		signer := c.roots[0]
		if i+1 < len(all) {
			signer = all[i+1]
		} else if issuers, err := c.issuers(); err == nil {
			signer = issuers[i]
		}
		kind, err := signer.keyKind()
		if err != nil {
			return fmt.Errorf("the issuer of element %d: %w", i, err)
		}
		if !kind.Equal(a.key) {
			return fmt.Errorf("element %d is signed with %v, but its issuer's key is of kind %v", i, a.name, kind)
		}
	}
	return nil
}

// sameAlgorithm compares parameters, too: RFC 4055 and RFC 5758 fix them.
func sameAlgorithm(c *certificate) error {
	for i, r := range append([]*reading{c.leaf}, c.path...) {
		inner, outer := r.TBS.Algorithm, r.Algorithm
		if !inner.Algorithm.Equal(outer.Algorithm) || !bytes.Equal(inner.Parameters.FullBytes, outer.Parameters.FullBytes) {
			return fmt.Errorf("element %d: %v is signed, with %v", i, inner, outer)
		}
	}
	return nil
}

// times returns NotBefore and NotAfter as they are encoded.
func (r *reading) times() (all [2]asn1.RawValue, err error) {
	var v struct{ NotBefore, NotAfter asn1.RawValue }
	_, err = asn1.Unmarshal(r.TBS.Validity.Raw, &v)
	return [2]asn1.RawValue{v.NotBefore, v.NotAfter}, err
}

func exactTimes(c *certificate) error {
	times, err := c.leaf.times()
	form := map[int]*regexp.Regexp{
		asn1.TagUTCTime:         regexp.MustCompile(`^[0-9]{12}Z$`),
		asn1.TagGeneralizedTime: regexp.MustCompile(`^[0-9]{14}Z$`),
	}
	for _, v := range times {
		if f := form[v.Tag]; err == nil && (f == nil || !f.Match(v.Bytes)) {
			err = fmt.Errorf("a time is written %q", v.Bytes)
		}
	}
	return err
}

func timesByYear(c *certificate) error {
	times, err := c.leaf.times()
	v := c.leaf.TBS.Validity
	for i, year := range []int{v.NotBefore.Year(), v.NotAfter.Year()} {
		want := asn1.TagUTCTime
		if year >= 2050 {
			want = asn1.TagGeneralizedTime
		}
		if err == nil && times[i].Tag != want {
			err = fmt.Errorf("a time of %d is written %q", year, times[i].Bytes)
		}
	}
	return err
}

func noUniqueID(c *certificate) error {
	if c.leaf.TBS.IssuerUID.BitLength > 0 || c.leaf.TBS.SubjectUID.BitLength > 0 {
		return errors.New("it has a unique identifier")
	}
	return nil
}

// soundIssuers lets the root be without keyUsage, as old ones are: of a root,
// name and key count (RFC 5280, Section 6.1).
func soundIssuers(c *certificate) error {
	issuers, err := c.issuers()
	if err != nil {
		return err
	}
	for i, r := range issuers {
		ca, pathLen, _, err := r.authority()
		if err != nil {
			return fmt.Errorf("issuer %d: %w", i, err)
		}
		bits, _, err := r.usage()
		_, n := r.extension(ce(keyUsage))
		bare := n == 0 && i == len(issuers)-1
		switch {
		case err != nil && !bare:
			return fmt.Errorf("issuer %d: %w", i, err)
		case !ca:
			return fmt.Errorf("issuer %d is no authority", i)
		case bits.At(keyCertSign) == 0 && !bare:
			return fmt.Errorf("issuer %d may not sign certificates", i)
		case pathLen >= 0 && pathLen < i:
			return fmt.Errorf("issuer %d allows %d issuers below it, and there are %d", i, pathLen, i)
		}
	}
	return nil
}

func criticalIssuers(c *certificate) error {
	issuers, err := c.issuers()
	if err != nil {
		return err
	}
	for i, r := range issuers {
		_, critical, err := r.constraints()
		if err != nil {
			return fmt.Errorf("issuer %d: %w", i, err)
		}
		_, also, err := r.usage()
		if err != nil {
			return fmt.Errorf("issuer %d: %w", i, err)
		}
		if !critical || !also {
			return fmt.Errorf("issuer %d: basicConstraints is critical: %v, keyUsage: %v", i, critical, also)
		}
	}
	return nil
}

func revokingIssuers(c *certificate) error {
	issuers, err := c.issuers()
	if err != nil {
		return err
	}
	for i, r := range issuers {
		bits, _, err := r.usage()
		if err == nil && bits.At(cRLSign) == 0 {
			err = errors.New("keyUsage has no cRLSign")
		}
		if err != nil {
			return fmt.Errorf("issuer %d: %w", i, err)
		}
	}
	return nil
}

func openssl(t *T) {
	program, err := exec.LookPath("openssl")
	t.check("looking for openssl", err)
	c := t.opened(t.agent1, t.cart.id())
	dir, err := os.MkdirTemp("", "conformance")
	t.check("making a directory", err)
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary one
	args := []string{"verify", "-x509_strict"}
	for _, f := range []struct {
		flag  string
		certs []*reading
	}{{"-CAfile", c.roots}, {"-untrusted", c.path}, {"", []*reading{c.leaf}}} {
		file := filepath.Join(dir, "certs"+f.flag+".pem")
		var text []byte
		for _, r := range f.certs {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.der})...)
		}
		t.check("writing certificates", os.WriteFile(file, text, 0o600))
		switch {
		case f.flag == "":
			args = append(args, file)
		case len(f.certs) > 0:
			args = append(args, f.flag, file)
		}
	}
	for _, purpose := range []string{"sslserver", "sslclient"} {
		purposed := append([]string{args[0], "-purpose", purpose}, args[1:]...)
		out, err := exec.CommandContext(t.ctx, program, purposed...).CombinedOutput() //nolint:gosec // a program that verifies, and files of ours
		if err != nil {
			t.errorf("for %s: %v: %s", purpose, err, strings.TrimSpace(string(out)))
		}
	}
}

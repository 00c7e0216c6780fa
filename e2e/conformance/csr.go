package conformance

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

const (
	notCopied = "smallstep/cli#317; istio: the CSR gives the key, and the authority the rest"
	possible  = "RFC 2986, Section 3: the signature proves possession of the private key"
	framing   = "RFC 7468, Section 7"

	// marker is in what must not get into a certificate.
	marker = "unwanted.conformance.test"
)

func csrCases() []Case {
	return []Case{
		{ID: "csr-01", Level: Must, Source: notCopied, run: unwanted(subjects, unmarked),
			Says: "a subject in the CSR is not in the certificate"},
		{ID: "csr-02", Level: Must, Source: notCopied, run: unwanted(otherNames, unmarked),
			Says: "DNS names, addresses and other names in the CSR are not in the certificate"},
		{ID: "csr-03", Level: Must, Source: notCopied, run: unwanted(authorityWanted, noAuthority, usages),
			Says: "a CSR that asks to be an authority does not make one"},
		{ID: "csr-04", Level: Must, Source: notCopied, run: unwanted(extensionsWanted, noOtherPurpose, noForeignExtension),
			Says: "purposes, name constraints and unknown extensions in the CSR are not in the certificate"},
		{ID: "csr-05", Level: Should, Source: "cloudflare/cfssl#115; golang/go#11897", run: attributes,
			Says: "a CSR with a challenge password, as OpenSSL asks for one, is as good as any, and the password is not in the certificate"},
		{ID: "csr-06", Level: Must, Source: "istio/istio#56191; istio/ztunnel#1431", run: func(t *T) {
			key := t.key(newKey())
			t.issued(t.agent1, t.cart.id(), t.newCSR(key, csrSpec{uri: []string{t.cart.id()}, notCritical: true}))
		}, Says: "the names in the CSR need not be critical"},
		{ID: "csr-07", Level: Profile, Source: "istio/istio#11078", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), withCSR(t.plainCSR()))
		}, Says: "the CSR need not name anything"},
		{ID: "csr-08", Level: Must, Source: ambient, run: unwanted(contradictions),
			Says: "an identity in the CSR that was not granted is not in the certificate"},
		{ID: "csr-09", Level: Profile, Source: "cert-manager/istio-csr: the names must be those that were granted", run: refusals(contradictions),
			Says: "a CSR with an identity that was not granted is refused"},
		{ID: "csr-10", Level: Must, Source: "istio, ztunnel: EC keys on P-256; istio-agent: 2048-bit RSA keys", run: func(t *T) {
			t.issuedFor(t.key(newKey()))
			t.issuedFor(t.rsa(2048))
		}, Says: "keys as clients make them are certified"},
		{ID: "csr-11", Level: Should, Source: "istio-agent: ECC_CURVE, WORKLOAD_RSA_KEY_SIZE", run: func(t *T) {
			t.issuedFor(t.key(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)))
			t.issuedFor(t.rsa(3072))
		}, Says: "keys as clients can be told to make them are certified: P-384, and RSA of 3072 bits"},
		{ID: "csr-12", Level: Should, Source: "rustls-webpki takes no RSA key under 2048 bits", run: refusals(func(t *T) []option {
			return []option{t.named("a 1024-bit RSA key", t.rsa(1024))}
		}), Says: "a 1024-bit RSA key is refused"},
		{ID: "csr-13", Level: Should, Source: "rustls-webpki takes no key on P-224", run: refusals(func(t *T) []option {
			return []option{t.named("a key on P-224", t.key(ecdsa.GenerateKey(elliptic.P224(), rand.Reader)))}
		}), Says: "a key on P-224 is refused"},
		{ID: "csr-14", Level: Should, Source: "letsencrypt/boulder#596", run: refusals(func(t *T) []option {
			return []option{t.named("a 16384-bit RSA key", t.rsa(16384))}
		}), Says: "a 16384-bit RSA key is refused, and soon"},
		{ID: "csr-15", Level: Profile, Source: "istio/istio#27238: not all clients can verify it", run: refusals(func(t *T) []option {
			_, key, err := ed25519.GenerateKey(rand.Reader)
			return []option{t.named("an Ed25519 key", t.key(key, err))}
		}), Says: "an Ed25519 key is refused, unless it was chosen to allow them"},
		{ID: "csr-16", Level: Must, Source: possible, run: refusals(unproven),
			Says: "a CSR that its key has not signed is refused"},
		{ID: "csr-17", Level: Should, Source: possible + "; with exponent 1 everybody can sign", run: refusals(everybodysKey),
			Says: "an RSA key with exponent 1 is refused"},
		{ID: "csr-18", Level: Must, Source: "istio, ztunnel waits for an answer for ever", run: refusals(nonsense),
			Says: "what is no CSR is refused, and soon"},
		{ID: "csr-19", Level: Profile, Source: framing, run: refusals(misframed),
			Says: "a CSR is one PEM block of its own type, with nothing before or after it"},
		{ID: "csr-20", Level: Should, Source: "a CSR of ztunnel has half a KiB, and whoever reads more has to pay for it", run: refusals(ofSize(1 << 20)),
			Says: "a CSR of 1 MiB is refused, and soon"},
		{ID: "csr-21", Level: Profile, Source: "a CSR for a 4096-bit RSA key has 1.7 KiB", run: refusals(ofSize(64 << 10)),
			Says: "a CSR of 64 KiB is refused"},
	}
}

// refusals is a case about CSRs that are refused, by an authority that does not
// refuse all.
func refusals(bad func(*T) []option) func(*T) {
	return func(t *T) {
		for _, o := range bad(t) {
			r := &request{}
			o(r)
			if a := t.answered(t.agent1, t.cart.id(), o); a.issued() {
				t.errorf("%s: a certificate was issued", r.what)
			} else {
				t.note("%s: %v: %s", r.what, a.code, a.message)
			}
		}
		t.issued(t.agent1, t.cart.id())
	}
}

// unwanted is a case about CSRs that ask for what nobody gets. They may be
// refused. If they are not, the certificate is judged as any, and by the checks.
func unwanted(greedy func(*T) []option, checks ...func(*certificate) error) func(*T) {
	return func(t *T) {
		for _, o := range greedy(t) {
			r := &request{}
			o(r)
			a := t.answered(t.agent1, t.cart.id(), o)
			if !a.issued() {
				t.note("%s: %v: %s", r.what, a.code, a.message)
				continue
			}
			c, err := judged(a, t.cart.id())
			for i := 0; err == nil && i < len(checks); i++ {
				err = checks[i](c)
			}
			if err != nil {
				t.errorf("%s: %v", r.what, err)
			}
		}
		t.issued(t.agent1, t.cart.id())
	}
}

// key is for a key that the suite made, if it did.
func (t *T) key(k crypto.Signer, err error) crypto.Signer {
	t.check("making a key", err)
	return k
}

// newCSR is for a new CSR.
func (t *T) newCSR(key crypto.Signer, spec csrSpec) option {
	text, err := newCSR(key, spec)
	t.check("making a CSR", err)
	return func(r *request) { r.csr, r.key = text, key }
}

// named is for a CSR that is good but for its key.
func (t *T) named(what string, key crypto.Signer) option {
	return called(what, t.newCSR(key, csrSpec{uri: []string{t.cart.id()}}))
}

// called says what an option is about.
func called(what string, o option) option {
	return func(r *request) {
		o(r)
		r.what = what
	}
}

func (t *T) issuedFor(key crypto.Signer) {
	t.issued(t.agent1, t.cart.id(), t.newCSR(key, csrSpec{uri: []string{t.cart.id()}}))
}

func unmarked(c *certificate) error {
	if bytes.Contains(c.leaf.der, []byte(marker)) {
		return errors.New("it is in the certificate")
	}
	return nil
}

func subjects(t *T) (all []option) {
	for _, s := range []pkix.Name{{CommonName: marker}, {Organization: []string{marker}}, {CommonName: marker, OrganizationalUnit: []string{marker}}} {
		all = append(all, called("the subject "+s.String(), t.newCSR(t.key(newKey()), csrSpec{subject: s, uri: []string{t.cart.id()}})))
	}
	return all
}

// otherNames asks for each kind of name beside the identity.
func otherNames(t *T) (all []option) {
	for _, n := range []generalName{
		{1, "somebody@" + marker}, {2, marker}, {7, "\xc0\x00\x02\x4d"}, {8, "\x2a\x03\x04"}, {6, "https://" + marker},
	} {
		names := []asn1.RawValue{
			{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(t.cart.id())},
			{Class: asn1.ClassContextSpecific, Tag: n.tag, Bytes: []byte(n.value)},
		}
		der, err := asn1.Marshal(names)
		t.check("making names", err)
		san := pkix.Extension{Id: ce(subjectAltName), Critical: true, Value: der}
		all = append(all, called("the name "+n.String(), t.newCSR(t.key(newKey()), csrSpec{extensions: []pkix.Extension{san}})))
	}
	return all
}

// asking is for a CSR with the identity and an extension.
func (t *T) asking(what string, id asn1.ObjectIdentifier, value any) option {
	der, err := asn1.Marshal(value)
	t.check("making an extension", err)
	e := pkix.Extension{Id: id, Critical: true, Value: der}
	return called(what, t.newCSR(t.key(newKey()), csrSpec{uri: []string{t.cart.id()}, extensions: []pkix.Extension{e}}))
}

func authorityWanted(t *T) []option {
	return []option{
		t.asking("basicConstraints of an authority", ce(basicConstraints), struct{ CA bool }{true}),
		t.asking("keyUsage of an authority", ce(keyUsage), asn1.BitString{Bytes: []byte{0x86}, BitLength: 7}),
	}
}

func oidNameConstraints() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, 30} }
func oidUnknown() asn1.ObjectIdentifier         { return asn1.ObjectIdentifier{1, 2, 3, 4} }

func extensionsWanted(t *T) []option {
	codeSigning := asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 3}
	return []option{
		t.asking("the purpose of code signing", ce(extKeyUsage), []asn1.ObjectIdentifier{codeSigning}),
		t.asking("name constraints", oidNameConstraints(), []asn1.RawValue{}),
		t.asking("an unknown critical extension", oidUnknown(), marker),
	}
}

func noForeignExtension(c *certificate) error {
	for _, id := range []asn1.ObjectIdentifier{oidNameConstraints(), oidUnknown()} {
		if _, n := c.leaf.extension(id); n > 0 {
			return fmt.Errorf("it has extension %v", id)
		}
	}
	return nil
}

func contradictions(t *T) (all []option) {
	for _, ids := range [][]string{
		{t.pay.id()},
		{t.cart.id(), t.pay.id()},
		{t.pay.id(), t.cart.id()},
		{strings.Replace(t.cart.id(), t.TrustDomain, "other.test", 1)},
	} {
		all = append(all, called("a CSR for "+strings.Join(ids, " and "), t.newCSR(t.key(newKey()), csrSpec{uri: ids})))
	}
	return all
}

// text is for a CSR as it is.
func text(what, csr string) option { return called(what, withCSR(csr)) }

// handmade is for a CSR made without crypto/x509.
func (t *T) handmade(what string, d draft) option {
	d.uri = t.cart.id()
	csr, err := d.sign()
	t.check("making a CSR", err)
	return called(what, func(r *request) { r.csr, r.key = csr, d.key })
}

func attributes(t *T) {
	var all []asn1.RawValue
	for _, oid := range []asn1.ObjectIdentifier{{1, 2, 840, 113549, 1, 9, 7}, {1, 2, 840, 113549, 1, 9, 2}} {
		der, err := asn1.Marshal(struct {
			ID     asn1.ObjectIdentifier
			Values []string `asn1:"set"`
		}{oid, []string{"password." + marker}})
		t.check("making an attribute", err)
		all = append(all, asn1.RawValue{FullBytes: der})
	}
	if err := unmarked(t.issued(t.agent1, t.cart.id(), t.handmade("", draft{key: t.key(newKey()), attributes: all}))); err != nil {
		t.errorf("a challenge password: %v", err)
	}
}

func unproven(t *T) []option {
	mine, other := t.key(newKey()), t.key(newKey())
	return []option{
		t.handmade("a signature by another key", draft{key: mine, signer: other}),
		t.handmade("no signature", draft{key: mine, signer: fixed{mine.Public(), nil}}),
		t.handmade("a signature of other data", draft{key: mine, digest: make([]byte, 32)}),
	}
}

func everybodysKey(t *T) []option {
	public := t.rsa(2048).Public()
	key, err := exponentOne(public)
	t.check("making a key", err)
	return []option{t.handmade("an RSA key with exponent 1", draft{key: key})}
}

// goodCSR is the text of a CSR as ztunnel's.
func (t *T) goodCSR() string {
	csr, err := newCSR(t.key(newKey()), csrSpec{uri: []string{t.cart.id()}})
	t.check("making a CSR", err)
	return csr
}

func nonsense(t *T) []option {
	good := t.goodCSR()
	block, _ := pem.Decode([]byte(good))
	return []option{
		text("nothing", ""),
		text("one letter", "x"),
		text("half a PEM block", good[:len(good)/2]),
		text("a block with half a CSR", armoured(block.Type, block.Bytes[:len(block.Bytes)/2])),
		text("a block with nothing", armoured(block.Type, nil)),
		text("a block with other bytes", armoured(block.Type, bytes.Repeat([]byte{0x30, 0x82}, 100))),
	}
}

func armoured(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func misframed(t *T) []option {
	good := t.goodCSR()
	block, _ := pem.Decode([]byte(good))
	return []option{
		text("two CSRs", good+t.goodCSR()),
		text("the block of a certificate", armoured("CERTIFICATE", block.Bytes)),
		text("text after the block", good+"conformance\n"),
		text("text before the block", "conformance\n"+good),
		text("bytes after the CSR in the block", armoured(block.Type, append(bytes.Clone(block.Bytes), 5, 0))),
		text("DER in base64, without a block", base64.StdEncoding.EncodeToString(block.Bytes)),
	}
}

// ofSize is for a CSR that is good, and of a size.
func ofSize(size int) func(*T) []option {
	return func(t *T) []option {
		e := pkix.Extension{Id: oidUnknown(), Value: make([]byte, size*3/4)} // base64
		return []option{called(fmt.Sprintf("a CSR of %d bytes", size), t.newCSR(t.key(newKey()), csrSpec{uri: []string{t.cart.id()}, extensions: []pkix.Extension{e}}))}
	}
}

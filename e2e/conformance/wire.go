package conformance

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	ztunnelReply = "istio, ztunnel: the reply is a leaf, an issuer in each element, and all roots in the last"
	agentReply   = "istio, istio-agent: the last element is the root of trust, all elements joined are the chain"
)

// Cases about several issuers or roots are not MUST, because they cannot be run
// with an authority that has one.
func wireCases() []Case {
	return []Case{
		{ID: "wire-01", Level: Must, Source: ztunnelReply + "; istio-agent refuses a reply of one element", run: reply(twoElements),
			Says: "a reply has two elements at least"},
		{ID: "wire-02", Level: Must, Source: "istio/ztunnel#1061; istio/istio#46995", run: reply(oneEach),
			Says: "every element but the last holds one certificate: node proxies read no more of it"},
		{ID: "wire-03", Level: Must, Source: ztunnelReply + "; " + agentReply, run: reply(authoritiesLast),
			Says: "the last element holds certificates of authorities, one or more, and nothing else"},
		{ID: "wire-04", Level: Should, Source: "OpenSSL ends no path at an issuer, unless it is told to", run: reply(rootsLast),
			Says: "every certificate in the last element has signed itself"},
		{ID: "wire-05", Level: Should, Source: "istio/istio#39001; istio/istio#43654", run: reply(noRootBefore),
			Says: "no root is in any element but the last: clients present what is there"},
		{ID: "wire-06", Level: Should, Source: "istio/istio#39001", run: reply(noneTwice),
			Says: "no certificate is in the reply twice"},
		{ID: "wire-07", Level: Should, Source: "istio/istio#24609; istio/istio#22530", run: reply(newlines),
			Says: "every element ends with a newline, so that elements can be joined"},
		{ID: "wire-08", Level: Profile, Source: "RFC 7468, Section 2", run: reply(plainPEM),
			Says: "every element is PEM as everybody writes it, with no text around it, and ends with one newline"},
		{ID: "wire-09", Level: Must, Source: "RFC 5246, Section 7.4.2; " + ztunnelReply, run: profile(climbs),
			Says: "each certificate of the reply is signed by the next, and the last one by a root in the last element"},
		{ID: "wire-10", Level: Should, Source: "RFC 5280, Section 4.2.1.1", run: profile(sameKeys),
			Says: "all certificates on the path are of one set: each names the next one's key"},
		{ID: "wire-11", Level: Should, Source: "istio/ztunnel#1061", run: severalIssuers,
			Says: "if there are several issuers between leaf and root, each has an element of its own"},
		{ID: "wire-12", Level: Should, Source: "istio/istio#55793; istio/ztunnel#1510", run: severalRoots,
			Says: "if there are several roots, all are in the last element"},
		{ID: "wire-13", Level: Must, Source: "istio, istio-agent: a 2048-bit RSA key, an empty organization, and CertSigner in every request", run: asIstioAgent,
			Says: "a workload that asks as istio-agent does has its own identity"},
		{ID: "wire-14", Level: Should, Source: "istio: a client may send what this authority does not know", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), withMetadata("Conformance", structpb.NewNumberValue(1)), withMetadata("", structpb.NewBoolValue(true)))
		}, Says: "metadata that it does not know is ignored"},
		{ID: "wire-15", Level: Should, Source: "Protocol Buffers: unknown fields", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), func(r *request) {
				for _, field := range []protowire.Number{2, 1234} { // the first was used once
					r.unknown = protowire.AppendTag(r.unknown, field, protowire.BytesType)
					r.unknown = protowire.AppendString(r.unknown, "conformance")
				}
			})
		}, Says: "fields that it does not know are ignored"},
		{ID: "wire-16", Level: Should, Source: "RFC 5280, Section 4.1.2.2; a renewal must renew", run: repeated,
			Says: "the same request again gives another certificate, with another serial number"},
	}
}

// reply is a case about the elements of every reply: to one who asks for
// another's identity, and to one who asks for its own.
func reply(check func(elements []string) error) func(*T) {
	return func(t *T) {
		for _, id := range []string{t.cart.id(), ""} {
			if err := check(t.granted(t.agent1, id).chain); err != nil {
				t.errorf("the reply for %s: %v", orOwn(t.agent1, id), err)
			}
		}
	}
}

func twoElements(elements []string) error {
	if len(elements) < 2 {
		return fmt.Errorf("it has %d", len(elements))
	}
	return nil
}

// readReply reads all certificates of each element.
func readReply(elements []string) (all [][]*reading, err error) {
	if err := twoElements(elements); err != nil {
		return nil, err
	}
	for i, e := range elements {
		certs, err := readElement(e)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		all = append(all, certs)
	}
	return all, nil
}

func oneEach(elements []string) error {
	all, err := readReply(elements)
	if err != nil {
		return err
	}
	for i, certs := range all[:len(all)-1] {
		if len(certs) != 1 {
			return fmt.Errorf("element %d of %d holds %d certificates", i, len(all), len(certs))
		}
	}
	return nil
}

// last returns the certificates of the last element.
func last(elements []string) ([]*reading, error) {
	all, err := readReply(elements)
	if err != nil {
		return nil, err
	}
	roots := all[len(all)-1]
	if len(roots) == 0 {
		return nil, errors.New("the last element holds no certificate")
	}
	return roots, nil
}

func authoritiesLast(elements []string) error {
	roots, err := last(elements)
	if err != nil {
		return err
	}
	for i, r := range roots {
		if ca, _, err := r.constraints(); err != nil {
			return fmt.Errorf("certificate %d of the last element: %w", i, err)
		} else if !ca {
			return fmt.Errorf("certificate %d of the last element is no authority's", i)
		}
	}
	return nil
}

func rootsLast(elements []string) error {
	roots, err := last(elements)
	if err != nil {
		return err
	}
	for i, r := range roots {
		if err := r.signedBy(r); err != nil {
			return fmt.Errorf("certificate %d of the last element has not signed itself: %w", i, err)
		}
	}
	return nil
}

func noRootBefore(elements []string) error {
	all, err := readReply(elements)
	if err != nil {
		return err
	}
	for i, certs := range all[:len(all)-1] {
		if slices.ContainsFunc(certs, (*reading).selfSigned) {
			return fmt.Errorf("element %d of %d holds a root", i, len(all))
		}
	}
	return nil
}

func noneTwice(elements []string) error {
	all, err := readReply(elements)
	if err != nil {
		return err
	}
	where := map[string]int{}
	for i, certs := range all {
		for _, r := range certs {
			if before, ok := where[string(r.der)]; ok {
				return fmt.Errorf("elements %d and %d hold the same certificate", before, i)
			}
			where[string(r.der)] = i
		}
	}
	return nil
}

func newlines(elements []string) error {
	for i, e := range elements {
		if !strings.HasSuffix(e, "\n") {
			return fmt.Errorf("element %d ends without a newline", i)
		}
	}
	return nil
}

func plainPEM(elements []string) error {
	for i, e := range elements {
		var again []byte
		for block, rest := pem.Decode([]byte(e)); block != nil; block, rest = pem.Decode(rest) {
			again = append(again, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
		if !bytes.Equal(again, []byte(e)) {
			return fmt.Errorf("element %d is not what its certificates look like when they are written again", i)
		}
	}
	return nil
}

func climbs(c *certificate) error {
	_, err := c.climb()
	return err
}

// sameKeys checks that each certificate on the path names the key of the next. A
// root need not: RFC 5280, Section 4.2.1.1.
func sameKeys(c *certificate) error {
	all, err := c.climb()
	if err != nil {
		return err
	}
	for i, issuer := range all[1:] {
		if all[i].selfSigned() {
			continue
		}
		if err := namesKey(all[i], issuer); err != nil {
			return fmt.Errorf("certificate %d of the path: %w", i, err)
		}
	}
	return nil
}

// namesKey checks that an authority key identifier is the issuer's subject key
// identifier.
func namesKey(r, issuer *reading) error {
	want, err := issuer.subjectKeyID()
	if err != nil {
		return err
	}
	if len(want) == 0 {
		return errors.New("its issuer has no subject key identifier")
	}
	got, err := r.authorityKeyID()
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("its authority key identifier is %x, but its issuer's key is %x", got, want)
	}
	return err
}

func severalIssuers(t *T) {
	all, err := readReply(t.granted(t.agent1, t.cart.id()).chain)
	if err != nil {
		t.fatalf("%v", err)
	}
	issuers, most := -1, 0 // the leaf is none
	for _, certs := range all[:len(all)-1] {
		issuers, most = issuers+len(certs), max(most, len(certs))
	}
	switch {
	case issuers < 2:
		t.cannot("the authority has %d issuers below its root", issuers)
	case most > 1:
		t.errorf("an element holds %d certificates", most)
	}
}

func severalRoots(t *T) {
	all, err := readReply(t.granted(t.agent1, t.cart.id()).chain)
	if err != nil {
		t.fatalf("%v", err)
	}
	roots := map[string]bool{}
	for _, r := range slices.Concat(all...) {
		if r.selfSigned() {
			roots[string(r.der)] = true
		}
	}
	if len(roots) < 2 {
		t.cannot("the authority has one root")
	}
	for _, r := range all[len(all)-1] {
		delete(roots, string(r.der))
	}
	if len(roots) > 0 {
		t.errorf("%d roots are not in the last element", len(roots))
	}
}

func asIstioAgent(t *T) {
	c := t.caller(t.cartPod)
	key := t.rsa(2048)
	t.issued(c, "", t.newCSR(key, csrSpec{subject: pkix.Name{Organization: []string{""}}, uri: []string{c.own}}),
		withMetadata("CertSigner", structpb.NewStringValue("")))
}

func repeated(t *T) {
	r := t.request(t.agent1, t.cart.id())
	var last *certificate
	for range 2 {
		a := t.conn.send(t.ctx, r)
		if !a.issued() {
			t.fatalf("refused: %v: %s", a.code, a.message)
		}
		c := t.judge(a, t.cart.id())
		if last != nil && last.leaf.TBS.Serial.Cmp(c.leaf.TBS.Serial) == 0 {
			t.errorf("two certificates have the serial number %x", c.leaf.TBS.Serial)
		}
		last = c
	}
}

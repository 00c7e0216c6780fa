package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCertificatesAreAsDocumented reads a certificate of each kind with a reader
// of its own, and compares every cell of the table in docs/certificate-profile.md
// with it.
func TestCertificatesAreAsDocumented(t *testing.T) {
	page := readFile(t, "../../docs/certificate-profile.md")
	now := time.Now()
	made := oneOfEachKind(t)
	columns := []string{"leaf", "serving certificate", "issuer", "root"}
	issuer, root := readDER(t, made["issuer"]), readDER(t, made["root"])
	above := []*certificate{issuer, issuer, root, root}
	got, want := make(map[string]string), make(map[string]string)
	for i, kind := range columns {
		for field, text := range describeDER(t, now, readDER(t, made[kind]), above[i], []string{"the issuer's", "the issuer's", "the root's", "the root's"}[i]) {
			got[field+" of the "+kind] = text
		}
	}
	for _, row := range tableRows(page, "field") {
		if len(row) != 7 || row[5] == "" || len(codeLinks(row[6])) == 0 {
			t.Errorf("%s has %d columns, clause %q, and is held by %q", row[0], len(row), row[5], row[6:])
			continue
		}
		for i, kind := range columns {
			want[row[0]+" of the "+kind] = row[1+i]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificates (-page +made):\n%s", diff)
	}
	for _, row := range tableRows(page, "what") {
		if len(row) != 4 || !strings.HasPrefix(row[2], "RFC ") || len(codeLinks(row[3])) == 0 {
			t.Errorf("the demand %q has clause %q, and is held by %q", row[0], row[2], row[3:])
		}
	}
}

// oneOfEachKind returns the DER of what the demonstration's server has, and of a
// leaf that it issues.
func oneOfEachKind(t *testing.T) map[string][]byte {
	t.Helper()
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	reply, err := replier(t, d)("spiffe://cluster.local/ns/shop/sa/cart")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	return map[string][]byte{
		"leaf": reply.chain[0].Raw, "serving certificate": d.service.own.Leaf().Raw, "issuer": reply.chain[1].Raw, "root": reply.roots[0].Raw,
	}
}

// A certificate is RFC 5280, Section 4.1, in the words of encoding/asn1.
type certificate struct {
	TBS struct {
		Version      int `asn1:"optional,explicit,default:0,tag:0"`
		SerialNumber *big.Int
		Signature    pkix.AlgorithmIdentifier
		Issuer       asn1.RawValue
		Validity     struct{ NotBefore, NotAfter time.Time }
		Subject      asn1.RawValue
		Key          struct {
			Algorithm pkix.AlgorithmIdentifier
			Bits      asn1.BitString
		}
		Extensions []pkix.Extension `asn1:"optional,explicit,tag:3"`
	}
	Algorithm pkix.AlgorithmIdentifier
	Signature asn1.BitString
}

func readDER(t *testing.T, der []byte) *certificate {
	t.Helper()
	c := new(certificate)
	unmarshal(t, der, c)
	return c
}

func unmarshal(t *testing.T, der []byte, v any) {
	t.Helper()
	if rest, err := asn1.Unmarshal(der, v); err != nil || len(rest) > 0 {
		t.Fatalf("unmarshalling %x: %v, and %d bytes are left", der, err, len(rest))
	}
}

// describeDER says what stands in a certificate, in the words of the page. The
// certificate above it is called by name.
func describeDER(t *testing.T, now time.Time, c, above *certificate, name string) map[string]string {
	t.Helper()
	tbs := &c.TBS
	all := map[string]string{
		"version":              fmt.Sprint(tbs.Version + 1),
		"serialNumber":         fmt.Sprintf("%s, %d octets", map[int]string{1: "positive"}[tbs.SerialNumber.Sign()], len(tbs.SerialNumber.Bytes())),
		"signature":            oidName(tbs.Signature.Algorithm),
		"issuer":               map[bool]string{true: name + " subject"}[bytes.Equal(tbs.Issuer.FullBytes, above.TBS.Subject.FullBytes)],
		"notBefore":            fmt.Sprintf("%.0fm ago", now.Sub(tbs.Validity.NotBefore).Minutes()),
		"notAfter":             untilText(tbs.Validity.NotAfter.Sub(now)),
		"subject":              strings.ReplaceAll(nameText(t, tbs.Subject.FullBytes), hex.EncodeToString(keyIDOf(c)), "KEYID"),
		"subjectPublicKeyInfo": oidName(tbs.Key.Algorithm.Algorithm) + ", " + curveName(t, tbs.Key.Algorithm.Parameters.FullBytes),
		"other extensions":     "none",
	}
	if !tbs.Signature.Algorithm.Equal(c.Algorithm.Algorithm) {
		t.Errorf("the two signature algorithms are %v and %v", tbs.Signature.Algorithm, c.Algorithm.Algorithm)
	}
	for _, field := range []string{"authorityKeyIdentifier", "subjectKeyIdentifier", "keyUsage", "subjectAltName", "basicConstraints", "extKeyUsage"} {
		all[field] = "none"
	}
	for _, ext := range tbs.Extensions {
		field, text := extensionText(t, ext, c, above, name)
		if ext.Critical {
			text = "critical: " + text
		}
		all[field] = text
	}
	return all
}

// keyIDOf is RFC 7093, Section 2, method 1.
func keyIDOf(c *certificate) []byte {
	sum := sha256.Sum256(c.TBS.Key.Bits.Bytes)
	return sum[:20]
}

func untilText(d time.Duration) string {
	if d > 22*time.Hour+47*time.Minute && d <= 24*time.Hour+time.Second {
		return "in 22.8h to 24h"
	}
	return fmt.Sprintf("in %.0fd", d.Hours()/24)
}

func nameText(t *testing.T, der []byte) string {
	t.Helper()
	var name pkix.RDNSequence
	unmarshal(t, der, &name)
	if len(name) == 0 {
		return "empty"
	}
	return name.String()
}

func curveName(t *testing.T, der []byte) string {
	t.Helper()
	var oid asn1.ObjectIdentifier
	unmarshal(t, der, &oid)
	return oidName(oid)
}

func oidName(oid asn1.ObjectIdentifier) string {
	names := map[string]string{
		"1.2.840.10045.2.1": "id-ecPublicKey", "1.2.840.10045.3.1.7": "secp256r1", "1.2.840.10045.4.3.2": "ecdsa-with-SHA256",
		"1.3.6.1.5.5.7.3.1": "serverAuth", "1.3.6.1.5.5.7.3.2": "clientAuth",
	}
	if name, ok := names[oid.String()]; ok {
		return name
	}
	return oid.String()
}

func extensionText(t *testing.T, ext pkix.Extension, c, above *certificate, name string) (field, text string) {
	t.Helper()
	switch ext.Id.String() {
	case "2.5.29.35":
		var v struct {
			KeyID []byte `asn1:"tag:0"`
		}
		unmarshal(t, ext.Value, &v)
		return "authorityKeyIdentifier", map[bool]string{true: name}[bytes.Equal(v.KeyID, keyIDOf(above))]
	case "2.5.29.14":
		var v []byte
		unmarshal(t, ext.Value, &v)
		return "subjectKeyIdentifier", map[bool]string{true: "KEYID"}[bytes.Equal(v, keyIDOf(c))]
	case "2.5.29.15":
		var v asn1.BitString
		unmarshal(t, ext.Value, &v)
		return "keyUsage", usageText(v)
	case "2.5.29.17":
		return "subjectAltName", namesText(t, ext.Value)
	case "2.5.29.19":
		v := struct {
			CA      bool `asn1:"optional"`
			PathLen int  `asn1:"optional,default:-1"`
		}{}
		unmarshal(t, ext.Value, &v)
		text := "CA:" + strings.ToUpper(fmt.Sprint(v.CA))
		if v.PathLen >= 0 {
			text += fmt.Sprintf(", pathlen %d", v.PathLen)
		}
		return "basicConstraints", text
	case "2.5.29.37":
		var v []asn1.ObjectIdentifier
		unmarshal(t, ext.Value, &v)
		var purposes []string
		for _, oid := range v {
			purposes = append(purposes, oidName(oid))
		}
		return "extKeyUsage", strings.Join(purposes, ", ")
	default:
		return "other extensions", ext.Id.String()
	}
}

// usageText names the bits of RFC 5280, Section 4.2.1.3.
func usageText(bits asn1.BitString) string {
	var on []string
	for i, name := range []string{"digitalSignature", "nonRepudiation", "keyEncipherment", "dataEncipherment", "keyAgreement", "keyCertSign", "cRLSign", "encipherOnly", "decipherOnly"} {
		if bits.At(i) == 1 {
			on = append(on, name)
		}
	}
	return strings.Join(on, ", ")
}

// namesText has the kinds of RFC 5280, Section 4.2.1.6, that we know.
func namesText(t *testing.T, der []byte) string {
	t.Helper()
	var names []asn1.RawValue
	unmarshal(t, der, &names)
	var all []string
	for _, n := range names {
		switch n.Tag {
		case 2:
			all = append(all, "DNS:"+string(n.Bytes))
		case 6:
			all = append(all, "URI:"+string(n.Bytes))
		case 7:
			all = append(all, "IP:"+net.IP(n.Bytes).String())
		default:
			all = append(all, fmt.Sprintf("%d:%x", n.Tag, n.Bytes))
		}
	}
	return strings.Join(all, ", ")
}

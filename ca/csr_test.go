package ca_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// A CSR is one PEM block, and nothing else is looked for in it.
func TestCSRFraming(t *testing.T) {
	good := csrNaming(t, cart.String())
	block, _ := pem.Decode([]byte(good))
	relabelled := func(label string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: block.Bytes}))
	}
	header := string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Headers: map[string]string{"a": "b"}, Bytes: block.Bytes}))
	body := strings.Split(good, "\n")[1]
	trailing := sanOf(t, true, cart.String())
	trailing.Value = append(trailing.Value, 0x05, 0x00)
	for _, tt := range []struct {
		name, csr string
		ok        bool
	}{
		{"as ztunnel sends it", good, true},
		{"without the final newline", strings.TrimSpace(good), true},
		{"with white space around it", "\n \t\n" + good + "\r\n\n", true},
		{"with CRLF line ends", strings.ReplaceAll(good, "\n", "\r\n"), true},
		{"of the largest size", good + strings.Repeat("\n", 16<<10-len(good)), true},
		{"one byte larger", good + strings.Repeat("\n", 16<<10-len(good)+1), false},
		{"empty", "", false},
		{"DER", string(block.Bytes), false},
		{"two of them", good + good, false},
		{"text before it", "hello\n" + good, false},
		{"text after it", good + "hello", false},
		{"a NUL after it", good + "\x00", false},
		{"a damaged one before it", strings.Replace(good, body, "!", 1) + good, false},
		{"with a header", header, false},
		{"the label of old Netscape", relabelled("NEW CERTIFICATE REQUEST"), false},
		{"the label of a certificate", relabelled("CERTIFICATE"), false},
		{"junk in its base64", strings.Replace(good, body, body[:10]+"*"+body[10:], 1), false},
		{"cut short", good[:len(good)/2], false},
		{"bytes after the DER", csrPEM(append(block.Bytes, 0)), false},
		{"DER cut short", csrPEM(block.Bytes[:len(block.Bytes)-1]), false},
		{"an empty block", csrPEM(nil), false},
		{"bytes after its names", newCSR(t, newP256(t), x509.CertificateRequest{ExtraExtensions: []pkix.Extension{trailing}}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ca.ParseCSR(tt.csr)
			if tt.ok && err != nil || !tt.ok && reasonOf(err) != ca.BadCSR {
				t.Errorf("ParseCSR: %v", err)
			}
		})
	}
}

// An error may be logged, so it does not repeat a CSR.
func TestCSRErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	_, err := ca.ParseCSR(csrNaming(t, "https://a b/"+long))
	if err == nil || len(err.Error()) > 500 {
		t.Errorf("ParseCSR: %v", err)
	}
	_, err = anAuthority(t).Issue(noon, grantCart(t), verified(t, csrNaming(t, "spiffe://"+long+"/ns/a/sa/b")), 0)
	if reasonOf(err) != ca.CSRNamesAnother || len(err.Error()) > 500 {
		t.Errorf("Issue: %v", err)
	}
}

// TestCSRErrorsSayWhy quotes names of up to 256 bytes in full.
func TestCSRErrorsSayWhy(t *testing.T) {
	_, err := ca.ParseCSR(strings.Repeat("\n", 16<<10+1))
	says(t, err, "it is 16385 bytes long, more than 16384")
	for n, want := range map[int]string{256: `x"`, 257: `x..."`} {
		name := "spiffe:" + strings.Repeat("x", n-len("spiffe:"))
		_, err := anAuthority(t).Issue(noon, grantCart(t), verified(t, csrNaming(t, name)), 0)
		says(t, err, want+", but spiffe://cluster.local/ns/shop/sa/cart was granted")
	}
}

func TestKeyPolicy(t *testing.T) {
	odd := func(bits int) *big.Int { // of that many bits; it need not be a product of primes
		n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
		return n.SetBit(n, 0, 1)
	}
	even := new(big.Int).Lsh(big.NewInt(1), 2047)
	for _, tt := range []struct {
		name string
		pub  crypto.PublicKey
		want ca.Reason // the signature is junk, so a key that passes fails after that
	}{
		{"P-224", newECDSA(t, elliptic.P224()).Public(), ca.BadKey},
		{"P-256", newP256(t).Public(), ca.NoPossession},
		{"P-384", newECDSA(t, elliptic.P384()).Public(), ca.NoPossession},
		{"P-521", newECDSA(t, elliptic.P521()).Public(), ca.BadKey},
		{"CSR-3 Ed25519, which is off", newKey(t, "Ed25519").Public(), ca.BadKey},
		{"RSA of 1024 bits", &rsa.PublicKey{N: odd(1024), E: 65537}, ca.BadKey},
		{"RSA of 2047 bits", &rsa.PublicKey{N: odd(2047), E: 65537}, ca.BadKey},
		{"RSA of 2048 bits", &rsa.PublicKey{N: odd(2048), E: 65537}, ca.NoPossession},
		{"RSA of 4096 bits", &rsa.PublicKey{N: odd(4096), E: 65537}, ca.NoPossession},
		{"RSA of 4097 bits", &rsa.PublicKey{N: odd(4097), E: 65537}, ca.BadKey},
		{"CSR-6 oversized RSA key, refused before its signature is checked", &rsa.PublicKey{N: odd(16384), E: 65537}, ca.BadKey},
		{"RSA with an even modulus", &rsa.PublicKey{N: even, E: 65537}, ca.BadKey},
		{"RSA with exponent 3", &rsa.PublicKey{N: odd(2048), E: 3}, ca.BadKey},
		{"RSA with an even exponent", &rsa.PublicKey{N: odd(2048), E: 65538}, ca.BadKey},
		{"RSA with an exponent of 32 bits", &rsa.PublicKey{N: odd(2048), E: 1<<31 + 1}, ca.BadKey},
		{"RSA with the largest exponent", &rsa.PublicKey{N: odd(2048), E: 1<<31 - 1}, ca.NoPossession},
		{"RSA with exponent 1", &rsa.PublicKey{N: odd(2048), E: 1}, ca.BadKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := assembleCSR(t, tt.pub, nil, func([]byte) []byte { return make([]byte, 256) })
			csr, err := ca.ParseCSR(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := csr.Verify(ca.DefaultProfile(trustDomain)); reasonOf(err) != tt.want {
				t.Errorf("Verify: %v, want %s", err, tt.want)
			}
		})
	}
}

// CSR-6: a key of 16384 bits that was made, and whose CSR it has signed, is
// refused before that signature is looked at: with another signature the answer
// is the same.
func TestOversizedKeyIsNotVerified(t *testing.T) {
	good := fixture(t, "rsa-16384.csr")
	block, _ := pem.Decode([]byte(good))
	if req, err := x509.ParseCertificateRequest(block.Bytes); err != nil || req.CheckSignature() != nil || req.PublicKey.(*rsa.PublicKey).N.BitLen() != 16384 {
		t.Fatalf("the fixture is not what it should be: %v", err)
	}
	block.Bytes[len(block.Bytes)-1] ^= 1
	for name, text := range map[string]string{"CSR-6 signed": good, "CSR-6 not signed": csrPEM(block.Bytes)} {
		t.Run(name, func(t *testing.T) {
			csr, err := ca.ParseCSR(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := csr.Verify(ca.DefaultProfile(trustDomain)); reasonOf(err) != ca.BadKey {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}

// fixture returns a CSR of testdata, whose README says how it was made.
func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPossession(t *testing.T) {
	verify := func(t *testing.T, text string) error {
		csr, err := ca.ParseCSR(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = csr.Verify(ca.DefaultProfile(trustDomain))
		return err
	}
	key, thief := newP256(t), newP256(t)
	t.Run("signed with the key", func(t *testing.T) {
		if err := verify(t, assembleCSR(t, key.Public(), nil, signer(t, key))); err != nil {
			t.Error(err)
		}
	})
	t.Run("signed with another key", func(t *testing.T) {
		if err := verify(t, assembleCSR(t, key.Public(), nil, signer(t, thief))); reasonOf(err) != ca.NoPossession {
			t.Errorf("Verify: %v", err)
		}
	})
	for _, tt := range []struct {
		key  string
		algs []x509.SignatureAlgorithm
	}{
		{"RSA-2048", []x509.SignatureAlgorithm{
			x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA, x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		}},
		{"P-256", []x509.SignatureAlgorithm{x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512}},
	} {
		for _, alg := range tt.algs {
			t.Run("signed with "+alg.String(), func(t *testing.T) {
				if err := verify(t, newCSR(t, newKey(t, tt.key), x509.CertificateRequest{SignatureAlgorithm: alg})); err != nil {
					t.Error(err)
				}
			})
		}
	}
	t.Run("signed with SHA-1", func(t *testing.T) {
		text := newCSR(t, newKey(t, "RSA-2048"), x509.CertificateRequest{SignatureAlgorithm: x509.SHA1WithRSA})
		if err := verify(t, text); reasonOf(err) != ca.NoPossession {
			t.Errorf("Verify: %v", err)
		}
	})
}

// The CSR gives its public key and nothing else.
func TestCSRNamesNothing(t *testing.T) {
	foreign := []pkix.Extension{
		{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 0x03, 0x01, 0x01, 0xff}}, // CA:TRUE
		{Id: asn1.ObjectIdentifier{2, 5, 29, 15}, Critical: true, Value: []byte{0x03, 0x02, 0x02, 0x04}},       // keyCertSign
		{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: marshal(t, []asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 3}})},
		{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Critical: true, Value: []byte{0x30, 0x00}}, // nameConstraints
		{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{0x05, 0x00}},
	}
	https := &url.URL{Scheme: "https", Host: "example.com"}
	key := newP256(t)
	for _, tt := range []struct{ name, csr string }{
		{"the identity, as ztunnel sends it", csrNaming(t, cart.String())},
		{"CSR-1 empty subject with a non-critical SAN", newCSR(t, key, x509.CertificateRequest{ExtraExtensions: []pkix.Extension{sanOf(t, false, cart.String())}})},
		{"CSR-2 requested extensions", newCSR(t, key, x509.CertificateRequest{ExtraExtensions: append(foreign, sanOf(t, true, cart.String()))})},
		{"CSR-4 attributes beside the extension request", assembleCSR(t, key.Public(), [][]byte{
			attribute(t, oidChallengePassword, "x"), extensionRequest(t, sanOf(t, false, cart.String())), attribute(t, oidUnstructuredName, "y"),
		}, signer(t, key))},
		{"CSR-4 as the prompt of OpenSSL makes it", fixture(t, "attributes.csr")},
		{"CSR-4 attributes and no extension request", assembleCSR(t, key.Public(), [][]byte{
			attribute(t, oidChallengePassword, "x"), attribute(t, oidUnstructuredName, "y"),
		}, signer(t, key))},
		{"CSR-5 no SAN at all", newCSR(t, key, x509.CertificateRequest{})},
		{"CSR-5 a DNS name only", newCSR(t, key, x509.CertificateRequest{DNSNames: []string{"example.com"}})},
		{"CSR-5 another identity, but as a DNS name", newCSR(t, key, x509.CertificateRequest{DNSNames: []string{"spiffe://cluster.local/ns/shop/sa/pay"}})},
		{"CSR-5 a subject, and names of every kind", newCSR(t, key, x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "admin"},
			DNSNames: []string{"example.com"}, EmailAddresses: []string{"a@example.com"},
			IPAddresses: []net.IP{{10, 0, 0, 1}}, URIs: []*url.URL{https},
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := anAuthority(t)
			leaf := issue(t, a, verified(t, tt.csr), 0).Leaf
			// Check is tested by itself; that it is asked, here.
			want := ca.Want{PublicKey: leaf.PublicKey, Now: noon, MinLife: ca.DefaultMinLeafLife, MaxLife: ca.DefaultMaxLeafLife, PathEnd: a.NotAfter()}
			if err := ca.Check(leaf, a.Issuer(), cart, want); err != nil {
				t.Error(err)
			}
			if len(leaf.Extensions) != 5 || len(leaf.Subject.Names) != 0 {
				t.Errorf("the leaf has %d extensions and the subject %q", len(leaf.Extensions), leaf.Subject)
			}
			want17 := sanOf(t, true, cart.String()) // CSR-1: critical, whatever it was in the CSR
			if san := extensionsOf(leaf, oidSAN); len(san) != 1 || !san[0].Critical || !bytes.Equal(san[0].Value, want17.Value) {
				t.Errorf("the leaf's names are %v, want the identity alone, critical", san)
			}
			checkUsage(t, leaf)
		})
	}
}

// extensionsOf returns those of one kind.
func extensionsOf(cert *x509.Certificate, oid asn1.ObjectIdentifier) (found []pkix.Extension) {
	for _, ext := range cert.Extensions {
		if ext.Id.Equal(oid) {
			found = append(found, ext)
		}
	}
	return found
}

func TestCSRNamesAnother(t *testing.T) {
	a := anAuthority(t)
	for _, name := range []string{
		"spiffe://cluster.local/ns/shop/sa/pay",
		"spiffe://other.local/ns/shop/sa/cart",
		// CSR-7: other spellings, none of which is normalised and then accepted.
		"spiffe://cluster.local/ns/shop/sa/cart/",
		"spiffe://cluster.local/ns/shop/sa/cart/x",
		"spiffe://cluster.local/ns/a%2Fb/sa/c",
		"spiffe://cluster.local/ns/shop%2Fsa/cart",
		"spiffe://cluster.local/ns/shop/sa/c%61rt",
		"SPIFFE://cluster.local/ns/shop/sa/cart",
		"Spiffe://Cluster.Local/ns/shop/sa/cart",
		"spiffe://cluster.local:80/ns/shop/sa/cart",
		"spiffe://user@cluster.local/ns/shop/sa/cart",
		"spiffe://cluster.local/ns/shop/sa/cart?x=1",
		"spiffe://cluster.local/ns/shop/sa/cart?",
		"spiffe://cluster.local/ns/shop/sa/cart#f",
		"spiffe://cluster.local/ns/shop/sa/cart#",
		"spiffe://cluster.local/ns//sa/cart",
		"spiffe://cluster.local/ns/shop/../shop/sa/cart",
		"spiffe://cluster.local/ns/Shop/sa/cart",
		"spiffe://cluster.local/ns/a/../shop/sa/cart",
		"spiffe:/cluster.local/ns/shop/sa/cart",
		"spiffe:",
		" spiffe://cluster.local/ns/shop/sa/cart",
		"spiffe://cluster.local/ns/shop/sa/" + strings.Repeat("a", 2049-len("spiffe://cluster.local/ns/shop/sa/")),
	} {
		for _, names := range [][]string{{name}, {cart.String(), name}} {
			t.Run(fmt.Sprintf("CSR-7 %.60q", names), func(t *testing.T) {
				csr, err := ca.ParseCSR(csrNaming(t, names...))
				if err != nil {
					if reasonOf(err) != ca.BadCSR {
						t.Errorf("ParseCSR: %v", err)
					}
					return
				}
				r, err := csr.Verify(a.Profile())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := a.Issue(noon, grantCart(t), r, 0); reasonOf(err) != ca.CSRNamesAnother {
					t.Errorf("Issue: %v", err)
				}
			})
		}
	}
}

// assembleCSR returns a CSR of parts that x509 would not put together. The
// signature algorithm is that of the key, and the signature is what sign says.
func assembleCSR(t testing.TB, pub crypto.PublicKey, attributes [][]byte, sign func(tbs []byte) []byte) string {
	t.Helper()
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	type info struct {
		Version    int
		Subject    asn1.RawValue
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0,set"`
	}
	tbs := info{Subject: asn1.RawValue{FullBytes: []byte{0x30, 0x00}}, Key: asn1.RawValue{FullBytes: spki}, Attributes: []asn1.RawValue{}}
	for _, a := range attributes {
		tbs.Attributes = append(tbs.Attributes, asn1.RawValue{FullBytes: a})
	}
	alg := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}} // ecdsa-with-SHA256
	if _, ok := pub.(*rsa.PublicKey); ok {
		alg = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue} // sha256WithRSAEncryption
	}
	raw := marshal(t, tbs)
	sig := sign(raw)
	return csrPEM(marshal(t, struct {
		Info      asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{asn1.RawValue{FullBytes: raw}, alg, asn1.BitString{Bytes: sig, BitLength: 8 * len(sig)}}))
}

// The attributes that the prompt of "openssl req" asks for (RFC 2985, Section 5.4).
var (
	oidUnstructuredName  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 2}
	oidChallengePassword = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}
)

func attribute(t testing.TB, oid asn1.ObjectIdentifier, value string) []byte {
	return marshal(t, struct {
		ID     asn1.ObjectIdentifier
		Values []string `asn1:"set"`
	}{oid, []string{value}})
}

func extensionRequest(t testing.TB, extensions ...pkix.Extension) []byte {
	return marshal(t, struct {
		ID     asn1.ObjectIdentifier
		Values [][]pkix.Extension `asn1:"set"`
	}{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}, [][]pkix.Extension{extensions}})
}

// signer returns what signs with an ECDSA key.
func signer(t testing.TB, key crypto.Signer) func([]byte) []byte {
	return func(tbs []byte) []byte {
		sum := sha256.Sum256(tbs)
		sig, err := ecdsa.SignASN1(rand.Reader, key.(*ecdsa.PrivateKey), sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
}

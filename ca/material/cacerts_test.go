package material_test

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var (
	noon        = time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)
	trustDomain = spiffeid.RequireTrustDomainFromString("cluster.local")
)

// files is a directory in the layout of Istio's cacerts.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	data, ok := f[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(data), nil
}

// with returns f with other content in a file.
func (f files) with(name, data string) files {
	g := maps.Clone(f)
	g[name] = data
	return g
}

func (f files) without(names ...string) files {
	g := maps.Clone(f)
	for _, name := range names {
		delete(g, name)
	}
	return g
}

// A pair is a CA certificate, in PEM too, and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  string
}

func newCA(t testing.TB, name string, key crypto.Signer, parent *pair, edits ...func(*x509.Certificate)) *pair {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: noon.Add(-time.Hour), NotAfter: noon.AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	for _, edit := range edits {
		edit(template)
	}
	signer := &pair{cert: template, key: key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{cert, key, toPEM("CERTIFICATE", der)}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func toPEM(label string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func pkcs8(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return toPEM("PRIVATE KEY", der)
}

// aSet is the usual one: an issuer under a root, and a chain that holds both.
func aSet(t testing.TB) (f files, issuer, root *pair) {
	t.Helper()
	root = newCA(t, "root", newKey(t), nil)
	issuer = newCA(t, "issuer", newKey(t), root)
	return files{
		"ca-cert.pem":    issuer.pem,
		"ca-key.pem":     pkcs8(t, issuer.key),
		"cert-chain.pem": issuer.pem + root.pem,
		"root-cert.pem":  root.pem,
	}, issuer, root
}

// open loads files and puts them to the proof.
func open(f files) (*ca.Authority, []material.Warning, error) {
	m, warnings, err := material.Load(noon, f.read)
	if err != nil {
		return nil, warnings, err
	}
	a, err := ca.NewAuthority(noon, m, ca.DefaultProfile(trustDomain))
	return a, warnings, err
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

// Damage is an error that names file and line; what only looks unusual is not.
func TestArmour(t *testing.T) {
	good, issuer, root := aSet(t)
	trim, crlf := strings.TrimSpace, func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	line := strings.Split(root.pem, "\n")[2] // of base64
	damaged := func(by string) string { return strings.Replace(root.pem, line, by, 1) }
	der := root.cert.Raw
	lines := strings.Count(root.pem, "\n")
	for _, tt := range []struct {
		name  string
		files files
		says  string
	}{
		{"as it should be", good, ""},
		{"CA-1 no final newlines", good.with("ca-cert.pem", trim(issuer.pem)).with("cert-chain.pem", trim(issuer.pem+root.pem)), ""},
		{"CA-1 two markers on one line", good.with("cert-chain.pem", trim(issuer.pem)+root.pem),
			fmt.Sprintf("cert-chain.pem:%d: a BEGIN or END marker is damaged", strings.Count(issuer.pem, "\n"))},
		{"CA-10 blank lines, spaces and a tab at the end", good.with("root-cert.pem", root.pem+"\n\n\n  \t"), ""},
		{"CA-10 the same with CRLF", good.with("root-cert.pem", crlf(root.pem+"\n\n\n  \t")), ""},
		{"CA-10 everything with CRLF", files{"ca-cert.pem": crlf(issuer.pem), "ca-key.pem": crlf(good["ca-key.pem"]), "cert-chain.pem": "\r\n", "root-cert.pem": crlf(root.pem)}, ""},
		{"text before, between and after", good.with("cert-chain.pem", "Issuer:\n"+issuer.pem+"# root: it's old\n"+root.pem+"-- end\n"), ""},
		{"junk in the base64", good.with("root-cert.pem", damaged(line[:9]+"*"+line[10:])), "root-cert.pem:3: the line is not base64"},
		{"padding within the base64", good.with("root-cert.pem", damaged(line[:len(line)-1]+"=")), "root-cert.pem:1: the base64 of the block is damaged"},
		{"a letter missing", good.with("root-cert.pem", damaged(line[1:])), "root-cert.pem:1: the base64 of the block is damaged"},
		{"a line missing", good.with("root-cert.pem", damaged("")), "root-cert.pem:1: the block does not hold a certificate"},
		{"cut off", good.with("root-cert.pem", root.pem+root.pem[:100]), fmt.Sprintf("root-cert.pem:%d: the block is cut off", lines+1)},
		{"no BEGIN marker", good.with("root-cert.pem", root.pem[strings.Index(root.pem, "\n")+1:]), "an END marker without its BEGIN"},
		{"no END marker", good.with("root-cert.pem", root.pem[:strings.Index(root.pem, "-----END")]+root.pem), fmt.Sprintf("root-cert.pem:%d: a block begins before the one from line 1 has ended", lines)},
		{"labels that differ", good.with("root-cert.pem", strings.Replace(root.pem, "END CERTIFICATE", "END KEY", 1)), `labelled "CERTIFICATE", but ends as "KEY"`},
		{"a marker with a dash less", good.with("root-cert.pem", strings.Replace(root.pem, "-----BEGIN", "----BEGIN", 1)), "root-cert.pem:1: a BEGIN or END marker is damaged"},
		{"a label in lower case", good.with("root-cert.pem", strings.ReplaceAll(root.pem, "CERTIFICATE", "certificate")), "root-cert.pem:1: a BEGIN or END marker is damaged"},
		{"a label of nothing", good.with("root-cert.pem", strings.ReplaceAll(root.pem, "CERTIFICATE", "")), "root-cert.pem:1: a BEGIN or END marker is damaged"},
		{"a label of 64 letters", good.with("root-cert.pem", strings.ReplaceAll(root.pem, "CERTIFICATE", strings.Repeat("X", 64))), "root-cert.pem:1: found a XXX"},
		{"a label of 65 letters", good.with("root-cert.pem", strings.ReplaceAll(root.pem, "CERTIFICATE", strings.Repeat("X", 65))), "root-cert.pem:1: a BEGIN or END marker is damaged"},
		{"a certificate whose subject is no name", good.with("root-cert.pem", toPEM("CERTIFICATE", nameless(t))), "root-cert.pem:1: the block does not hold a certificate"},
		{"a byte order mark", good.with("root-cert.pem", "\ufeff"+root.pem), "root-cert.pem:1: a BEGIN or END marker is damaged"},
		{"an empty block", good.with("root-cert.pem", toPEM("CERTIFICATE", nil)), "root-cert.pem:1: the block is empty"},
		{"bytes after the certificate", good.with("root-cert.pem", toPEM("CERTIFICATE", append(slices.Clone(der), 0))), "root-cert.pem:1: the block does not hold a certificate"},
		{"DER without armour", good.with("root-cert.pem", string(der)), "root-cert.pem:1: there is no certificate in it"},
		{"a header", good.with("root-cert.pem", strings.Replace(root.pem, line, "A: b\n\n"+line, 1)), "root-cert.pem:3: the line is not base64"},
		{"a key among certificates", good.with("root-cert.pem", root.pem+good["ca-key.pem"]), fmt.Sprintf("root-cert.pem:%d: found a PRIVATE KEY block", lines+1)},
		{"a CRL among certificates", good.with("cert-chain.pem", toPEM("X509 CRL", der)), "cert-chain.pem:1: found a X509 CRL block"},
		{"text only, for the issuer", good.with("ca-cert.pem", "see the other file\n"), "ca-cert.pem:1: there is no certificate in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, warnings, err := open(tt.files)
			says(t, err, tt.says)
			if len(warnings) != 0 {
				t.Errorf("warnings: %v", warnings)
			}
		})
	}
}

// nameless returns what looks like a certificate, with a number for a subject.
func nameless(t *testing.T) []byte {
	t.Helper()
	type tbs struct {
		Serial                               int
		Algorithm, Issuer, Validity, Subject asn1.RawValue
	}
	null := asn1.NullRawValue
	der, err := asn1.Marshal(struct {
		TBS       tbs
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}{tbs{1, null, null, null, asn1.RawValue{Tag: asn1.TagInteger, Bytes: []byte{1}}}, null, asn1.BitString{Bytes: []byte{0}, BitLength: 8}})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// CA-10: the same certificates in other bytes are the same CA.
func TestLayoutIsNoChange(t *testing.T) {
	good, issuer, root := aSet(t)
	want, _, err := open(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]files{
		"CA-10 white space": good.with("root-cert.pem", "\n"+strings.ReplaceAll(root.pem, "\n", " \r\n")+"\n\n"),
		"ROT-5 comments":    good.with("root-cert.pem", "# the root\n"+root.pem),
		"ROT-5 repetition":  good.with("root-cert.pem", root.pem+root.pem),
		"the chain alone":   good.with("cert-chain.pem", ""),
		"the chain at once": good.with("ca-cert.pem", issuer.pem+root.pem),
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := open(f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.BundlePEM(), got.BundlePEM()); diff != "" {
				t.Errorf("bundle (-want +got):\n%s", diff)
			}
		})
	}
}

// CA-2: every encoding of a key that tools write.
func TestKeyEncodings(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := newKey(t)
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(ecKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	dhKey, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	params, err := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	if err != nil {
		t.Fatal(err)
	}
	ec := toPEM("EC PRIVATE KEY", sec1)
	legacy := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: sec1}))
	for _, tt := range []struct {
		name string
		key  crypto.Signer // of the certificate
		pem  string
		says string
	}{
		{"CA-2 PKCS #1 RSA", rsaKey, toPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), ""},
		{"CA-2 PKCS #8 RSA", rsaKey, pkcs8(t, rsaKey), ""},
		{"CA-2 SEC 1 EC", ecKey, ec, ""},
		{"CA-2 a parameters block and SEC 1 EC", ecKey, toPEM("EC PARAMETERS", params) + ec, ""},
		{"CA-2 PKCS #8 EC", ecKey, pkcs8(t, ecKey), ""},
		{"CA-2 PKCS #8 Ed25519", edKey, pkcs8(t, edKey), ""},
		{"CA-2 text above the block", ecKey, "Bag Attributes\n    localKeyID: 01 02\n" + ec, ""},
		{"CA-2 encrypted PKCS #8", ecKey, toPEM("ENCRYPTED PRIVATE KEY", sec1), "ca-key.pem:1: found an encrypted private key"},
		{"CA-2 an encrypted key of old", ecKey, legacy, "ca-key.pem:1: found an encrypted private key"},
		{"CA-2 a public key", ecKey, toPEM("PUBLIC KEY", public), "ca-key.pem:1: found a PUBLIC KEY block, not a private key"},
		{"a certificate", ecKey, toPEM("CERTIFICATE", sec1), "found a CERTIFICATE block, not a private key"},
		{"an OpenSSH key", ecKey, toPEM("OPENSSH PRIVATE KEY", sec1), "found a OPENSSH PRIVATE KEY block"},
		{"a key that cannot sign", ecKey, pkcs8(t, dhKey), "which cannot sign"},
		{"the wrong label", ecKey, toPEM("PRIVATE KEY", sec1), "the PRIVATE KEY block cannot be read as one"},
		{"parameters only", ecKey, toPEM("EC PARAMETERS", params), "there is no private key in it"},
		{"text only", ecKey, "the key is in the safe", "there is no private key in it"},
		{"two keys", ecKey, ec + ec, "there is a EC PRIVATE KEY block after the private key"},
		{"another key", ecKey, pkcs8(t, newKey(t)), "ca-key.pem:1: the key is not that of the certificate in ca-cert.pem: that is certificate \"CN=root\""},
		{"damaged base64", ecKey, strings.Replace(ec, "M", "*", 1), "ca-key.pem:2: the line is not base64"},
		{"a colon in the base64", ecKey, ec[:60] + ":" + ec[61:], "ca-key.pem:2: the line is not base64"},
		{"cut off", ecKey, ec[:90], "ca-key.pem:1: the block is cut off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := newCA(t, "root", tt.key, nil)
			_, _, err := open(files{"ca-cert.pem": root.pem, "ca-key.pem": tt.pem, "cert-chain.pem": "", "root-cert.pem": root.pem})
			says(t, err, tt.says)
			for line := range strings.SplitSeq(tt.pem, "\n") {
				if err != nil && len(line) > 8 && !strings.HasPrefix(line, "-----") && strings.Contains(err.Error(), line[:8]) {
					t.Errorf("%q shows what is in the key file", err)
				}
			}
		})
	}
}

// CA-7, as far as it is about loading once: an incomplete set is named, and
// nothing takes its place.
func TestIncomplete(t *testing.T) {
	good, _, root := aSet(t)
	for _, tt := range []struct {
		name  string
		files files
		says  string
	}{
		{"CA-7 a misspelt name", good.without("root-cert.pem").with("root-cert.perm", root.pem), "(missing: root-cert.pem)"},
		{"CA-7 no certificate", good.without("ca-cert.pem"), "(missing: ca-cert.pem)"},
		{"CA-7 no key", good.without("ca-key.pem"), "(missing: ca-key.pem)"},
		{"CA-7 no chain", good.without("cert-chain.pem"), "(missing: cert-chain.pem)"},
		{"CA-7 two are missing", good.without("ca-key.pem", "root-cert.pem"), "(missing: ca-key.pem, root-cert.pem)"},
		{"CA-7 an empty directory", files{}, "(missing: ca-cert.pem, ca-key.pem, cert-chain.pem, root-cert.pem)"},
		{"CA-7 an empty key", good.with("ca-key.pem", ""), "(empty: ca-key.pem)"},
		{"CA-7 an empty root, a missing key", good.with("root-cert.pem", " \n").without("ca-key.pem"), "(missing: ca-key.pem; empty: root-cert.pem)"},
		{"ROT-4 an empty chain, which is fine", good.with("cert-chain.pem", ""), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := open(tt.files)
			says(t, err, tt.says)
		})
	}
	t.Run("a file that cannot be read", func(t *testing.T) {
		denied := func(string) ([]byte, error) { return nil, fs.ErrPermission }
		if _, _, err := material.Load(noon, denied); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Load: %v", err)
		}
	})
}

// CA-5: a certificate with serial number -5, which x509 neither reads nor makes.
func TestStrangers(t *testing.T) {
	good, issuer, root := aSet(t)
	other := newCA(t, "other", newKey(t), nil)
	negative := negate(t, newCA(t, "negative", newKey(t), nil, func(c *x509.Certificate) { c.SerialNumber = big.NewInt(5) }))
	t.Run("CA-5 among roots it is left out, with a warning", func(t *testing.T) {
		a, warnings, err := open(good.with("root-cert.pem", root.pem+negative+other.pem))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(root.pem+other.pem, a.BundlePEM()); diff != "" {
			t.Errorf("bundle (-want +got):\n%s", diff)
		}
		want := []string{fmt.Sprintf("root-cert.pem:%d: certificate \"CN=negative\", serial number -5, is left out: x509: negative serial number", strings.Count(root.pem, "\n")+1)}
		var got []string
		for _, w := range warnings {
			got = append(got, w.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
	five := func(c *x509.Certificate) { c.SerialNumber = big.NewInt(5) }
	badRoot := newCA(t, "bad root", newKey(t), nil, five)
	underBad := newCA(t, "under bad", newKey(t), badRoot, five)
	renewed := newCA(t, "bad root", badRoot.key, nil)
	for _, tt := range []struct {
		name  string
		files files
		says  string
	}{
		{"CA-5 it is the signing certificate", files{"ca-cert.pem": negate(t, underBad), "ca-key.pem": pkcs8(t, underBad.key), "cert-chain.pem": "", "root-cert.pem": badRoot.pem},
			`ca-cert.pem:1: certificate "CN=under bad", serial number -5, cannot be used`},
		{"CA-5 it is the issuer of the signing certificate", files{"ca-cert.pem": underBad.pem, "ca-key.pem": pkcs8(t, underBad.key), "cert-chain.pem": "", "root-cert.pem": root.pem + negate(t, badRoot)},
			"cannot be used, but it issued " + ca.Describe(underBad.cert)},
		{"CA-5 it is, but its successor is there", files{"ca-cert.pem": underBad.pem, "ca-key.pem": pkcs8(t, underBad.key), "cert-chain.pem": "", "root-cert.pem": renewed.pem + negate(t, badRoot)}, ""},
		{"CA-5 it is the only root", good.with("root-cert.pem", negative), "there is no root certificate"},
		{"CA-5 it is in the chain, where nothing needs it", good.with("cert-chain.pem", issuer.pem+negative), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := open(tt.files)
			says(t, err, tt.says)
		})
	}
}

// negate returns the certificate in PEM with serial number -5 instead of 5. Its
// signature is then wrong, which nobody gets to see.
func negate(t *testing.T, p *pair) string {
	t.Helper()
	five, minusFive := string([]byte{0x02, 0x01, 0x05}), string([]byte{0x02, 0x01, 0xfb})
	der := strings.Replace(string(p.cert.Raw), five, minusFive, 1)
	if _, err := x509.ParseCertificate([]byte(der)); err == nil {
		t.Fatal("x509 reads negative serial numbers")
	}
	return toPEM("CERTIFICATE", []byte(der))
}

// What is wrong with a certificate by itself is said with its file and line.
func TestJudged(t *testing.T) {
	good, issuer, root := aSet(t)
	leaf := newCA(t, "leaf", newKey(t), root, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	noSign := newCA(t, "no sign", newKey(t), root, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature })
	ended := func(c *x509.Certificate) { c.NotAfter = noon.Add(-time.Minute) }
	old := newCA(t, "old", newKey(t), root, ended)
	oldRoot := newCA(t, "old root", newKey(t), nil, ended)
	underOld := newCA(t, "under old", newKey(t), oldRoot)
	signedBy := func(p *pair) files {
		return good.with("ca-cert.pem", p.pem).with("ca-key.pem", pkcs8(t, p.key)).with("cert-chain.pem", "")
	}
	inChain := fmt.Sprintf("cert-chain.pem:%d: ", strings.Count(issuer.pem, "\n")+1)
	for _, tt := range []struct {
		name  string
		files files
		says  []string
	}{
		{"CA-6 an end-entity certificate to sign with", signedBy(leaf), []string{"ca-cert.pem:1: ", "is not a certificate authority"}},
		{"CA-6 CA:TRUE without certSign", signedBy(noSign), []string{"ca-cert.pem:1: ", "may not sign"}},
		{"CA-6 an end-entity certificate in the chain", good.with("cert-chain.pem", issuer.pem+leaf.pem), []string{inChain, "is not a certificate authority"}},
		{"CA-6 an end-entity certificate among the roots", good.with("root-cert.pem", root.pem+leaf.pem), []string{"root-cert.pem:", "is not a certificate authority"}},
		{"OPS-5 expired", signedBy(old), []string{"ca-cert.pem:1: ", "CN=old", fmt.Sprintf("%x", old.cert.SubjectKeyId), "2026-01-02T11:00:00Z", "2026-01-02T11:59:00Z", "our clock says 2026-01-02T12:00:00Z"}},
		{"OPS-5 expired and self-signed", signedBy(oldRoot).with("root-cert.pem", oldRoot.pem), []string{"ca-cert.pem:1: ", "has expired"}},
		{"CA-11 an expired root besides", good.with("root-cert.pem", oldRoot.pem+root.pem), nil},
		{"CA-11 an expired root repeated in the chain", good.with("cert-chain.pem", issuer.pem+root.pem+oldRoot.pem), nil},
		{"CA-11 under the expired root", signedBy(underOld).with("root-cert.pem", oldRoot.pem+root.pem), []string{"CN=old root", "has expired"}},
		{"CA-8 a path length that forbids the issuer", func() files {
			short := newCA(t, "short", newKey(t), nil, func(c *x509.Certificate) { c.MaxPathLenZero = true })
			return signedBy(newCA(t, "under short", newKey(t), short)).with("root-cert.pem", short.pem)
		}(), []string{"path length 0"}},
		{"CA-9 another root", good.with("root-cert.pem", newCA(t, "root", newKey(t), nil).pem), []string{"does not chain", fmt.Sprintf("%x", root.cert.SubjectKeyId)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := open(tt.files)
			if (err != nil) != (tt.says != nil) {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range tt.says {
				says(t, err, want)
			}
		})
	}
}

// CA-3, CA-4: what is read comes out as clients read it.
func TestElementsOfFiles(t *testing.T) {
	root := newCA(t, "root", newKey(t), nil)
	other := newCA(t, "other", newKey(t), nil)
	inter1 := newCA(t, "inter1", newKey(t), root)
	inter2 := newCA(t, "inter2", newKey(t), inter1)
	for _, tt := range []struct {
		name         string
		issuer       *pair
		chain, roots string
		want         []string // elements after the leaf
	}{
		{"CA-3 the chain holds the root", inter1, inter1.pem + root.pem, root.pem, []string{inter1.pem, root.pem}},
		{"CA-3 the bundle holds another root", inter1, inter1.pem, root.pem + other.pem, []string{inter1.pem, root.pem + other.pem}},
		{"CA-4 two intermediates", inter2, inter2.pem + inter1.pem, root.pem, []string{inter2.pem, inter1.pem, root.pem}},
		{"CA-4 two intermediates, the chain without the first", inter2, inter1.pem, root.pem, []string{inter2.pem, inter1.pem, root.pem}},
		{"CA-4 a self-signed CA", root, "", root.pem, []string{root.pem}},
		{"ROT-4 a self-signed CA and another root", root, "", root.pem + other.pem, []string{root.pem + other.pem}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _, err := open(files{"ca-cert.pem": tt.issuer.pem, "ca-key.pem": pkcs8(t, tt.issuer.key), "cert-chain.pem": tt.chain, "root-cert.pem": tt.roots})
			if err != nil {
				t.Fatal(err)
			}
			issued, err := a.IssueServing(noon, newKey(t).Public(), ca.ServingNames{DNS: []string{"localhost"}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, issued.Elements()[1:]); diff != "" {
				t.Errorf("elements after the leaf (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever is in the files, they make a CA that works, or an error.
func FuzzLoad(f *testing.F) {
	good, issuer, root := aSet(f)
	key, chain := good["ca-key.pem"], good["cert-chain.pem"]
	f.Add(issuer.pem, key, chain, root.pem)
	f.Add(issuer.pem, key, "", strings.ReplaceAll(root.pem, "\n", "\r\n"))
	f.Add(strings.TrimSpace(issuer.pem)+root.pem, key, chain, root.pem)
	f.Add(issuer.pem, key[:len(key)/2], chain, root.pem+"-----BEGIN CERTIFICATE-----\n")
	f.Add(root.pem, key, issuer.pem, issuer.pem)
	f.Add("", "", "", "")
	f.Add(toPEM("CERTIFICATE", []byte{0x30, 0x80}), toPEM("EC PRIVATE KEY", []byte{0x30, 0x00}), "", key)
	f.Fuzz(func(t *testing.T, cert, key, chain, roots string) {
		a, _, err := open(files{"ca-cert.pem": cert, "ca-key.pem": key, "cert-chain.pem": chain, "root-cert.pem": roots})
		if err != nil {
			return
		}
		if _, err := a.IssueServing(noon, newKey(t).Public(), ca.ServingNames{DNS: []string{"localhost"}}); err != nil {
			t.Errorf("IssueServing: %v", err)
		}
	})
}

package ca_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// A broken is a certificate that is right but for one thing.
type broken struct {
	name   string
	edit   func(*x509.Certificate) // before it is signed
	alter  func(*x509.Certificate) // after it is parsed, for what x509 does not sign or parse
	reword func(*ca.Want)
	says   string // part of what the check says; "" if all is well
}

func extensionOf(last int, critical bool, value ...byte) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, last}, Critical: critical, Value: value})
	}
}

// commonFaults are those of leaves and of serving certificates.
func commonFaults(t *testing.T) []broken {
	return []broken{
		{name: "nothing", says: ""},
		{name: "version 1", alter: func(c *x509.Certificate) { c.Version = 1 }, says: "version 1"},
		{name: "serial number 0", alter: func(c *x509.Certificate) { c.SerialNumber = big.NewInt(0) }, says: "not positive"},
		{name: "a negative serial number", alter: func(c *x509.Certificate) { c.SerialNumber = big.NewInt(-5) }, says: "not positive"},
		{name: "a serial number of 20 octets", edit: func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 158) }, says: ""},
		{name: "a serial number of 21 octets", alter: func(c *x509.Certificate) { c.SerialNumber = new(big.Int).Lsh(big.NewInt(1), 159) }, says: "20 octets"},
		{name: "another issuer", alter: func(c *x509.Certificate) { c.RawIssuer = []byte{0x30, 0x00} }, says: "issuer"},
		{name: "a subject", edit: func(c *x509.Certificate) { c.Subject.CommonName = "cart" }, says: "its subject is"},
		{name: "a SAN that is not critical", alter: func(c *x509.Certificate) { uncritical(c, 17) }, says: "subjectAltName has critical = false"},
		{name: "a key usage that is not critical", edit: extensionOf(15, false, 0x03, 0x02, 0x07, 0x80), says: "keyUsage has critical = false"},
		{name: "no key usage", edit: func(c *x509.Certificate) { c.KeyUsage = 0 }, says: "keyUsage is missing"},
		{name: "no basic constraints", edit: func(c *x509.Certificate) { c.BasicConstraintsValid = false }, says: "basicConstraints is missing"},
		{name: "basic constraints that are not critical", edit: extensionOf(19, false, 0x30, 0x00), says: "basicConstraints has critical = false"},
		{name: "no extended key usage", edit: func(c *x509.Certificate) { c.ExtKeyUsage = nil }, says: "extKeyUsage is missing"},
		{name: "an extended key usage that is critical", alter: func(c *x509.Certificate) { critical(c, 37) }, says: "extKeyUsage has critical = true"},
		{name: "an authority key identifier that is critical", alter: func(c *x509.Certificate) { critical(c, 35) }, says: "authorityKeyIdentifier has critical = true"},
		{name: "CSR-2 a foreign extension", edit: extensionOf(99, false, 0x05, 0x00), says: "6 extensions"},
		{name: "a subject key identifier, which leaves do not have here", edit: func(c *x509.Certificate) { c.SubjectKeyId = []byte{1} }, says: "6 extensions"},
		{name: "no name", edit: func(c *x509.Certificate) { c.URIs, c.DNSNames, c.IPAddresses = nil, nil, nil }, says: "subjectAltName is missing"},
		{name: "an e-mail name besides", edit: func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b"} }, says: "names"},
		{name: "a DNS name besides", edit: func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "cart.shop") }, says: "names"},
		{name: "an IP address besides", edit: func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IP{10, 0, 0, 1}) }, says: "names"},
		{name: "a second URI", edit: func(c *x509.Certificate) { c.URIs = append(c.URIs, cart.URL()) }, says: "names"},
		{name: "CA:TRUE", edit: func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = true, -1; c.SubjectKeyId = nil }, says: "extensions"},
		{name: "CSR-2 CA:TRUE", edit: extensionOf(19, true, 0x30, 0x03, 0x01, 0x01, 0xff), says: "CA:FALSE"},
		{name: "CA:FALSE, spelt out against DER", alter: func(c *x509.Certificate) { revalue(c, 19, 0x30, 0x03, 0x01, 0x01, 0x00) }, says: "CA:FALSE"},
		{name: "CSR-9 no digitalSignature", edit: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }, says: "key usage"},
		{name: "CSR-9 certSign", edit: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, says: "key usage"},
		{name: "CSR-9 cRLSign", edit: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, says: "key usage"},
		{name: "CSR-9 keyEncipherment with ECDSA", edit: func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageKeyEncipherment }, says: "key usage"},
		{name: "CSR-9 another purpose besides", edit: func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) }, says: "extended key usage"},
		{name: "CSR-9 a purpose that nobody knows", edit: func(c *x509.Certificate) {
			c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}}
		}, says: "extended key usage"},
		{name: "another key", reword: func(w *ca.Want) { w.PublicKey = newP256(t).Public() }, says: "public key"},
		{name: "a key that is none", reword: func(w *ca.Want) { w.PublicKey = nil }, says: "public key"},
		{name: "CSR-8 an authority key identifier of another", alter: func(c *x509.Certificate) { c.AuthorityKeyId = []byte{1} }, says: "authority key identifier"},
		{name: "CSR-8 an authority key identifier without a key", alter: func(c *x509.Certificate) { c.AuthorityKeyId = nil }, says: "authority key identifier"},
		{name: "CSR-3 another signature algorithm", edit: func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA512 }, says: "signature algorithm"},
		{name: "valid from a second ahead", edit: func(c *x509.Certificate) { c.NotBefore = noon.Add(time.Second) }, says: "not valid yet"},
		{name: "valid from now", edit: func(c *x509.Certificate) { c.NotBefore = noon }, says: ""},
		{name: "backdated by 2 minutes", edit: func(c *x509.Certificate) { c.NotBefore = noon.Add(-2 * time.Minute) }, says: ""},
		{name: "backdated by more", edit: func(c *x509.Certificate) { c.NotBefore = noon.Add(-2*time.Minute - time.Second) }, says: "backdated"},
		{name: "the shortest life", edit: endsAfter(10 * time.Minute), says: ""},
		{name: "a shorter one", edit: endsAfter(10*time.Minute - time.Second), says: "too short"},
		{name: "the longest life", edit: endsAfter(24 * time.Hour), says: ""},
		{name: "a longer one", edit: endsAfter(24*time.Hour + time.Second), says: "too long"},
		{name: "ROT-1 as long as the path", edit: endsAfter(time.Hour), reword: func(w *ca.Want) { w.PathEnd = noon.Add(time.Hour) }, says: ""},
		{name: "ROT-1 longer than the path", edit: endsAfter(time.Hour + time.Second), reword: func(w *ca.Want) { w.PathEnd = noon.Add(time.Hour) }, says: "outlives"},
		{name: "the middle of its life is now", edit: endsAfter(time.Minute), reword: func(w *ca.Want) { w.MinLife = time.Second }, says: "middle"},
		{name: "the middle of its life is ahead", edit: endsAfter(time.Minute + time.Second), reword: func(w *ca.Want) { w.MinLife = time.Second }, says: ""},
	}
}

func critical(c *x509.Certificate, last int)   { setCritical(c, last, true) }
func uncritical(c *x509.Certificate, last int) { setCritical(c, last, false) }

func setCritical(c *x509.Certificate, last int, to bool) {
	for i := range c.Extensions {
		if c.Extensions[i].Id[3] == last {
			c.Extensions[i].Critical = to
		}
	}
}

func revalue(c *x509.Certificate, last int, value ...byte) {
	for i := range c.Extensions {
		if c.Extensions[i].Id[3] == last {
			c.Extensions[i].Value = value
		}
	}
}

// CSR-2, CSR-3, CSR-7, CSR-8, CSR-9, ROT-1: a leaf that departs from what was granted
// in one thing, whatever it is.
func TestCheck(t *testing.T) {
	named := func(u *url.URL) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.URIs = []*url.URL{u} }
	}
	faults := append(commonFaults(t), []broken{
		{name: "another identity", edit: named(&url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/shop/sa/pay"}), says: "names"},
		{name: "CSR-7 another spelling", edit: named(&url.URL{Scheme: "spiffe", Host: "Cluster.local", Path: "/ns/shop/sa/cart"}), says: "names"},
		{name: "CSR-7 an empty fragment", alter: func(c *x509.Certificate) { revalue(c, 17, sanOf(t, true, cart.String()+"#").Value...) }, says: "names"},
		{name: "servers only", edit: func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, says: "extended key usage"},
		{name: "clients only", edit: func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, says: "extended key usage"},
	}...)
	template := func() *x509.Certificate {
		return &x509.Certificate{
			URIs:        []*url.URL{cart.URL()},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
	}
	runBroken(t, faults, template, func(leaf, issuer *x509.Certificate, want ca.Want) error {
		return ca.Check(leaf, issuer, cart, want)
	})
}

func TestCheckServing(t *testing.T) {
	names := ca.ServingNames{DNS: []string{"a.example", "b.example"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	faults := append(commonFaults(t), []broken{
		{name: "a name less", edit: func(c *x509.Certificate) { c.DNSNames = c.DNSNames[:1] }, says: "names"},
		{name: "an IP address less", edit: func(c *x509.Certificate) { c.IPAddresses = nil }, says: "names"},
		{name: "another name", edit: func(c *x509.Certificate) { c.DNSNames[0] = "c.example" }, says: "names"},
		{name: "clients too", edit: func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) }, says: "extended key usage"},
	}...)
	template := func() *x509.Certificate {
		return &x509.Certificate{
			DNSNames:    []string{"a.example", "b.example"},
			IPAddresses: []net.IP{{127, 0, 0, 1}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
	}
	runBroken(t, faults, template, func(leaf, issuer *x509.Certificate, want ca.Want) error {
		return ca.CheckServing(leaf, issuer, names, want)
	})
}

func runBroken(t *testing.T, faults []broken, template func() *x509.Certificate, check func(leaf, issuer *x509.Certificate, want ca.Want) error) {
	issuer := newCA(t, "issuer", newP256(t), nil)
	key := newP256(t)
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			c := template()
			c.SerialNumber = big.NewInt(1)
			c.NotBefore, c.NotAfter = noon.Add(-time.Minute), noon.Add(time.Hour)
			c.KeyUsage = x509.KeyUsageDigitalSignature
			c.BasicConstraintsValid = true
			want := ca.Want{PublicKey: key.Public(), Now: noon, MinLife: 10 * time.Minute, MaxLife: 24 * time.Hour, PathEnd: noon.AddDate(1, 0, 0)}
			if tt.edit != nil {
				tt.edit(c)
			}
			if tt.reword != nil {
				tt.reword(&want)
			}
			leaf := sign(t, c, issuer, key.Public())
			if tt.alter != nil {
				tt.alter(leaf)
			}
			err := check(leaf, issuer.cert, want)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("the check says %v, want %q", err, tt.says)
			}
		})
	}
}

// keyEncipherment goes with RSA, and each kind of CA key with its algorithm.
func TestCheckByKey(t *testing.T) {
	for _, tt := range []struct {
		name, ca, leaf string
		usage          x509.KeyUsage
		alg            x509.SignatureAlgorithm
		says           string
	}{
		{"CSR-9 RSA with keyEncipherment", "P-256", "RSA-2048", x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, 0, ""},
		{"CSR-9 RSA without", "P-256", "RSA-2048", x509.KeyUsageDigitalSignature, 0, "key usage"},
		{"CSR-9 Ed25519 with keyEncipherment", "P-256", "Ed25519", x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, 0, "key usage"},
		{"CSR-3 P-384 signs with SHA-384", "P-384", "P-256", x509.KeyUsageDigitalSignature, x509.ECDSAWithSHA384, ""},
		{"CSR-3 P-384 signs with SHA-256", "P-384", "P-256", x509.KeyUsageDigitalSignature, x509.ECDSAWithSHA256, "signature algorithm"},
		{"CSR-3 RSA signs with SHA-256", "RSA-2048", "P-256", x509.KeyUsageDigitalSignature, x509.SHA256WithRSA, ""},
		{"CSR-3 RSA signs with PSS", "RSA-2048", "P-256", x509.KeyUsageDigitalSignature, x509.SHA256WithRSAPSS, "signature algorithm"},
		{"CSR-3 Ed25519", "Ed25519", "P-256", x509.KeyUsageDigitalSignature, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			issuer, key := newCA(t, "issuer", newKey(t, tt.ca), nil), newOtherKey(t, tt.leaf)
			leaf := sign(t, &x509.Certificate{
				SerialNumber: big.NewInt(1), NotBefore: noon, NotAfter: noon.Add(time.Hour),
				URIs: []*url.URL{cart.URL()}, KeyUsage: tt.usage, SignatureAlgorithm: tt.alg, BasicConstraintsValid: true,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			}, issuer, key.Public())
			err := ca.Check(leaf, issuer.cert, cart, ca.Want{PublicKey: key.Public(), Now: noon, MinLife: time.Minute, MaxLife: time.Hour, PathEnd: noon.Add(time.Hour)})
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Check: %v, want %q", err, tt.says)
			}
		})
	}
}

package material

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"testing"
	"time"
)

// checkMade names what is wrong with a CA that others might use, but that we
// never make.
func TestCheckMade(t *testing.T) {
	noon := time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)
	root, err := NewRoot(noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		edit func(*x509.Certificate)
		says string
	}{
		{"nothing", func(*x509.Certificate) {}, ""},
		{"it cannot sign CRLs", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign }, "key usage"},
		{"no path limit", func(c *x509.Certificate) { c.MaxPathLen = -1 }, "path length"},
		{"a path length of 0", func(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }, "path length"},
		{"the longest common name", func(c *x509.Certificate) { c.Subject.CommonName = strings.Repeat("a", 64) }, ""},
		{"a common name that is too long", func(c *x509.Certificate) { c.Subject.CommonName = strings.Repeat("a", 65) }, "common name"},
		{"it outlives its issuer", func(c *x509.Certificate) { c.NotAfter = noon.Add(2 * time.Hour) }, "outlives"},
		{"it has expired", func(c *x509.Certificate) { c.NotAfter = noon.Add(-time.Minute) }, "has expired"},
		{"it is no CA", func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = false, 0 }, "not a certificate authority"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"},
				NotBefore: noon.Add(-time.Hour), NotAfter: noon.Add(time.Hour),
				BasicConstraintsValid: true, IsCA: true, MaxPathLen: 1,
				KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
			}
			tt.edit(template)
			der, err := x509.CreateCertificate(rand.Reader, template, root.Cert, root.Key.Public(), root.Key)
			if err != nil {
				t.Fatal(err)
			}
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			err = checkMade(noon, cert, &root)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("checkMade: %v, want %q", err, tt.says)
			}
		})
	}
}

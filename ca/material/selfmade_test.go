package material_test

import (
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/google/go-cmp/cmp"
)

func TestMake(t *testing.T) {
	m, err := material.Make(noon)
	if err != nil {
		t.Fatal(err)
	}
	issuer, root := m.Chain[0], m.Roots[0]
	for _, tt := range []struct {
		name    string
		cert    *x509.Certificate
		pathLen int
	}{
		{"the root has no path limit", root, -1},
		{"the issuer leaves room for one CA", issuer, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.cert.MaxPathLen != tt.pathLen {
				t.Errorf("its path length is %d", tt.cert.MaxPathLen)
			}
			if want := x509.KeyUsageCertSign | x509.KeyUsageCRLSign; tt.cert.KeyUsage != want {
				t.Errorf("its key usage is %#x", int(tt.cert.KeyUsage))
			}
			if cn := tt.cert.Subject.CommonName; len(cn) > 64 || !strings.Contains(cn, fmt.Sprintf("%x", tt.cert.SubjectKeyId)) {
				t.Errorf("its common name is %q", cn)
			}
			if n := tt.cert.SerialNumber.BitLen(); n != 127 { // see ca.NewSerial
				t.Errorf("its serial number has %d bits", n)
			}
			if len(tt.cert.SubjectKeyId) != 20 {
				t.Errorf("CSR-8 its subject key identifier is %x", tt.cert.SubjectKeyId)
			}
			if !tt.cert.NotBefore.Equal(noon.Add(-time.Hour)) {
				t.Errorf("it is valid from %v", tt.cert.NotBefore)
			}
		})
	}
	a, err := ca.NewAuthority(noon, m, ca.DefaultProfile(trustDomain))
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Warnings(noon); got != nil {
		t.Errorf("warnings: %q", got)
	}
}

// The name of a CA and its key identifier have the same hash, whichever one x509
// would take.
func TestMakeNamesTheKey(t *testing.T) {
	t.Setenv("GODEBUG", "x509sha256skid=0")
	root, err := material.NewRoot(noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Bailiwick root %x", root.Cert.SubjectKeyId); root.Cert.Subject.CommonName != want {
		t.Errorf("its name is %q, want %q", root.Cert.Subject.CommonName, want)
	}
}

// An issuer ends with its root at the latest.
func TestIssuerEndsWithRoot(t *testing.T) {
	root, err := material.NewRoot(noon, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := material.NewIssuer(noon, root, 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if !issuer.Cert.NotAfter.Equal(root.Cert.NotAfter) {
		t.Errorf("the issuer ends at %v, the root at %v", issuer.Cert.NotAfter, root.Cert.NotAfter)
	}
	if _, err := material.NewIssuer(noon.Add(3*time.Hour), root, time.Hour); err == nil {
		t.Error("an issuer was made under an expired root")
	}
}

// What Files writes, Load reads, and OpenSSL verifies.
func TestFiles(t *testing.T) {
	made, err := material.Make(noon)
	if err != nil {
		t.Fatal(err)
	}
	written, err := material.Files(made)
	if err != nil {
		t.Fatal(err)
	}
	f := files{}
	for name, data := range written {
		f[name] = string(data)
	}
	loaded, warnings, err := material.Load(noon, f.read)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("Load: %v, %v", warnings, err)
	}
	again, err := material.Files(loaded)
	if err != nil {
		t.Fatal(err)
	}
	for name := range again {
		if name != "cert-chain.pem" { // which repeats the issuer, and so does what Load returns
			if diff := cmp.Diff(string(written[name]), string(again[name])); diff != "" {
				t.Errorf("%s (-written +again):\n%s", name, diff)
			}
		}
	}
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal("openssl is not installed, and it judges every certificate: install the package openssl")
	}
	dir := t.TempDir()
	for name, data := range written {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(openssl, "verify", "-x509_strict", "-no-CApath", "-attime", fmt.Sprint(noon.Unix()), "-CAfile", "root-cert.pem", "ca-cert.pem")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl verify: %v\n%s", err, out)
	}
}

func TestFilesOfNothing(t *testing.T) {
	if _, err := material.Files(ca.Material{}); err == nil {
		t.Error("nothing was written as if it were a CA")
	}
}

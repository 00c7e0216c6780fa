package certs

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Cacerts makes an authority below a root of its own, as an operator would, and
// returns the directory that holds both and the root.
func Cacerts(t testing.TB, now time.Time) (dir string, root *x509.Certificate) {
	t.Helper()
	dir = t.TempDir()
	r, err := NewRoot(now, "root of the tests")
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.Intermediate(now, "issuer of the tests")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteCacerts(dir, r); err != nil {
		t.Fatal(err)
	}
	return dir, r.Cert
}

// DeepCacerts makes an authority below another one below a root, and adds a
// second root to the trust bundle, as in the middle of a change of roots.
func DeepCacerts(t testing.TB, now time.Time) (dir string, root *x509.Certificate) {
	t.Helper()
	dir = t.TempDir()
	next, err := NewRoot(now, "next root of the tests")
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRoot(now, "root of the tests")
	if err != nil {
		t.Fatal(err)
	}
	between, err := r.Intermediate(now, "organisation of the tests")
	if err != nil {
		t.Fatal(err)
	}
	a, err := between.Intermediate(now, "issuer of the tests")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.WriteCacerts(dir, r); err != nil {
		t.Fatal(err)
	}
	for name, certs := range map[string][]*Authority{"cert-chain.pem": {a, between, r}, "root-cert.pem": {r, next}} {
		var text []byte
		for _, c := range certs {
			text = append(text, c.PEM()...)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, r.Cert
}

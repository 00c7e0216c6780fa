package certs

import (
	"crypto/x509"
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

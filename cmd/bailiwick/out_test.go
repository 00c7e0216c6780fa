package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func someReply(t *testing.T) *reply {
	t.Helper()
	authority, err := selfMade(time.Now(), defaultConfig().profile())
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &reply{key: key, chain: []*x509.Certificate{authority.Issuer()}, roots: authority.Roots()}
}

// TestOutIsForItsOwner writes over a file that everybody may read, and that
// somebody has open.
func TestOutIsForItsOwner(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key.pem")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close() //nolint:errcheck // it was only read
	r := someReply(t)
	if _, err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	if seen, err := io.ReadAll(open); err != nil || string(seen) != "old" {
		t.Errorf("who had the file open sees %q, %v", seen, err)
	}
	names := filesIn(t, dir)
	if len(names) != 3 {
		t.Errorf("it wrote %q", names)
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	block, _ := pem.Decode([]byte(readFile(t, path)))
	if block == nil {
		t.Fatal("no PEM")
	}
	if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil || !r.key.Equal(key) {
		t.Errorf("key.pem has another key, or none: %v", err)
	}
}

// TestOutThatFails finds a directory where a file should go. The key, which comes
// last, is not written then, and nothing is left lying about.
func TestOutThatFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "cert-chain.pem", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := someReply(t).write(dir); err == nil {
		t.Error("no error")
	}
	if names := filesIn(t, dir); len(names) != 3 || names[2] != "root-cert.pem" {
		t.Errorf("there are %q", names)
	}
}

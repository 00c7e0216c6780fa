package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
)

// loadAuthority reads the key and certificates in dir, which is laid out as
// Istio's cacerts, and proves that they can sign. What it warns of does not keep
// them from it.
func loadAuthority(now time.Time, dir string, c *Config, kubectl string) (*ca.Authority, []string, error) {
	if dir == "" {
		return nil, nil, &exitError{exitUsage, errors.New("--material names no directory; it must hold ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")}
	}
	m, warnings, err := material.Load(now, func(name string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, nil, fmt.Errorf("key material in %s:\n%w\n%s", dir, err, materialHint(err, dir, kubectl+" -n "+shellWord(c.IstioNamespace)))
	}
	authority, err := ca.NewAuthority(now, m, c.profile())
	if err != nil {
		return nil, nil, fmt.Errorf("key material in %s:\n%w\n%s", dir, err, materialHint(err, dir, kubectl+" -n "+shellWord(c.IstioNamespace)))
	}
	var all []string
	for _, w := range warnings {
		all = append(all, filepath.Join(dir, w.String()))
	}
	return authority, append(all, authority.Warnings(now)...), nil
}

// materialHint says what to do about key material that cannot be used. Kubectl
// asks where the Secret is.
func materialHint(err error, dir, kubectl string) string {
	cert, key := shellWord(filepath.Join(dir, "ca-cert.pem")), shellWord(filepath.Join(dir, "ca-key.pem"))
	if _, ok := errors.AsType[*ca.ValidityError](err); ok {
		return "if the certificate is right, the clock of this machine is wrong: compare date -u with another machine's"
	}
	switch {
	case errors.Is(err, material.ErrIncomplete):
		return "all four files are wanted, and only cert-chain.pem may be empty; what is in the Secret says: " + kubectl + " describe secret cacerts"
	case errors.Is(err, material.ErrOtherKey):
		return "these must print the same: openssl x509 -noout -pubkey -in " + cert + "\nand: openssl pkey -pubout -in " + key
	case errors.Is(err, syscall.ENOTDIR):
		return "--material must name the directory that has the four files: " + shellWord(filepath.Dir(dir))
	case errors.Is(err, fs.ErrPermission):
		return "let the user that runs this read it; who that is, and who may, say: id; ls -l " + shellWord(dir)
	}
	return "ca-cert.pem must be a CA certificate, and cert-chain.pem lead from it to one in root-cert.pem; who issued what says:\n" +
		"  openssl x509 -noout -subject -issuer -in " + cert + "\n" +
		"  openssl x509 -noout -subject -issuer -in " + shellWord(filepath.Join(dir, "root-cert.pem"))
}

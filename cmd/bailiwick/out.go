package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// write writes roots, chain and key, in this order, and returns the paths:
// whoever waits for the key finds what belongs to it. Every file is for its owner only, and comes into its
// place complete, so that a key is never in a file that was open to others
// before.
func (r *reply) write(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("writing the certificate: %w\nname another directory with --out", err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(r.key)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, f := range []struct {
		name string
		data []byte
	}{
		{"root-cert.pem", encodeAll(r.roots)},
		{"cert-chain.pem", encodeAll(r.chain)},
		{"key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})},
	} {
		path := filepath.Join(dir, f.name)
		if err := replaceFile(path, f.data); err != nil {
			return nil, fmt.Errorf("writing the certificate: %w\nname another directory with --out", err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// replaceFile puts a file for its owner only in the place of path.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func encodeAll(certs []*x509.Certificate) []byte {
	var out []byte
	for _, cert := range certs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return out
}

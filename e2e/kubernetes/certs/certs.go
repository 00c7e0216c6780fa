// Package certs makes the few certificates that the tests need. It is written
// against crypto/x509 alone and shares nothing with the program under test, so
// that neither can hide the other's mistakes.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An Authority is a key that signs certificates, and its own certificate.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewRoot makes a self-signed authority with a life of ten days.
func NewRoot(now time.Time, name string) (*Authority, error) {
	return sign(authority(now, name, 10*24*time.Hour), nil)
}

// Intermediate makes an authority below a, with a life of five days.
func (a *Authority) Intermediate(now time.Time, name string) (*Authority, error) {
	return sign(authority(now, name, 5*24*time.Hour), a)
}

// WriteServing makes a TLS server's certificate and key for the names and
// writes them as dir/tls.crt and dir/tls.key.
func (a *Authority) WriteServing(now time.Time, dir string, ips []net.IP, names ...string) error {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "server"},
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: ips,
		DNSNames:    names,
	}
	s, err := sign(t, a)
	if err != nil {
		return err
	}
	return s.write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
}

// WriteCacerts writes a below root in the layout of Istio's cacerts Secret.
func (a *Authority) WriteCacerts(dir string, root *Authority) error {
	if err := a.write(filepath.Join(dir, "ca-cert.pem"), filepath.Join(dir, "ca-key.pem")); err != nil {
		return err
	}
	chain := append(a.PEM(), root.PEM()...)
	if err := os.WriteFile(filepath.Join(dir, "cert-chain.pem"), chain, 0o600); err != nil {
		return fmt.Errorf("writing a certificate chain: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "root-cert.pem"), root.PEM(), 0o600); err != nil {
		return fmt.Errorf("writing a root certificate: %w", err)
	}
	return nil
}

// PEM returns the certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Cert.Raw})
}

func (a *Authority) write(cert, key string) error {
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	if err := os.WriteFile(cert, a.PEM(), 0o600); err != nil {
		return fmt.Errorf("writing a certificate: %w", err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("writing a key: %w", err)
	}
	return nil
}

func authority(now time.Time, name string, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// sign signs what t describes, with a new key of its own if by is nil.
func sign(t *x509.Certificate, by *Authority) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	if t.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	if by == nil {
		by = &Authority{t, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, by.Cert, &key.PublicKey, by.key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading back a certificate: %w", err)
	}
	return &Authority{cert, key}, nil
}

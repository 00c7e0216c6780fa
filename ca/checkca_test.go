package ca_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca"
)

// TestCAKeyPolicy has each bound on the key of a CA, just within and just beyond.
func TestCAKeyPolicy(t *testing.T) {
	odd := func(bits uint) *big.Int {
		n := new(big.Int).Lsh(big.NewInt(1), bits-1)
		return n.SetBit(n, 0, 1)
	}
	for _, tt := range []struct {
		name string
		key  crypto.PublicKey
		says string // "" if it is accepted
	}{
		{"P-256", newP256(t).Public(), ""},
		{"P-384", newECDSA(t, elliptic.P384()).Public(), ""},
		{"P-521", newECDSA(t, elliptic.P521()).Public(), "P-521"},
		{"P-224", newECDSA(t, elliptic.P224()).Public(), "P-224"},
		{"Ed25519", newKey(t, "Ed25519").Public(), ""},
		{"RSA of 2047 bits", &rsa.PublicKey{N: odd(2047), E: 65537}, "2047 bits"},
		{"RSA of 2048 bits", &rsa.PublicKey{N: odd(2048), E: 65537}, ""},
		{"RSA of 8192 bits", &rsa.PublicKey{N: odd(8192), E: 65537}, ""},
		{"RSA of 8193 bits", &rsa.PublicKey{N: odd(8193), E: 65537}, "8193 bits"},
		{"RSA with exponent 3", &rsa.PublicKey{N: odd(2048), E: 3}, "exponent 3"},
		{"a key that is none", "x", "type string"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cert := *newCA(t, "root", newP256(t), nil).cert
			cert.PublicKey = tt.key
			says(t, ca.CheckCA(noon, &cert), tt.says)
		})
	}
}

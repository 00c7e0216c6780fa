package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
)

// checkLeafKey reports why pub is not certified. It costs next to nothing
// whatever pub is.
func checkLeafKey(pub crypto.PublicKey, allowEd25519 bool) error {
	switch pub := pub.(type) {
	case *ecdsa.PublicKey:
		return checkCurve(pub)
	case *rsa.PublicKey:
		return checkRSA(pub, 4096)
	case ed25519.PublicKey:
		if allowEd25519 {
			return nil
		}
		return errors.New("keys of type Ed25519 are not accepted here")
	default:
		return fmt.Errorf("keys of type %T are not accepted", pub)
	}
}

// checkCAKey reports why pub is not accepted on the signing path. Larger RSA
// keys are accepted there than in leaves: operators choose them, and verifiers
// stop at 8192 bits.
func checkCAKey(pub crypto.PublicKey) error {
	switch pub := pub.(type) {
	case *ecdsa.PublicKey:
		return checkCurve(pub)
	case *rsa.PublicKey:
		return checkRSA(pub, 8192)
	case ed25519.PublicKey:
		return nil
	default:
		return fmt.Errorf("keys of type %T are not accepted", pub)
	}
}

func checkCurve(pub *ecdsa.PublicKey) error {
	if pub.Curve != elliptic.P256() && pub.Curve != elliptic.P384() {
		return fmt.Errorf("ECDSA keys on %s are not accepted, only on P-256 and P-384", pub.Curve.Params().Name)
	}
	return nil
}

// checkRSA also bounds the exponent: the cost of a verification grows with it,
// small ones have a history of forgeries, and Go itself stops at 31 bits.
func checkRSA(pub *rsa.PublicKey, most int) error {
	switch bits := pub.N.BitLen(); {
	case bits < 2048 || bits > most:
		return fmt.Errorf("RSA keys of %d bits are not accepted, only of 2048 to %d", bits, most)
	case pub.N.Bit(0) == 0:
		return errors.New("the RSA modulus is even")
	case pub.E < 65537 || pub.E > math.MaxInt32 || pub.E%2 == 0:
		return fmt.Errorf("the RSA exponent %d is not accepted", pub.E)
	}
	return nil
}

// isSound reports whether a signature with alg proves anything.
func isSound(alg x509.SignatureAlgorithm) bool {
	switch alg {
	case x509.SHA256WithRSA, x509.SHA384WithRSA, x509.SHA512WithRSA,
		x509.SHA256WithRSAPSS, x509.SHA384WithRSAPSS, x509.SHA512WithRSAPSS,
		x509.ECDSAWithSHA256, x509.ECDSAWithSHA384, x509.ECDSAWithSHA512,
		x509.PureEd25519:
		return true
	default:
		return false
	}
}

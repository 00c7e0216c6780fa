package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"

	"github.com/golang-jwt/jwt/v5"

	"github.com/bailiwick-ca/bailiwick/e2e/conformance"
)

// readTokenKey returns what signs tokens as an API server does that was given
// this file as --service-account-signing-key-file; nil if no file is named.
func readTokenKey(file string) (conformance.Sign, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the token key: %w", err)
	}
	key, method, err := parseTokenKey(data)
	if err != nil {
		return nil, fmt.Errorf("the token key in %s: %w", file, err)
	}
	kid, err := keyID(key.Public())
	if err != nil {
		return nil, err
	}
	return func(claims map[string]any) (string, error) {
		t := jwt.NewWithClaims(method, jwt.MapClaims(claims))
		t.Header["kid"] = kid
		return t.SignedString(key)
	}, nil
}

func parseTokenKey(data []byte) (crypto.Signer, jwt.SigningMethod, error) {
	var rsaKey *rsa.PrivateKey
	ecKey, err := jwt.ParseECPrivateKeyFromPEM(data)
	if err != nil {
		if rsaKey, err = jwt.ParseRSAPrivateKeyFromPEM(data); err != nil {
			return nil, nil, fmt.Errorf("it is neither an RSA key nor one of an elliptic curve: %w", err)
		}
		return rsaKey, jwt.SigningMethodRS256, nil
	}
	methods := map[int]jwt.SigningMethod{256: jwt.SigningMethodES256, 384: jwt.SigningMethodES384, 521: jwt.SigningMethodES512}
	method, ok := methods[ecKey.Params().BitSize]
	if !ok {
		return nil, nil, fmt.Errorf("tokens are not signed with keys of curve %s", ecKey.Params().Name)
	}
	return ecKey, method, nil
}

// keyID is the kid that Kubernetes gives a key: the SHA-256 of its
// SubjectPublicKeyInfo.
func keyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

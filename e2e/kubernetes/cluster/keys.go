package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
)

// DefaultIssuer is the issuer of a cluster that says nothing else.
const DefaultIssuer = "https://kubernetes.default.svc"

// A TokenKey signs service account tokens.
type TokenKey struct {
	signer crypto.Signer
}

// NewECDSAKey returns a new P-256 key.
func NewECDSAKey() (TokenKey, error) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return TokenKey{}, fmt.Errorf("making a token key: %w", err)
	}
	return TokenKey{k}, nil
}

// NewRSAKey returns a new RSA key of 2048 bits.
func NewRSAKey() (TokenKey, error) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return TokenKey{}, fmt.Errorf("making a token key: %w", err)
	}
	return TokenKey{k}, nil
}

// ID is the key's kid: base64url(SHA-256(SubjectPublicKeyInfo)).
func (k TokenKey) ID() (string, error) {
	spki, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	if err != nil {
		return "", fmt.Errorf("encoding a token key: %w", err)
	}
	sum := sha256.Sum256(spki)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// Sign returns a token with exactly these claims, for the cases that no API
// server would sign: what it says of its world is the test's to say.
func (k TokenKey) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	kid, err := k.ID()
	if err != nil {
		t.Fatal(err)
	}
	alg := "RS256"
	if _, ok := k.signer.(*ecdsa.PrivateKey); ok {
		alg = "ES256"
	}
	signed := segment(t, map[string]any{"alg": alg, "kid": kid}) + "." + segment(t, claims)
	sig, err := k.sign([]byte(signed))
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// sign signs as RFC 7518, Sections 3.3 and 3.4, have it.
func (k TokenKey) sign(text []byte) ([]byte, error) {
	sum := sha256.Sum256(text)
	ec, ok := k.signer.(*ecdsa.PrivateKey)
	if !ok {
		sig, err := k.signer.Sign(rand.Reader, sum[:], crypto.SHA256)
		if err != nil {
			return nil, fmt.Errorf("signing a token: %w", err)
		}
		return sig, nil
	}
	r, s, err := ecdsa.Sign(rand.Reader, ec, sum[:])
	if err != nil {
		return nil, fmt.Errorf("signing a token: %w", err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return sig, nil
}

// PrivatePEM returns the key as a file for an API server has it.
func (k TokenKey) PrivatePEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.signer)
	if err != nil {
		return nil, fmt.Errorf("encoding a token key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func (k TokenKey) publicPEM() ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding a token key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func segment(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// Claims returns the claims of a token, unverified.
func Claims(t testing.TB, token string) map[string]any {
	t.Helper()
	return decode(t, token, 1)
}

// Header returns the header of a token.
func Header(t testing.TB, token string) map[string]any {
	t.Helper()
	return decode(t, token, 0)
}

func decode(t testing.TB, token string, part int) map[string]any {
	t.Helper()
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		t.Fatalf("a token of %d segments", len(segments))
	}
	text, err := base64.RawURLEncoding.DecodeString(segments[part])
	if err != nil {
		t.Fatalf("decoding a token: %v", err)
	}
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("decoding a token: %v", err)
	}
	return v
}

// Forge returns a token that says it is signed by k, and is signed by another
// key of the same kind.
func (k TokenKey) Forge(t testing.TB, by TokenKey, claims map[string]any) string {
	t.Helper()
	signed := k.Sign(t, claims)
	signed = signed[:strings.LastIndex(signed, ".")]
	sig, err := by.sign([]byte(signed))
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(sig)
}

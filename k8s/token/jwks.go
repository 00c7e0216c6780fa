package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Bounds on what a key set may be. The API server is trusted to tell its keys,
// not to be free of accidents.
const (
	maxKeySet  = 1 << 20 // bytes
	minRSABits = 2048
	maxRSABits = 8192
)

// A key verifies the signatures of one algorithm.
type key struct {
	id     string
	method jwt.SigningMethod
	public publicKey
}

type publicKey interface {
	Equal(other crypto.PublicKey) bool
}

// algorithms returns the algorithms that Kubernetes signs with (kubernetes,
// pkg/serviceaccount/jwt.go), which are those of the keys that parseKey accepts.
func algorithms() []string { return []string{"RS256", "ES256", "ES384", "ES512"} }

// A keySet is one answer of the API server.
type keySet struct {
	raw    []byte
	keys   map[string]*key
	readAt time.Time // when it was asked for
}

// parseKeySet parses a JWK Set (RFC 7517, Section 5). A key that is of no use
// to us does not make the others so; why it is left out is among the
// complaints. A set without a single key is more likely an accident than the
// withdrawal of them all, and an error.
func parseKeySet(raw []byte, readAt time.Time) (*keySet, []string, error) {
	if len(raw) > maxKeySet {
		return nil, nil, fmt.Errorf("the key set is larger than %d bytes", maxKeySet)
	}
	var list struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, nil, fmt.Errorf("parsing the key set: %w", err)
	}
	keys := make(map[string]*key)
	var ambiguous, complaints []string
	for i, data := range list.Keys {
		k, err := parseKey(data)
		if err != nil {
			complaints = append(complaints, fmt.Sprintf("key %d: %v", i, err))
			continue
		}
		if old := keys[k.id]; old != nil && !old.public.Equal(k.public) {
			complaints = append(complaints, fmt.Sprintf("key %d: there is another key with the ID %s", i, quote(k.id)))
			ambiguous = append(ambiguous, k.id)
		}
		keys[k.id] = k
	}
	for _, id := range ambiguous { // an ID is a hash of its key: which of them lies cannot be told
		delete(keys, id)
	}
	if len(keys) == 0 {
		return nil, complaints, fmt.Errorf("none of %d keys in the key set is of use", len(list.Keys))
	}
	return &keySet{raw, keys, readAt}, complaints, nil
}

// A jsonKey is a JWK (RFC 7517, Section 4; RFC 7518, Sections 6.2 and 6.3).
type jsonKey struct {
	KeyType string `json:"kty"`
	Use     string `json:"use"`
	Alg     string `json:"alg"`
	ID      string `json:"kid"`
	N       string `json:"n"`
	E       string `json:"e"`
	Curve   string `json:"crv"`
	X       string `json:"x"`
	Y       string `json:"y"`
}

func parseKey(data []byte) (*key, error) {
	var j jsonKey
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, errors.New("not a JSON Web Key")
	}
	if j.ID == "" || len(j.ID) > maxKeyID {
		return nil, errors.New("its ID is missing or too long")
	}
	if j.Use != "" && j.Use != "sig" {
		return nil, fmt.Errorf("%s: its use is %s", quote(j.ID), quote(j.Use))
	}
	k := &key{id: j.ID}
	var err error
	switch j.KeyType {
	case "RSA":
		k.method = jwt.SigningMethodRS256
		k.public, err = j.rsa()
	case "EC":
		k.method, k.public, err = j.ec()
	default:
		err = fmt.Errorf("its type is %s", quote(j.KeyType))
	}
	if err == nil && j.Alg != "" && j.Alg != k.method.Alg() {
		err = fmt.Errorf("it is for %s", quote(j.Alg))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", quote(j.ID), err)
	}
	return k, nil
}

func (j *jsonKey) rsa() (*rsa.PublicKey, error) {
	n, err := decode(j.N)
	if err != nil {
		return nil, fmt.Errorf("modulus: %w", err)
	}
	e, err := decode(j.E)
	if err != nil {
		return nil, fmt.Errorf("exponent: %w", err)
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < minRSABits || bits > maxRSABits {
		return nil, fmt.Errorf("it has %d bits, not %d to %d", bits, minRSABits, maxRSABits)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 {
		return nil, errors.New("its exponent is not a sane one")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func (j *jsonKey) ec() (jwt.SigningMethod, *ecdsa.PublicKey, error) {
	var method jwt.SigningMethod
	var curve elliptic.Curve
	switch j.Curve {
	case "P-256":
		method, curve = jwt.SigningMethodES256, elliptic.P256()
	case "P-384":
		method, curve = jwt.SigningMethodES384, elliptic.P384()
	case "P-521":
		method, curve = jwt.SigningMethodES512, elliptic.P521()
	default:
		return nil, nil, fmt.Errorf("its curve is %s", quote(j.Curve))
	}
	x, errX := decode(j.X)
	y, errY := decode(j.Y)
	if size := (curve.Params().BitSize + 7) / 8; errX != nil || errY != nil || len(x) != size || len(y) != size {
		return nil, nil, errors.New("its coordinates are malformed")
	}
	public, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, nil, fmt.Errorf("parsing the point: %w", err)
	}
	return method, public, nil
}

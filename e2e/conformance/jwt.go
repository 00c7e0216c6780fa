package conformance

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // for crypto.SHA256
	_ "crypto/sha512" // for crypto.SHA384 and crypto.SHA512
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
)

// A jwt is a token taken apart, believed in nothing.
type jwt struct {
	header, claims map[string]any
	signature      []byte
}

func parseJWT(token string) (*jwt, error) {
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return nil, fmt.Errorf("a token of %d segments", len(segments))
	}
	j := &jwt{}
	for i, into := range []any{&j.header, &j.claims} {
		text, err := base64.RawURLEncoding.DecodeString(segments[i])
		if err != nil {
			return nil, err
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // a time must not come out as 1.7e9
		if err := d.Decode(into); err != nil {
			return nil, err
		}
	}
	var err error
	j.signature, err = base64.RawURLEncoding.DecodeString(segments[2])
	return j, err
}

// seconds returns a claim that is a time.
func (j *jwt) seconds(claim string) int64 {
	n, _ := j.claims[claim].(json.Number)
	seconds, _ := n.Int64()
	return seconds
}

// with returns the token with members of its header replaced, and those that are
// nil removed.
func (j *jwt) with(header map[string]any) *jwt {
	all := maps.Clone(j.header)
	for name, v := range header {
		if all[name] = v; v == nil {
			delete(all, name)
		}
	}
	return &jwt{all, j.claims, j.signature}
}

// signed is what the signature is over (RFC 7515, Section 5.1).
func (j *jwt) signed() string {
	var segments []string
	for _, v := range []any{j.header, j.claims} {
		text, _ := json.Marshal(v) // it was JSON before
		segments = append(segments, base64.RawURLEncoding.EncodeToString(text))
	}
	return strings.Join(segments, ".")
}

// under is the token under this signature.
func (j *jwt) under(signature []byte) string {
	return j.signed() + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// A jws is an algorithm that Kubernetes signs tokens with (RFC 7518, Section 3).
type jws struct {
	hash  crypto.Hash
	curve elliptic.Curve // nil for RSA
}

func algorithmOf(name any) (jws, error) {
	switch name {
	case "RS256":
		return jws{hash: crypto.SHA256}, nil
	case "ES256":
		return jws{crypto.SHA256, elliptic.P256()}, nil
	case "ES384":
		return jws{crypto.SHA384, elliptic.P384()}, nil
	case "ES512":
		return jws{crypto.SHA512, elliptic.P521()}, nil
	}
	return jws{}, fmt.Errorf("a token signed with %v", name)
}

// newKey makes a key that signs so, and which no cluster has.
func (a jws) newKey() (crypto.Signer, error) {
	if a.curve == nil {
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return ecdsa.GenerateKey(a.curve, rand.Reader)
}

func (a jws) sign(key crypto.Signer, text string) ([]byte, error) {
	h := a.hash.New()
	h.Write([]byte(text))
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, k, h.Sum(nil))
		if err != nil {
			return nil, err
		}
		n := (a.curve.Params().BitSize + 7) / 8
		return append(r.FillBytes(make([]byte, n)), s.FillBytes(make([]byte, n))...), nil
	}
	return key.Sign(rand.Reader, h.Sum(nil), a.hash)
}

// by is the token signed by another key of the same kind.
func (j *jwt) by(key crypto.Signer) (string, error) {
	a, err := algorithmOf(j.header["alg"])
	if err != nil {
		return "", err
	}
	signature, err := a.sign(key, j.signed())
	return j.under(signature), err
}

// byHMAC is the token signed with a secret, which makes its key whatever the
// receiver takes for the secret (RFC 8725, Section 2.1).
func (j *jwt) byHMAC(alg string, hash crypto.Hash, secret []byte) string {
	j = j.with(map[string]any{"alg": alg})
	h := hmac.New(hash.New, secret)
	h.Write([]byte(j.signed()))
	return j.under(h.Sum(nil))
}

// jwk is a public key as RFC 7518, Section 6, writes it.
func jwk(public crypto.PublicKey) (map[string]any, error) {
	encode := base64.RawURLEncoding.EncodeToString
	switch k := public.(type) {
	case *rsa.PublicKey:
		return map[string]any{"kty": "RSA", "n": encode(k.N.Bytes()), "e": encode(big.NewInt(int64(k.E)).Bytes())}, nil
	case *ecdsa.PublicKey:
		point, err := k.Bytes() // 4, x, y
		if err != nil {
			return nil, err
		}
		half := len(point) / 2
		return map[string]any{"kty": "EC", "crv": k.Params().Name, "x": encode(point[1 : 1+half]), "y": encode(point[1+half:])}, nil
	}
	return nil, fmt.Errorf("a key of type %T", public)
}

// publicKey finds a key in the cluster's key set.
func publicKey(ctx context.Context, keys func(context.Context) ([]byte, error), kid any) (crypto.PublicKey, error) {
	text, err := keys(ctx)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []struct{ Kid, Kty, Crv, X, Y, N, E string }
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	decode := base64.RawURLEncoding.DecodeString
	for _, k := range set.Keys {
		if k.Kid != kid {
			continue
		}
		x, errX := decode(k.X + k.N)
		y, errY := decode(k.Y + k.E)
		if err := errors.Join(errX, errY); err != nil {
			return nil, err
		}
		if k.Kty == "RSA" {
			return &rsa.PublicKey{N: new(big.Int).SetBytes(x), E: int(new(big.Int).SetBytes(y).Int64())}, nil
		}
		if curve, ok := curves[k.Crv]; ok {
			return ecdsa.ParseUncompressedPublicKey(curve, append(append([]byte{4}, x...), y...))
		}
	}
	return nil, fmt.Errorf("the key set has no key %v", kid)
}

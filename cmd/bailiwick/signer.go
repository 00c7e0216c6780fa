package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/golang-jwt/jwt/v5"
)

// demoIssuer is the issuer of the demo's tokens, as most clusters have it.
const demoIssuer = "https://kubernetes.default.svc.cluster.local"

// A signer makes the tokens of a cluster that exists only in memory, in place
// of its API server.
type signer struct {
	key *ecdsa.PrivateKey
	kid string
}

func newSigner() (*signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	kid, err := keyID(key.Public())
	return &signer{key, kid}, err
}

// token returns a token of the caller, as the API server would make it.
func (s *signer) token(c authz.Caller, audience string, now time.Time, life time.Duration) (string, error) {
	bound := map[string]any{
		"namespace":      c.ServiceAccount.Namespace,
		"serviceaccount": map[string]string{"name": c.ServiceAccount.Name, "uid": c.ServiceAccountUID},
	}
	if c.Bound() {
		bound["pod"] = map[string]string{"name": c.Pod, "uid": c.PodUID}
	}
	if c.Node != "" {
		node := map[string]string{"name": c.Node}
		if c.NodeUID != "" {
			node["uid"] = c.NodeUID
		}
		bound["node"] = node
	}
	t := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"iss": demoIssuer,
		"sub": "system:serviceaccount:" + c.ServiceAccount.Namespace + ":" + c.ServiceAccount.Name,
		"aud": []string{audience},
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(life).Unix(),
		"jti":           rand.Text(),
		"kubernetes.io": bound,
	})
	t.Header["kid"] = s.kid
	return t.SignedString(s.key)
}

// keys returns the signer's key set, as the API server publishes it.
func (s *signer) keys(context.Context) ([]byte, error) {
	point, err := s.key.PublicKey.Bytes() // 4, X, Y: SEC 1, Section 2.3.3
	if err != nil {
		return nil, err
	}
	coordinate := base64.RawURLEncoding.EncodeToString
	return json.Marshal(map[string]any{"keys": []map[string]string{{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": s.kid,
		"x": coordinate(point[1:33]), "y": coordinate(point[33:]),
	}}})
}

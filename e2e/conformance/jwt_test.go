package conformance

import (
	"context"
	"crypto"
	"encoding/json"
	"testing"

	golangjwt "github.com/golang-jwt/jwt/v5"
)

// What this package signs with a key is good for that key by another's reading,
// and a key that it writes down is read back: else a forgery would be refused
// for the wrong reason.
func TestSignaturesAreGood(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256", "ES384", "ES512"} {
		t.Run(alg, func(t *testing.T) {
			a, err := algorithmOf(alg)
			if err != nil {
				t.Fatal(err)
			}
			key, err := a.newKey()
			if err != nil {
				t.Fatal(err)
			}
			written, err := jwk(key.Public())
			if err != nil {
				t.Fatal(err)
			}
			written["kid"] = "k"
			set, err := json.Marshal(map[string]any{"keys": []any{map[string]any{"kid": "other"}, written}})
			if err != nil {
				t.Fatal(err)
			}
			public, err := publicKey(t.Context(), func(context.Context) ([]byte, error) { return set, nil }, "k")
			if err != nil {
				t.Fatal(err)
			}
			token, err := (&jwt{header: map[string]any{"alg": alg, "kid": "k"}, claims: map[string]any{"sub": "x"}}).by(key)
			if err != nil {
				t.Fatal(err)
			}
			_, err = golangjwt.Parse(token, func(*golangjwt.Token) (any, error) { return public, nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHMACIsGood(t *testing.T) {
	token := (&jwt{header: map[string]any{}, claims: map[string]any{}}).byHMAC("HS384", crypto.SHA384, []byte("secret"))
	if _, err := golangjwt.Parse(token, func(*golangjwt.Token) (any, error) { return []byte("secret"), nil }); err != nil {
		t.Error(err)
	}
}

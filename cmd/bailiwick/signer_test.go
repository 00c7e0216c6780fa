package main

import (
	"encoding/base64"
	"testing"
)

// raw returns something like a token, with a payload that is not made by a
// library.
func (s *signer) raw(t *testing.T, payload string) string {
	t.Helper()
	segment := base64.RawURLEncoding.EncodeToString
	return segment([]byte(`{"alg":"ES256"}`)) + "." + segment([]byte(payload)) + "." + segment([]byte(s.kid))
}

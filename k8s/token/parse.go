package token

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxKeyID is the longest key ID that Kubernetes lets an external signer use
// (kubernetes, pkg/serviceaccount/externaljwt/plugin, validateJWTHeader).
const maxKeyID = 1024

// An unverified is a token that is well-formed, but may have been made up.
type unverified struct {
	signed    string // header and payload as in the token: what the signature is over
	signature []byte
	alg, kid  string
	claims    claims
}

// parse takes a token apart (RFC 7515, Section 5.2). It is stricter than the
// parser of golang-jwt, which reads JSON as encoding/json does: names in any
// case, and the last of two values of one name. The API server's parser does
// neither, and a token must mean the same to both. Signatures are the library's
// affair: see [unverified.verify].
func parse(token string) (*unverified, error) {
	header, payload, signature, err := segments(token)
	if err != nil {
		return nil, err
	}
	t := &unverified{signed: token[:len(header)+1+len(payload)]}
	if t.alg, t.kid, err = parseHeader(header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if t.claims, err = parsePayload(payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if t.signature, err = decode(signature); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	return t, nil
}

// segments cuts a token in three. It allocates nothing, however many dots there
// are (CVE-2025-30204).
func segments(token string) (header, payload, signature string, err error) {
	header, rest, ok := strings.Cut(token, ".")
	payload, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.Contains(signature, ".") {
		return "", "", "", errors.New("it does not have three segments")
	}
	return header, payload, signature, nil
}

// decode decodes a segment. There is one way to write it: no padding, no
// trailing bits, and no line breaks, which encoding/base64 skips even if strict.
func decode(segment string) ([]byte, error) {
	if strings.ContainsAny(segment, "\r\n") {
		return nil, errors.New("a line break in base64url")
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	if err != nil {
		return nil, errors.New("not base64url")
	}
	return data, nil
}

// parseHeader reads the algorithm and the key ID. The only other member that is
// allowed is typ, as the API server allows its signers no other; so crit, jwk,
// jku, x5c and all that will come are refused.
func parseHeader(segment string) (alg, kid string, err error) {
	data, err := decode(segment)
	if err != nil {
		return "", "", err
	}
	o := parseObject(data)
	alg, kid = o.text("alg"), o.text("kid")
	if typ := o.optionalText("typ"); typ != "" && typ != "JWT" {
		o.fail("typ", "is not JWT")
	}
	for _, name := range o.others("alg", "kid", "typ") {
		o.fail(name, "is not allowed")
	}
	if !slices.Contains(algorithms(), alg) {
		o.fail("alg", "is not one of %s", strings.Join(algorithms(), ", "))
	}
	if kid == "" || len(kid) > maxKeyID {
		o.fail("kid", "is empty or longer than %d bytes", maxKeyID)
	}
	return alg, kid, o.err()
}

func parsePayload(segment string) (claims, error) {
	data, err := decode(segment)
	if err != nil {
		return claims{}, err
	}
	return parseClaims(data)
}

// verify checks the signature. The key has the one method that it is for, so
// that a token cannot choose how its signature is to be understood
// (RFC 8725, Section 3.1).
func (t *unverified) verify(k *key) error {
	if t.alg != k.method.Alg() {
		return fmt.Errorf("the token says %s, and its key is for %s", t.alg, k.method.Alg())
	}
	if k.method.Verify(t.signed, t.signature, k.public) != nil {
		return fmt.Errorf("the signature was not made with the key %s", quote(k.id))
	}
	return nil
}

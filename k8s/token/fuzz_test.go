package token_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// FuzzVerify presents any text as a request's authorization. A caller may only
// come of one that was signed for, to the byte.
func FuzzVerify(f *testing.F) {
	genuine := make(map[string]bool)
	for _, s := range []signer{rsaSigner(), p256Signer(), p384Signer(), p521Signer()} {
		genuine[ztunnel(noon, s).String()] = true
	}
	for _, text := range slices.Sorted(maps.Keys(genuine)) {
		parts := strings.Split(text, ".")
		for _, seed := range []string{
			text, text + "=", text[:len(text)-1], parts[0] + "." + parts[1], parts[0] + "." + parts[1] + ".",
			b64([]byte(`{"alg":"none","kid":"rsa"}`)) + "." + parts[1] + ".",
			b64([]byte(`{"alg":"HS256","kid":"rsa"}`)) + "." + parts[1] + "." + parts[2],
			parts[0] + "." + b64([]byte("{}")) + "." + parts[2], "..", strings.Repeat(".", 100), "",
		} {
			f.Add("Bearer " + seed)
		}
	}
	f.Add("")
	f.Add("bearer")
	f.Add("Basic eDp5")
	v := newAPI(rsaSigner(), p256Signer(), p384Signer(), p521Signer()).verifier(f, at(noon))
	f.Fuzz(func(t *testing.T, authorization string) {
		caller, err := v.Verify(t.Context(), []string{authorization}, nil)
		scheme, text, _ := strings.Cut(authorization, " ")
		switch {
		case err == nil && !genuine[text]:
			t.Errorf("%q is %+v", authorization, caller)
		case err == nil && caller != wantCaller:
			t.Errorf("%q is %+v", authorization, caller)
		case err != nil && strings.EqualFold(scheme, "Bearer") && genuine[text]:
			t.Errorf("%q is refused: %v", authorization, err)
		case err != nil && caller != (authz.Caller{}):
			t.Errorf("a caller comes with the error %v", err)
		}
		checkNoSecret(t, err, text)
	})
}

// FuzzClaims signs any text as a payload. What is accepted must be a bound token
// of an account that its own text names.
func FuzzClaims(f *testing.F) {
	good := string(toJSON(ztunnel(noon, p256Signer()).claims))
	f.Add(good)
	f.Add(strings.Replace(good, "ztunnel", "Ztunnel", 2))
	f.Add(strings.Replace(good, `"sub"`, `"sub":"x","sub"`, 1))
	f.Add(good + "{}")
	f.Add("{}")
	f.Add("[]")
	v := newAPI(p256Signer()).verifier(f, at(noon), func(c *token.Config) { c.CacheSize = 1 })
	f.Fuzz(func(t *testing.T, payload string) {
		text := p256Signer().sign(`{"alg":"ES256","kid":"p256"}`, payload)
		caller, err := v.Verify(t.Context(), []string{"Bearer " + text}, nil)
		if err != nil {
			checkNoSecret(t, err, text)
			return
		}
		sa := caller.ServiceAccount
		if sa.Namespace == "" || sa.Name == "" || caller.ServiceAccountUID == "" || caller.Pod == "" || caller.PodUID == "" ||
			strings.ContainsAny(sa.String()+caller.Pod+caller.Node, " :\\\"\n") {
			t.Errorf("%q is %+v", payload, caller)
		}
	})
}

// FuzzKeySet gives any text as the answer of the API server.
func FuzzKeySet(f *testing.F) {
	f.Add(keySet(rsaSigner(), p256Signer(), p384Signer(), p521Signer(), rsaShort()))
	f.Add([]byte(`{"keys":[{"kty":"EC","kid":"p256","crv":"P-256","x":"","y":""}]}`))
	f.Add([]byte(`{"keys":[null,{}]}`))
	text := ztunnel(noon, p256Signer()).String()
	f.Fuzz(func(t *testing.T, answer []byte) {
		caller, err := verify(t, (&api{keys: answer}).verifier(t, at(noon)), text)
		if err == nil && caller != wantCaller {
			t.Errorf("got %+v", caller)
		}
	})
}

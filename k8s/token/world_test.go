package token_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// A signer is a key of an API server.
type signer struct {
	kid     string
	method  jwt.SigningMethod
	private crypto.Signer
}

// Keys are slow to make, and none of the tests changes one.
var (
	rsaSigner  = sync.OnceValue(func() signer { return newRSA("rsa", 2048) })
	rsaOther   = sync.OnceValue(func() signer { return newRSA("rsa-other", 2048) })
	rsaShort   = sync.OnceValue(func() signer { return newRSA("rsa-short", 1024) })
	p256Signer = sync.OnceValue(func() signer { return newEC("p256", jwt.SigningMethodES256, elliptic.P256()) })
	p256Other  = sync.OnceValue(func() signer { return newEC("p256-other", jwt.SigningMethodES256, elliptic.P256()) })
	p384Signer = sync.OnceValue(func() signer { return newEC("p384", jwt.SigningMethodES384, elliptic.P384()) })
	p521Signer = sync.OnceValue(func() signer { return newEC("p521", jwt.SigningMethodES512, elliptic.P521()) })
)

func newRSA(kid string, bits int) signer {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return signer{kid, jwt.SigningMethodRS256, key}
}

func newEC(kid string, method jwt.SigningMethod, curve elliptic.Curve) signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		panic(err)
	}
	return signer{kid, method, key}
}

func (s signer) jwk() map[string]any {
	jwk := map[string]any{"use": "sig", "kid": s.kid, "alg": s.method.Alg()}
	switch public := s.private.Public().(type) {
	case *rsa.PublicKey:
		jwk["kty"] = "RSA"
		jwk["n"] = b64(public.N.Bytes())
		jwk["e"] = b64(big.NewInt(int64(public.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := public.Bytes()
		if err != nil {
			panic(err)
		}
		half := (len(point) - 1) / 2
		jwk["kty"] = "EC"
		jwk["crv"] = public.Params().Name
		jwk["x"] = b64(point[1 : 1+half])
		jwk["y"] = b64(point[1+half:])
	}
	return jwk
}

// sign signs a header and a payload as they are.
func (s signer) sign(header, payload string) string {
	text := b64([]byte(header)) + "." + b64([]byte(payload))
	signature, err := s.method.Sign(text, s.private)
	if err != nil {
		panic(err)
	}
	return text + "." + b64(signature)
}

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// keySet is the answer of /openid/v1/jwks.
func keySet(signers ...signer) []byte {
	var keys []any
	for _, s := range signers {
		keys = append(keys, s.jwk())
	}
	return toJSON(map[string]any{"keys": keys})
}

func toJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

type object = map[string]any

// A draft is a token before it is signed.
type draft struct {
	header, claims object
	signer         signer
}

func (d *draft) kubernetes() object { return d.claims["kubernetes.io"].(object) }

func (d *draft) String() string {
	return d.signer.sign(string(toJSON(d.header)), string(toJSON(d.claims)))
}

// ztunnel drafts the token of a node proxy's pod, as the kubelet got it at now.
func ztunnel(now time.Time, s signer) *draft {
	return &draft{
		signer: s,
		header: object{"alg": s.method.Alg(), "kid": s.kid},
		claims: object{
			"iss": issuer,
			"sub": "system:serviceaccount:istio-system:ztunnel",
			"aud": []string{"istio-ca"},
			"iat": now.Unix(),
			"nbf": now.Unix(),
			"exp": now.Add(12 * time.Hour).Unix(),
			"jti": "0b4e3c2a-7f2b-4d49-9a57-6d4c3f0f7c11",
			"kubernetes.io": object{
				"namespace":      "istio-system",
				"serviceaccount": object{"name": "ztunnel", "uid": "sa-uid"},
				"pod":            object{"name": "ztunnel-x7k2p", "uid": "pod-uid"},
				"node":           object{"name": "node-1", "uid": "node-uid"},
			},
		},
	}
}

// wantCaller is what that token proves.
var wantCaller = authz.Caller{
	ServiceAccount:    authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"},
	ServiceAccountUID: "sa-uid",
	Pod:               "ztunnel-x7k2p",
	PodUID:            "pod-uid",
	Node:              "node-1",
	NodeUID:           "node-uid",
	TokenID:           "0b4e3c2a-7f2b-4d49-9a57-6d4c3f0f7c11",
}

// An api is an API server, as far as tokens go.
type api struct {
	mu      sync.Mutex
	keys    []byte
	down    error
	latency time.Duration
	verdict func(token string) (authenticationv1.TokenReviewStatus, error)

	readings int
	reviews  int
}

func (a *api) serve(signers ...signer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys, a.down = keySet(signers...), nil
}

func (a *api) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
}

func (a *api) fetchKeys(ctx context.Context) ([]byte, error) {
	a.mu.Lock()
	a.readings++
	keys, down, latency := a.keys, a.down, a.latency
	a.mu.Unlock()
	return keys, errors.Join(down, wait(ctx, latency))
}

func (a *api) review(ctx context.Context, token string, _ []string) (authenticationv1.TokenReviewStatus, error) {
	a.mu.Lock()
	a.reviews++
	verdict, down, latency := a.verdict, a.down, a.latency
	a.mu.Unlock()
	if err := errors.Join(down, wait(ctx, latency)); err != nil {
		return authenticationv1.TokenReviewStatus{}, err
	}
	return verdict(token)
}

func (a *api) counts() (readings, reviews int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.readings, a.reviews
}

func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verifier returns a verifier that asks a, changed by what is given.
func (a *api) verifier(t testing.TB, change ...func(*token.Config)) *token.Verifier {
	t.Helper()
	c := token.Config{Issuers: []string{issuer}, FetchKeys: a.fetchKeys}
	for _, f := range change {
		f(&c)
	}
	v, err := token.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (a *api) reviewing(c *token.Config) { c.Review = a.review }

func at(now time.Time) func(*token.Config) {
	return func(c *token.Config) { c.Now = func() time.Time { return now } }
}

// newAPI returns an API server with the signers' keys.
func newAPI(signers ...signer) *api {
	a := &api{}
	a.serve(signers...)
	return a
}

// verify presents a token as a client does.
func verify(t testing.TB, v *token.Verifier, text string) (authz.Caller, error) {
	t.Helper()
	return v.Verify(t.Context(), []string{"Bearer " + text}, []string{"Kubernetes"})
}

func wantOK(t testing.TB, v *token.Verifier, text string) {
	t.Helper()
	caller, err := verify(t, v, text)
	if err != nil || caller != wantCaller {
		t.Errorf("got %+v, %v", caller, err)
	}
}

func wantReason(t testing.TB, v *token.Verifier, text string, want authz.Reason) {
	t.Helper()
	caller, err := verify(t, v, text)
	checkRefusal(t, caller, err, want)
	checkNoSecret(t, err, text)
}

// checkRefusal checks that an answer is "no", or "cannot tell", for a reason.
func checkRefusal(t testing.TB, caller authz.Caller, err error, want authz.Reason) {
	t.Helper()
	if caller != (authz.Caller{}) {
		t.Errorf("a caller comes with the error %v: %+v", err, caller)
	}
	no, isNo := errors.AsType[*authz.Denial](err)
	maybe, isMaybe := errors.AsType[*authz.Undecided](err)
	switch {
	case isNo && no.Reason == want && !undecided(want):
	case isMaybe && maybe.Reason == want && undecided(want) && maybe.Err != nil:
	default:
		t.Errorf("got %v, want %s", err, want)
	}
}

func undecided(r authz.Reason) bool {
	switch r {
	case authz.NoCapacity, authz.APITrouble, authz.KeysTooOld, authz.DeadlinePassed:
		return true
	default:
		return false
	}
}

// checkNoSecret checks that a message is short, on one line, and has nothing of
// the token in it.
func checkNoSecret(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil {
		return
	}
	message := err.Error()
	if len(message) > 2000 || strings.ContainsFunc(message, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("the message is not fit for a log: %q", message)
	}
	for segment := range strings.SplitSeq(text, ".") {
		if len(segment) > 8 && strings.Contains(message, segment) {
			t.Errorf("the message has a part of the token in it: %s", message)
		}
	}
}

// with returns o with a member changed.
func with(o object, name string, value any) object {
	o = maps.Clone(o)
	o[name] = value
	return o
}

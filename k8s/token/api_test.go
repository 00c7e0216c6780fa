package token_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// serveAPI serves the paths of an API server that have to do with tokens, and
// returns a client of it.
func serveAPI(t *testing.T, handlers map[string]http.HandlerFunc) *authenticationclient.AuthenticationV1Client {
	t.Helper()
	mux := http.NewServeMux()
	for path, handle := range handlers {
		mux.HandleFunc(path, handle)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := authenticationclient.NewForConfig(&rest.Config{
		Host:        server.URL,
		BearerToken: "our own",
		// As clients of built-in types are set up; the two paths have other types.
		ContentConfig: rest.ContentConfig{AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// only answers as the API server does: 406 if its one type is not accepted.
func only(contentType, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != contentType || r.Header.Get("Authorization") != "Bearer our own" {
			w.WriteHeader(http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, answer)
	}
}

func TestKeysFrom(t *testing.T) {
	client := serveAPI(t, map[string]http.HandlerFunc{
		"GET /openid/v1/jwks": only("application/jwk-set+json", string(keySet(rsaSigner()))),
	}).RESTClient()
	a := &api{}
	v := a.verifier(t, at(noon), func(c *token.Config) { c.FetchKeys = token.KeysFrom(client) })
	wantOK(t, v, ztunnel(noon, rsaSigner()).String())
}

func TestKeysFromTrouble(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"forbidden": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"too large": only("application/jwk-set+json", strings.Repeat(" ", 1<<20+1)),
		// More than the connection holds: the server waits for us to close it.
		"far too large": only("application/jwk-set+json", strings.Repeat(" ", 64<<20)),
	} {
		client := serveAPI(t, map[string]http.HandlerFunc{"GET /openid/v1/jwks": handle}).RESTClient()
		// The end of the test must not close what we leave open.
		if data, err := token.KeysFrom(client)(context.WithoutCancel(t.Context())); err == nil || data != nil {
			t.Errorf("%s: got %d bytes, %v", name, len(data), err)
		}
	}
}

func TestTheLargestKeySet(t *testing.T) {
	client := serveAPI(t, map[string]http.HandlerFunc{"GET /openid/v1/jwks": only("application/jwk-set+json", strings.Repeat(" ", 1<<20))}).RESTClient()
	if data, err := token.KeysFrom(client)(t.Context()); err != nil || len(data) != 1<<20 {
		t.Errorf("got %d bytes, %v", len(data), err)
	}
}

func TestReviewsFrom(t *testing.T) {
	var got authenticationv1.TokenReview
	client := serveAPI(t, map[string]http.HandlerFunc{
		"POST /apis/authentication.k8s.io/v1/tokenreviews": func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			answer := got
			answer.Status = reviewed()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(toJSON(answer))
		},
	})
	a := newAPI(rsaSigner())
	text := ztunnel(noon, p256Signer()).String()
	wantOK(t, a.verifier(t, at(noon), func(c *token.Config) { c.Review = token.ReviewsFrom(client) }), text)
	if want := (authenticationv1.TokenReviewSpec{Token: text, Audiences: []string{"istio-ca"}}); !cmp.Equal(got.Spec, want) {
		t.Error(cmp.Diff(want, got.Spec))
	}
	if _, err := token.ReviewsFrom(serveAPI(t, nil))(t.Context(), text, nil); err == nil {
		t.Error("no error of an API server without reviews")
	}
}

func TestDiscoverIssuer(t *testing.T) {
	for _, tt := range []struct{ document, want string }{
		{`{"issuer":"https://a.example","jwks_uri":"https://b.example/keys"}`, "https://a.example"},
		{`{"issuer":""}`, ""},
		{`{"jwks_uri":"https://b.example/keys"}`, ""},
		{`not JSON`, ""},
	} {
		client := serveAPI(t, map[string]http.HandlerFunc{
			"GET /.well-known/openid-configuration": only("application/json", tt.document),
		}).RESTClient()
		got, err := token.DiscoverIssuer(t.Context(), client)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v", tt.document, got, err)
		}
	}
	if _, err := token.DiscoverIssuer(t.Context(), serveAPI(t, nil).RESTClient()); err == nil {
		t.Error("no error of an API server without discovery")
	}
}

func TestIssuerOf(t *testing.T) {
	legacy := ztunnel(noon, rsaSigner())
	legacy.claims = object{"iss": "kubernetes/serviceaccount"}
	for text, want := range map[string]string{
		ztunnel(noon, rsaSigner()).String():     issuer,
		legacy.String():                         "kubernetes/serviceaccount",
		"":                                      "",
		"a.b.c":                                 "",
		"e30.!.e30":                             "",
		rsaSigner().sign("{}", "{}"):            "",
		rsaSigner().sign("{}", `{"iss":["a"]}`): "",
	} {
		got, err := token.IssuerOf(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

func TestSubjectOf(t *testing.T) {
	for text, want := range map[string]string{
		ztunnel(noon, rsaSigner()).String():       "system:serviceaccount:istio-system:ztunnel",
		rsaSigner().sign("{}", `{"sub":"alice"}`): "alice",
		"":                                    "",
		"a.b.c":                               "",
		rsaSigner().sign("{}", `{"iss":"a"}`): "",
		rsaSigner().sign("{}", `{"Sub":"a"}`): "",
		rsaSigner().sign("{}", `{"sub":"a","sub":"b"}`):   "",
		rsaSigner().sign("{}", `{"sub":["a"]}`):           "",
		"x" + rsaSigner().sign("{}", `{"sub":"a"}`) + ".": "",
	} {
		got, err := token.SubjectOf(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// OPS-4: the same of tokens.
func TestPermissions(t *testing.T) {
	paths := rbacv1.PolicyRule{NonResourceURLs: []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}, Verbs: []string{"get"}}
	reviews := rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}
	if diff := cmp.Diff([]rbacv1.PolicyRule{paths}, token.Permissions(false)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{paths, reviews}, token.Permissions(true)); diff != "" {
		t.Error(diff)
	}
}

func TestStatus(t *testing.T) {
	a := newAPI(rsaSigner())
	v := a.verifier(t, at(noon))
	text := ztunnel(noon, rsaSigner()).String()
	wantOK(t, v, text)
	wantOK(t, v, text)
	want := token.Status{Keys: 1, KeysReadAt: noon, KeyReadings: 1, Remembered: 1, Hits: 1, Misses: 1, ClusterOther: 2}
	if diff := cmp.Diff(want, v.Status()); diff != "" {
		t.Error(diff)
	}
}

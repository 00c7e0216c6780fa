package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/authz"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// A fakeAPI is an API server that knows of tokens, and has the objects of the
// demonstration, which do not change.
type fakeAPI struct {
	*httptest.Server

	forbidden  map[string]bool // such as "list pods" and "get /openid/v1/jwks"
	keys       func() ([]byte, error)
	discovery  http.HandlerFunc
	review     func(token string) authenticationv1.TokenReviewStatus
	kubeconfig string
}

// newFakeAPI returns one that publishes the keys of s, says that its issuer is
// that of the demonstration's tokens, and refuses every token that it is to
// review.
func newFakeAPI(t *testing.T, s *signer) *fakeAPI {
	t.Helper()
	o, err := parseObjects(demoCluster)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeAPI{
		keys: func() ([]byte, error) { return s.keys(t.Context()) },
		discovery: func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(t, w, "application/json", map[string]string{"issuer": demoIssuer})
		},
		review: func(string) authenticationv1.TokenReviewStatus { return authenticationv1.TokenReviewStatus{} },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/{resource}", func(w http.ResponseWriter, r *http.Request) { f.objects(t, o, w, r) })
	mux.HandleFunc("GET /openid/v1/jwks", func(w http.ResponseWriter, r *http.Request) {
		if f.forbidden["get "+r.URL.Path] {
			forbid(t, w, fmt.Sprintf("forbidden: User %q cannot get path %q", ownUser, r.URL.Path))
			return
		}
		keys, err := f.keys()
		if err != nil {
			t.Error(err)
		}
		writeJSON(t, w, "application/jwk-set+json", json.RawMessage(keys))
	})
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) { f.discovery(w, r) })
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) { f.answer(t, w, r) })
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	f.kubeconfig = writeKubeconfig(t, fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: fake
clusters: [{name: fake, cluster: {server: %q}}]
contexts: [{name: fake, context: {cluster: fake, user: nobody}}]
users: [{name: nobody, user: {}}]
`, f.URL))
	return f
}

// answer reviews a token.
func (f *fakeAPI) answer(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	var review authenticationv1.TokenReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
		t.Error(err)
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	review.Status = f.review(review.Spec.Token)
	writeJSON(t, w, "application/json", review)
}

// ownUser is who asks, to an API server that forbids it.
const ownUser = "system:serviceaccount:istio-system:bailiwick"

// objects lists, and watches in vain. Like servers before Kubernetes 1.34 it
// offers no streamed lists.
func (f *fakeAPI) objects(t *testing.T, o *objects, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	resource, query := r.PathValue("resource"), r.URL.Query()
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
	}
	if f.forbidden[verb+" "+resource] {
		forbid(t, w, fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group \"\" at the cluster scope", resource, ownUser, verb, resource))
		return
	}
	switch {
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusBadRequest)
		return
	case verb == "watch":
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	list := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": map[string]string{"resourceVersion": "1"}}
	var items []any
	add := func(m metav1.ObjectMeta) { items = append(items, map[string]any{"metadata": m}) }
	switch {
	case resource == "pods" && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata"):
		list["apiVersion"], list["kind"] = "v1", "PodList"
		for _, p := range o.pods {
			if p.Status.Phase == corev1.PodRunning {
				items = append(items, p)
			}
		}
	case resource == "nodes":
		for _, m := range o.nodes {
			add(m)
		}
	case resource == "serviceaccounts":
		for _, m := range o.accounts {
			add(m)
		}
	}
	list["items"] = items
	writeJSON(t, w, "application/json", list)
}

// forbid answers as the API server does where a role is missing.
func forbid(t *testing.T, w http.ResponseWriter, message string) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	writeJSON(t, w, "application/json", metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: message,
	})
}

// accepted is the review of a good token of c.
func accepted(c authz.Caller, tokenID string) authenticationv1.TokenReviewStatus {
	const extra = "authentication.kubernetes.io/"
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		Audiences:     []string{"istio-ca"},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + c.ServiceAccount.Namespace + ":" + c.ServiceAccount.Name,
			UID:      c.ServiceAccountUID,
			Extra: map[string]authenticationv1.ExtraValue{
				extra + "pod-name": {c.Pod}, extra + "pod-uid": {c.PodUID},
				extra + "node-name": {c.Node}, extra + "node-uid": {c.NodeUID},
				extra + "credential-id": {"JTI=" + tokenID},
			},
		},
	}
}

func writeJSON(t *testing.T, w http.ResponseWriter, contentType string, value any) {
	t.Helper()
	w.Header().Set("Content-Type", contentType)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Log(err) // the client has gone
	}
}

func writeKubeconfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

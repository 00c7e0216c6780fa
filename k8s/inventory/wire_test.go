package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// An apiServer answers as an API server does, as far as we ask.
type apiServer struct {
	mu    sync.Mutex
	asked map[string]bool // "verb resource"
	urls  []string
}

// ServeHTTP takes a request apart as an API server does for authorization.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
	namespace := ""
	if parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	resource, verb := parts[0], "list"
	switch {
	case r.Method != http.MethodGet:
		verb = r.Method
	case len(parts) == 2:
		verb = "get"
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	}
	s.mu.Lock()
	s.asked[verb+" "+resource] = true
	s.urls = append(s.urls, verb+" "+r.URL.String())
	s.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	switch verb {
	case "get":
		s.get(w, resource, namespace, parts[1])
	case "list":
		s.list(w, resource, r)
	case "watch":
		s.watch(w, resource, r)
	}
}

func (s *apiServer) get(w http.ResponseWriter, resource, namespace, name string) {
	for _, o := range s.objects(resource) {
		if m := o.(metav1.Object); m.GetName() == name && m.GetNamespace() == namespace {
			_ = json.NewEncoder(w).Encode(o)
			return
		}
	}
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
	})
}

func (s *apiServer) list(w http.ResponseWriter, resource string, r *http.Request) {
	kind := "PartialObjectMetadataList"
	version := "meta.k8s.io/v1"
	if resource == pods && !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		kind, version = "PodList", "v1"
	}
	items := s.objects(resource)
	if strings.Contains(r.URL.Query().Get("fieldSelector"), "metadata.name=") {
		items = []any{}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": version, "kind": kind, "items": items, "metadata": map[string]any{"resourceVersion": "100"},
	})
}

func (s *apiServer) watch(w http.ResponseWriter, resource string, r *http.Request) {
	e := json.NewEncoder(w)
	for _, o := range s.objects(resource) {
		_ = e.Encode(map[string]any{"type": "ADDED", "object": o})
	}
	end := metaObject("", "", "")
	end.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	if resource == pods {
		end.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	}
	end.ResourceVersion = "100"
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	_ = e.Encode(map[string]any{"type": "BOOKMARK", "object": end})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func (s *apiServer) objects(resource string) []any {
	if resource == pods {
		o := podObject("shop", "pay-1", "pay", "n1", "p-pay-1")
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		return []any{o}
	}
	o := metaObject("", "n1", "u-n1")
	if resource == serviceAccounts {
		o = metaObject("shop", "cart", "a-cart")
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	return []any{o}
}

// OPS-4: the role that is made of Permissions must permit what the code does, and
// nothing else.
func TestPermissionsAreWhatIsAskedOfTheAPI(t *testing.T) {
	s := &apiServer{asked: make(map[string]bool)}
	server := httptest.NewServer(s)
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	v := newTestInventory(t, func(c *Config) {
		c.Client, c.Metadata = kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config)
		c.ProbeEvery, c.Hold = 20*time.Millisecond, time.Millisecond
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	eventually(t, v.Synced)

	// Every probe returns the version that the watch is at, so each proves.
	synced := time.Now()
	eventually(t, func() bool { return v.provenSince(synced) })

	// A look at the API, which finds neither the caller's pod nor its account.
	facts, err := v.live.read(ctx, new(cart()))
	must(t, err)
	q := cart()
	if f := facts.facts(noon(), &q); f.Node.UID != "u-n1" || f.TargetAccount.UID != "a-cart" || f.CallerAccount.UID != "" {
		t.Errorf("%+v", f)
	}
	q.Target.Name = "pay"
	if f := v.index.facts(noon(), &q); f.Live != 1 || f.LiveUID != "p-pay-1" {
		t.Errorf("%+v", f)
	}

	// As fallback, in the way of servers without streamed lists.
	if _, err := v.pods.list(ctx, podSource(v.config.Client)); err != nil {
		t.Error(err)
	}
	for _, st := range v.Status() {
		if !st.Synced || st.Objects != 1 || st.Err != nil {
			t.Errorf("%+v", st)
		}
	}
	cancel()
	must(t, <-done)
	if err := v.Run(ctx); err == nil {
		t.Error("it runs twice")
	}

	permitted := make(map[string]bool)
	for _, rule := range Permissions() {
		if !slices.Equal(rule.APIGroups, []string{corev1.GroupName}) {
			t.Errorf("API groups %q", rule.APIGroups)
		}
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				permitted[verb+" "+resource] = true
			}
		}
	}
	// Lists in pages are made where there are no streams, and metadata is
	// listed by the probes.
	if diff := cmp.Diff(permitted, s.asked); diff != "" {
		t.Errorf("permitted (-), asked (+):\n%s", diff)
	}
	s.wantURLs(t)
}

// TestALiveLookSaysWhatTheAPISays asks for what there is and for what there is not,
// and then asks an API server that fails.
func TestALiveLookSaysWhatTheAPISays(t *testing.T) {
	ask := func(handler http.Handler) ([4]string, [4]bool) {
		server := httptest.NewServer(handler)
		defer server.Close()
		config := &rest.Config{Host: server.URL, QPS: -1}
		a := liveAPI(kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config))
		found, errPods := a.podsOn(t.Context(), "n1")
		none, errPod := a.pod(t.Context(), types.NamespacedName{Namespace: "shop", Name: "gone"})
		n, errNode := a.node(t.Context(), "n1")
		account, errAccount := a.account(t.Context(), types.NamespacedName{Namespace: "shop", Name: "gone"})
		var got [4]string
		for _, p := range found {
			got[0] += p.uid
		}
		if none != nil {
			got[1] = none.uid
		}
		if n != nil {
			got[2] = n.uid
		}
		if account != nil {
			got[3] = account.uid
		}
		return got, [4]bool{errPods != nil, errPod != nil, errNode != nil, errAccount != nil}
	}
	if got, errs := ask(&apiServer{asked: make(map[string]bool)}); got != [4]string{"p-pay-1", "", "u-n1", ""} || errs != [4]bool{} {
		t.Errorf("pods on n1, a pod, node n1, an account: %q; failed: %v", got, errs)
	}
	forbidden := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	if got, errs := ask(forbidden); got != [4]string{} || errs != [4]bool{true, true, true, true} {
		t.Errorf("of an API server that fails: %q; failed: %v", got, errs)
	}
}

func (s *apiServer) wantURLs(t *testing.T) {
	t.Helper()
	selector := "fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
	for _, want := range []string{
		"watch /api/v1/pods?allowWatchBookmarks=true&" + selector + "&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&",
		"list /api/v1/pods?" + selector + "&limit=500",
		"list /api/v1/pods?limit=1",
		"list /api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
		"list /api/v1/namespaces/istio-system/pods?fieldSelector=metadata.name%3Dzt-1",
		"get /api/v1/nodes/n1",
		"get /api/v1/namespaces/istio-system/serviceaccounts/ztunnel",
		"watch /api/v1/serviceaccounts?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&",
	} {
		if !slices.ContainsFunc(s.urls, func(u string) bool { return u == want || strings.HasSuffix(want, "&") && strings.HasPrefix(u, want) }) {
			t.Errorf("not asked: %s", want)
		}
	}
	if t.Failed() {
		fmt.Println(strings.Join(slices.Compact(s.urls), "\n"))
	}
}

// eventually waits for what goes over a socket, which no bubble can hold.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatal("it never comes")
}

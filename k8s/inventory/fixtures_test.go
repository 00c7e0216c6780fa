package inventory

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
)

// noon is when the tests begin that have no clock.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func podObject(namespace, name, account, node, uid string, change ...func(*corev1.Pod)) *corev1.Pod {
	o := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{ServiceAccountName: account, NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(o)
	}
	return o
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.Status.Phase = p }
}

func deletedAt(t time.Time) func(*corev1.Pod) {
	return func(o *corev1.Pod) { o.DeletionTimestamp = &metav1.Time{Time: t} }
}

func mirror(o *corev1.Pod) {
	o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

func metaObject(namespace, name, uid string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
}

// zt1 is the node agent on n1.
func zt1() authz.Caller {
	return authz.Caller{
		ServiceAccount:    authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"},
		ServiceAccountUID: "a-ztunnel",
		Pod:               "zt-1", PodUID: "p-zt-1",
		Node: "n1", NodeUID: "u-n1",
	}
}

// cart asks on n1 for the account shop/cart.
func cart() authz.Query {
	return authz.Query{Caller: zt1(), Target: authz.ServiceAccount{Namespace: "shop", Name: "cart"}}
}

func newTestInventory(t testing.TB, change ...func(*Config)) *Inventory {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Client:   fake.NewClientset(),
		Metadata: metadatafake.NewSimpleMetadataClient(scheme),
		Logger:   slog.New(slog.DiscardHandler),
		Now:      time.Now,
	}
	for _, f := range change {
		f(&c)
	}
	v, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sync lists a cluster with the agent on n1, the account shop/cart and no pod
// of it, as of now, at version 100.
func (v *Inventory) sync(t testing.TB) {
	t.Helper()
	for _, r := range v.resources() {
		r.age.lists(v.now(), true)
	}
	must(t, v.pods.Replace([]any{podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1")}, "100"))
	must(t, v.nodes.Replace([]any{metaObject("", "n1", "u-n1"), metaObject("", "n2", "u-n2")}, "100"))
	must(t, v.accounts.Replace([]any{metaObject("istio-system", "ztunnel", "a-ztunnel"), metaObject("shop", "cart", "a-cart")}, "100"))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hasPod is enough for tests about a missing pod.
func hasPod(f authz.Facts) bool { return f.Live > 0 }

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

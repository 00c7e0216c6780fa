package inventory

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnExportIsNeverTooOldAndNothingIsLate(t *testing.T) {
	e, err := FromObjects(
		[]corev1.Pod{
			*podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1"),
			*podObject("shop", "cart-1", "cart", "n1", "p-cart-1"),
			*podObject("shop", "cart-2", "cart", "n1", "p-cart-2", phase(corev1.PodSucceeded)),
			*podObject("shop", "cart-3", "cart", "", "p-cart-3"),
		},
		[]metav1.ObjectMeta{metaObject("", "n1", "u-n1").ObjectMeta},
		[]metav1.ObjectMeta{metaObject("istio-system", "ztunnel", "a-ztunnel").ObjectMeta, metaObject("shop", "cart", "a-cart").ObjectMeta},
		noon)
	must(t, err)
	want := authz.Facts{
		CallerAccount: authz.Account{UID: "a-ztunnel"},
		CallerPod:     authz.Pod{UID: "p-zt-1", Account: zt1().ServiceAccount, Node: "n1"},
		Node:          authz.Node{UID: "u-n1"},
		TargetAccount: authz.Account{UID: "a-cart"},
		Live:          1,
		LiveUID:       "p-cart-1",
	}
	looked, err := e.Look(noon().Add(1000*time.Hour), cart())
	must(t, err)
	confirmed, err := e.Confirm(context.Background(), cart(), func(authz.Facts) bool { return false })
	must(t, err)
	if looked != want || confirmed != want {
		t.Errorf("%+v and %+v, want %+v", looked, confirmed, want)
	}
}

func TestAFileThatIsNoClusterIsRefused(t *testing.T) {
	ok := metaObject("shop", "cart", "u").ObjectMeta
	tests := []struct {
		name            string
		pods            []corev1.Pod
		nodes, accounts []metav1.ObjectMeta
		err             string
	}{
		{name: "nothing at all"},
		{name: "a pod and an account of one name", pods: []corev1.Pod{{ObjectMeta: ok}}, accounts: []metav1.ObjectMeta{ok}},
		{name: "a pod without a name", pods: []corev1.Pod{{}}, err: "pod / lacks a name"},
		{name: "a pod without a namespace", pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}}, err: "pod /a lacks"},
		{name: "a pod without a UID", pods: []corev1.Pod{*podObject("a", "b", "c", "n", "")}, err: "pod a/b has no UID"},
		{name: "a pod twice", pods: []corev1.Pod{{ObjectMeta: ok}, {ObjectMeta: ok}}, err: "pod shop/cart is there twice"},
		{name: "a node without a UID", nodes: []metav1.ObjectMeta{{Name: "n"}}, err: "node n has no UID"},
		{name: "a node twice", nodes: []metav1.ObjectMeta{{Name: "n", UID: "1"}, {Name: "n", UID: "2"}}, err: "node n is there twice"},
		{name: "an account without a namespace", accounts: []metav1.ObjectMeta{{Name: "a", UID: "1"}}, err: "service account /a lacks"},
		{name: "every problem", nodes: []metav1.ObjectMeta{{}}, accounts: []metav1.ObjectMeta{{}}, err: "service account / lacks"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := FromObjects(test.pods, test.nodes, test.accounts, noon)
			if test.err == "" {
				must(t, err)
			} else if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %q", err, test.err)
			}
		})
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	good := newTestInventory(t).config
	if good.MaxStaleness != 5*time.Minute || good.ProbeEvery != 30*time.Second || good.Hold != time.Second || good.MaxWaiting != 4 ||
		good.MaxJoining != 32 || good.LiveRequests != 200 || good.LiveBurst != 400 || good.LiveTimeout != 5*time.Second {
		t.Errorf("defaults are not what the documentation says: %+v", good)
	}
	tests := []struct {
		err    string
		change func(*Config)
	}{
		{"Client", func(c *Config) { c.Client = nil }},
		{"Metadata", func(c *Config) { c.Metadata = nil }},
		{"Logger", func(c *Config) { c.Logger = nil }},
		{"Now", func(c *Config) { c.Now = nil }},
		{"durations", func(c *Config) { c.MaxStaleness = -1 }},
		{"durations", func(c *Config) { c.ProbeEvery = -1 }},
		{"durations", func(c *Config) { c.Hold = -1 }},
		{"durations", func(c *Config) { c.LiveTimeout = -1 }},
		{"ProbeEvery", func(c *Config) { c.ProbeEvery = c.MaxStaleness }},
		{"limits", func(c *Config) { c.MaxWaiting = -1 }},
		{"limits", func(c *Config) { c.MaxConfirming = -1 }},
		{"limits", func(c *Config) { c.MaxJoining = -1 }},
		{"limits", func(c *Config) { c.LiveRequests = -1 }},
		{"LiveBurst", func(c *Config) { c.LiveBurst = nodeBurst - 1 }},
	}
	for _, test := range tests {
		c := good
		test.change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), test.err) {
			t.Errorf("%v, want %q", err, test.err)
		}
	}
}

package inventory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// The first event about a pod is an Add, and what follows are Updates, though
// the pod may be another one by then.
func TestWhatCountsAsALivePod(t *testing.T) {
	tests := []struct {
		name string
		pods []*corev1.Pod
		live int
	}{
		{"none", nil, 0},
		{"a running pod", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1")}, 1},
		{"a pending pod", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", phase(corev1.PodPending))}, 1},
		{"two pods", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "b", "cart", "n1", "2")}, 2},
		{"another account's", []*corev1.Pod{podObject("shop", "a", "pay", "n1", "1")}, 0},
		{"the same account name in another namespace", []*corev1.Pod{podObject("bank", "a", "cart", "n1", "1")}, 0},
		{"on another node", []*corev1.Pod{podObject("shop", "a", "cart", "n2", "1")}, 0},
		{"not scheduled", []*corev1.Pod{podObject("shop", "a", "cart", "", "1")}, 0},
		{"without an account", []*corev1.Pod{podObject("shop", "a", "", "n1", "1")}, 0},
		{"NODE-4: only a succeeded one", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", phase(corev1.PodSucceeded))}, 0},
		{"NODE-4: only a failed one", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", phase(corev1.PodFailed))}, 0},
		{"NODE-4: a succeeded one and a running one", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1", phase(corev1.PodSucceeded)), podObject("shop", "b", "cart", "n1", "2"),
		}, 1},
		{"NODE-4: it finishes, and no deletion is seen", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "a", "cart", "n1", "1", phase(corev1.PodSucceeded)),
		}, 0},
		{"a mirror pod", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", mirror)}, 0},
		{"a pod that returns as a mirror pod", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "a", "cart", "n1", "2", mirror),
		}, 0},
		{"a pod that returns on another node", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "a", "cart", "n2", "2"),
		}, 0},
		{"a pod that returns from another node", []*corev1.Pod{
			podObject("shop", "a", "cart", "n2", "1"), podObject("shop", "a", "cart", "n1", "2"),
		}, 1},
		{"a pod that returns as another account's", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "a", "pay", "n1", "2"),
		}, 0},
		{"a pod that returns to the same node", []*corev1.Pod{
			podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "a", "cart", "n1", "2"),
		}, 1},
		{"terminating", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", deletedAt(noon().Add(time.Hour)))}, 1},
		{"60 s past its deletion", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", deletedAt(noon().Add(-authz.Grace)))}, 1},
		{"61 s past its deletion", []*corev1.Pod{podObject("shop", "a", "cart", "n1", "1", deletedAt(noon().Add(-authz.Grace-time.Second)))}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newTestInventory(t)
			for i, o := range test.pods {
				if i == 0 {
					must(t, v.pods.Add(o))
				} else {
					must(t, v.pods.Update(o))
				}
			}
			q := cart()
			if f := v.index.facts(noon(), &q); f.Live != test.live || (f.LiveUID != "") != (f.Live > 0) {
				t.Errorf("%d live pods (UID %q), want %d", f.Live, f.LiveUID, test.live)
			}
		})
	}
}

// LivePods counts as facts do, over all nodes.
func TestLivePods(t *testing.T) {
	v := newTestInventory(t)
	for _, o := range []*corev1.Pod{
		podObject("shop", "a", "cart", "n1", "1"), podObject("shop", "b", "cart", "n2", "2"), podObject("shop", "c", "pay", "n1", "3"),
		podObject("shop", "d", "pay", "n1", "4", phase(corev1.PodFailed)), podObject("shop", "e", "old", "n1", "5", deletedAt(noon().Add(-time.Hour))),
		podObject("other", "f", "cart", "n1", "6"), podObject("shop", "g", "cart", "n1", "7", mirror),
	} {
		must(t, v.pods.Add(o))
	}
	sa := func(namespace, name string) authz.ServiceAccount {
		return authz.ServiceAccount{Namespace: namespace, Name: name}
	}
	want := map[authz.ServiceAccount]int{sa("shop", "cart"): 2, sa("shop", "pay"): 1, sa("other", "cart"): 1}
	if diff := cmp.Diff(want, v.LivePods(noon())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFactsAreTheObjects(t *testing.T) {
	v := newTestInventory(t)
	v.sync(t)
	deleted := noon().Add(time.Minute)
	must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1", deletedAt(deleted))))
	gone := metaObject("shop", "cart", "a-cart")
	gone.DeletionTimestamp = &metav1.Time{Time: deleted}
	must(t, v.accounts.Update(gone))

	q := cart()
	want := authz.Facts{
		CallerAccount: authz.Account{UID: "a-ztunnel"},
		CallerPod:     authz.Pod{UID: "p-zt-1", Account: q.Caller.ServiceAccount, Node: "n1"},
		Node:          authz.Node{UID: "u-n1"},
		TargetAccount: authz.Account{UID: "a-cart", Deleted: deleted},
		Live:          1,
		LiveUID:       "p-cart-1",
	}
	if diff := cmp.Diff(want, v.index.facts(noon(), &q)); diff != "" {
		t.Error(diff)
	}
	must(t, v.nodes.Delete(metaObject("", "n1", "u-n1")))
	must(t, v.accounts.Delete(gone))
	must(t, v.accounts.Delete(metaObject("istio-system", "ztunnel", "a-ztunnel")))
	must(t, v.pods.Delete(podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1")))
	// The account is gone, its pod is not.
	if diff := cmp.Diff(authz.Facts{Live: 1, LiveUID: "p-cart-1"}, v.index.facts(noon(), &q)); diff != "" {
		t.Error(diff)
	}
}

// A token that is bound to no pod has a caller without a pod.
func TestACallerWithoutAPodHasNone(t *testing.T) {
	v := newTestInventory(t)
	v.sync(t)
	q := cart()
	q.Caller.Pod, q.Caller.PodUID, q.Caller.Node, q.Caller.NodeUID = "", "", "", ""
	want := authz.Facts{CallerAccount: authz.Account{UID: "a-ztunnel"}, TargetAccount: authz.Account{UID: "a-cart"}}
	if diff := cmp.Diff(want, v.index.facts(noon(), &q)); diff != "" {
		t.Error(diff)
	}
}

// A cluster is the slow oracle: the objects by name, and nothing else.
type cluster struct {
	pods     map[string]*corev1.Pod
	nodes    map[string]string // UID by name
	accounts map[string]string
}

func (c *cluster) facts(now time.Time, q authz.Query) (f authz.Facts, live map[string]bool) {
	sa := q.Caller.ServiceAccount
	f.CallerAccount.UID = c.accounts[sa.Namespace+"/"+sa.Name]
	f.TargetAccount.UID = c.accounts[q.Target.Namespace+"/"+q.Target.Name]
	f.Node.UID = c.nodes[q.Caller.Node]
	live = make(map[string]bool)
	for key, o := range c.pods {
		if o.Annotations != nil || o.Spec.NodeName == "" {
			continue
		}
		finished := o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed"
		var deleted time.Time
		if o.DeletionTimestamp != nil {
			deleted = o.DeletionTimestamp.Time
		}
		if key == sa.Namespace+"/"+q.Caller.Pod {
			f.CallerPod = authz.Pod{
				UID: string(o.UID), Node: o.Spec.NodeName, Finished: finished, Deleted: deleted,
				Account: authz.ServiceAccount{Namespace: o.Namespace, Name: o.Spec.ServiceAccountName},
			}
		}
		if o.Namespace == q.Target.Namespace && o.Spec.ServiceAccountName == q.Target.Name &&
			o.Spec.NodeName == q.Caller.Node && !finished && (deleted.IsZero() || now.Sub(deleted) <= 60*time.Second) {
			live[string(o.UID)] = true
		}
	}
	f.Live = len(live)
	return f, live
}

// Names are few, so that they are used again and again: by other pods, on other
// nodes, of other accounts, finished or not.
func TestRandomEventsLeaveWhatTheObjectsSay(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		v := newTestInventory(t)
		c := &cluster{make(map[string]*corev1.Pod), make(map[string]string), make(map[string]string)}
		for step := range 60 {
			randomEvent(t, r, v, c, step)
		}
		compare(t, seed, v, c)
		if t.Failed() {
			return
		}
	}
}

func compare(t *testing.T, seed uint64, v *Inventory, c *cluster) {
	t.Helper()
	for _, ns := range []string{"a", "b"} {
		for i := range 12 {
			q := authz.Query{
				Caller: authz.Caller{ServiceAccount: authz.ServiceAccount{Namespace: ns, Name: pick("sa", i)}, Pod: fmt.Sprintf("p%d", i%5), Node: pick("n", i/3)},
				Target: authz.ServiceAccount{Namespace: string("ab"[i%2]), Name: pick("sa", i/2)},
			}
			want, live := c.facts(noon(), q)
			got := v.index.facts(noon(), &q)
			if got.Live > 0 && !live[got.LiveUID] {
				t.Errorf("seed %d: pod %s is not live on the node", seed, got.LiveUID)
			}
			got.LiveUID = ""
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d: %+v:\n%s", seed, q, diff)
			}
		}
	}
	sizes := 0
	for _, o := range c.pods {
		if o.Annotations == nil && o.Spec.NodeName != "" {
			sizes++
		}
	}
	if n, _, _ := v.index.sizes(); n != sizes {
		t.Errorf("seed %d: %d pods are kept, want %d", seed, n, sizes)
	}
	placements := 0
	for _, here := range v.index.pods.onNode {
		placements += len(here)
	}
	if placements != sizes {
		t.Errorf("seed %d: %d placements are kept, want %d", seed, placements, sizes)
	}
}

func pick(prefix string, i int) string { return fmt.Sprintf("%s%d", prefix, i%3) }

// randomEvent does one thing to both.
func randomEvent(t *testing.T, r *rand.Rand, v *Inventory, c *cluster, step int) {
	t.Helper()
	uid := fmt.Sprintf("uid-%d", step)
	o := podObject(string("ab"[r.IntN(2)]), fmt.Sprintf("p%d", r.IntN(5)), pick("sa", r.IntN(3)), pick("n", r.IntN(3)), uid)
	key := o.Namespace + "/" + o.Name
	switch r.IntN(12) {
	default: // a pod comes, or comes back as another one
		switch r.IntN(8) {
		case 0:
			o.Status.Phase = corev1.PodSucceeded
		case 1:
			deletedAt(noon().Add(time.Duration(r.IntN(200)-120) * time.Second))(o)
		case 2:
			mirror(o)
		case 3:
			o.Spec.NodeName = ""
		}
		c.pods[key] = o
		if r.IntN(2) == 0 {
			must(t, v.pods.Add(o))
		} else {
			must(t, v.pods.Update(o))
		}
	case 0: // a pod changes in place
		if old := c.pods[key]; old != nil {
			o = old.DeepCopy()
			o.Status.Phase = corev1.PodFailed
			c.pods[key] = o
			must(t, v.pods.Update(o))
		}
	case 1, 2: // a pod goes; the event need not have the UID that we hold
		delete(c.pods, key)
		must(t, v.pods.Delete(o))
	case 3: // a relist, in which some are missing
		var all []any
		for k, o := range c.pods {
			if r.IntN(4) == 0 {
				delete(c.pods, k)
				continue
			}
			// A list in pages may have a name twice; the last counts.
			if r.IntN(4) == 0 {
				all = append(all, podObject(o.Namespace, o.Name, "sa0", "n0", "before"))
			}
			all = append(all, o)
		}
		must(t, v.pods.Replace(all, "1"))
	case 4:
		n := pick("n", r.IntN(3))
		c.nodes[n] = uid
		must(t, v.nodes.Update(metaObject("", n, uid)))
	case 5:
		n := pick("n", r.IntN(3))
		delete(c.nodes, n)
		must(t, v.nodes.Delete(cache.DeletedFinalStateUnknown{Key: n}))
	case 6:
		sa := metaObject(o.Namespace, o.Spec.ServiceAccountName, uid)
		c.accounts[sa.Namespace+"/"+sa.Name] = uid
		must(t, v.accounts.Update(sa))
	case 7:
		sa := metaObject(o.Namespace, o.Spec.ServiceAccountName, uid)
		delete(c.accounts, sa.Namespace+"/"+sa.Name)
		must(t, v.accounts.Delete(sa))
	}
}

func TestLookAllocatesNothing(t *testing.T) {
	v := newTestInventory(t)
	v.sync(t)
	must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1")))
	must(t, v.pods.Add(podObject("shop", "stray-1", "stray", "n1", "p-stray-1")))
	for _, target := range []string{"cart", "stray", "none"} {
		q := cart()
		q.Target.Name = target
		now := time.Now()
		if n := testing.AllocsPerRun(100, func() {
			if _, err := v.Look(now, q); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

// What is interned must be freed with what uses it.
func TestNamesThatComeAndGoLeaveNothingBehind(t *testing.T) {
	v := newTestInventory(t)
	v.sync(t)
	churn := func(round int) {
		for i := range 5000 {
			ns := fmt.Sprintf("ns-%d-%d", round, i)
			must(t, v.accounts.Add(metaObject(ns, "sa", "u")))
			must(t, v.nodes.Add(metaObject("", "node-"+ns, "u")))
			must(t, v.pods.Add(podObject(ns, "p", "sa", "node-"+ns, "u")))
			must(t, v.pods.Delete(podObject(ns, "p", "sa", "node-"+ns, "u")))
			must(t, v.nodes.Delete(metaObject("", "node-"+ns, "u")))
			must(t, v.accounts.Delete(cache.DeletedFinalStateUnknown{Key: ns + "/sa"}))
		}
	}
	churn(0)
	before := heap()
	for round := range 10 {
		churn(round + 1)
	}
	if after := heap(); after > before+1<<20 {
		t.Errorf("50 000 namespaces, nodes and accounts that are gone use %d bytes", after-before)
	}
	if pods, nodes, accounts := v.index.sizes(); pods != 1 || nodes != 2 || accounts != 2 || len(v.index.pods.onNode) != 1 {
		t.Errorf("%d pods, %d nodes, %d accounts, %d nodes with pods are left", pods, nodes, accounts, len(v.index.pods.onNode))
	}
}

// heap returns the size of the live heap. Interned values take some collections
// to be freed.
func heap() int64 {
	for range 4 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

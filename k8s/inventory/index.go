package inventory

import (
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/bailiwick-ca/bailiwick/authz"
	"k8s.io/apimachinery/pkg/types"
)

// An index answers queries from pods, nodes and accounts. Its zero value is not
// usable; newIndex makes one. It is safe for concurrent use, except that each
// of the three kinds may have one writer only.
type index struct {
	mu       sync.RWMutex
	pods     podTable
	nodes    table[node]
	accounts table[account]
}

// A podTable has the pods by name, and by the node they are on.
type podTable struct {
	byName map[types.NamespacedName]*pod
	onNode map[string][]placement
}

// A placement says that a pod of an account is on a node. The account stands
// beside the pod so that looking for an account's pods on a node reads one
// stretch of memory, and of the pods only those that are the account's.
type placement struct {
	account unique.Handle[authz.ServiceAccount]
	pod     *pod
}

func newIndex() *index {
	x := &index{pods: newPodTable(0)}
	x.nodes = table[node]{mu: &x.mu, byName: make(map[types.NamespacedName]node)}
	x.accounts = table[account]{mu: &x.mu, byName: make(map[types.NamespacedName]account)}
	return x
}

// facts returns what is known about q. It allocates nothing.
func (x *index) facts(now time.Time, q *authz.Query) authz.Facts {
	caller := &q.Caller
	x.mu.RLock()
	defer x.mu.RUnlock()
	var f authz.Facts
	here := x.pods.onNode[caller.Node]
	a, ok := x.accounts.byName[types.NamespacedName(caller.ServiceAccount)]
	if ok {
		f.CallerAccount = a.facts()
	}
	if p := x.callerPod(q, here, a.name); p != nil {
		f.CallerPod = p.facts()
	}
	f.Node.UID = x.nodes.byName[types.NamespacedName{Name: caller.Node}].uid
	if a, ok := x.accounts.byName[types.NamespacedName(q.Target)]; ok {
		f.TargetAccount = a.facts()
		f.Live, f.LiveUID = live(now, here, a.name)
	} else if h, ok := handle(here, q.Target); ok {
		f.Live, f.LiveUID = live(now, here, h)
	}
	return f
}

// callerPod returns the caller's pod, or nil. It is nearly always among the few
// pods of its account on its node, which are looked at anyway; then the map of
// all pods, most of which is in no processor's cache, need not be.
func (x *index) callerPod(q *authz.Query, here []placement, account unique.Handle[authz.ServiceAccount]) *pod {
	for i := range here {
		if here[i].account == account && here[i].pod.name == q.Caller.Pod {
			return here[i].pod
		}
	}
	return x.pods.byName[callerPodName(q)]
}

// callerPodName returns the name of the pod that q's token is bound to. If it is
// bound to none, no pod has the name.
func callerPodName(q *authz.Query) types.NamespacedName {
	return types.NamespacedName{Namespace: q.Caller.ServiceAccount.Namespace, Name: q.Caller.Pod}
}

// live returns how many live pods of the account there are, and the UID of one.
func live(now time.Time, here []placement, account unique.Handle[authz.ServiceAccount]) (n int, uid string) {
	for i := range here {
		if here[i].account != account || !here[i].pod.live(now) {
			continue
		}
		if n == 0 {
			uid = here[i].pod.uid
		}
		n++
	}
	return n, uid
}

// handle finds the handle of an account that does not exist, but of which there
// may be pods. To make one would allocate.
func handle(here []placement, account authz.ServiceAccount) (unique.Handle[authz.ServiceAccount], bool) {
	for i := range here {
		if h := here[i].account; h.Value() == account {
			return h, true
		}
	}
	return unique.Handle[authz.ServiceAccount]{}, false
}

// runs reports whether the node has a pod of the account.
func (x *index) runs(account types.NamespacedName, node string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := handle(x.pods.onNode[node], authz.ServiceAccount(account))
	return ok
}

// account returns the account that has the name, or nil.
func (x *index) account(name types.NamespacedName) *account {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if a, ok := x.accounts.byName[name]; ok {
		return &a
	}
	return nil
}

// putPod adds p in place of what has its name, which it returns. A pod under a
// name that another had is taken as it is: it may be on another node, or of
// another account, and no deletion need have been seen in between. If nothing
// changed, changed is false.
func (x *index) putPod(p *pod) (old *pod, changed bool) {
	key := p.key()
	old = x.pod(key)
	if old != nil && *old == *p || old == nil && !p.placed {
		return old, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pods.remove(key)
	if p.placed {
		x.pods.add(key, p)
	}
	return old, true
}

// deletePod removes what has the name, and returns it.
//
// It does not ask for a UID. The API server sends the events of one name in
// order, so the one who is gone is the one we hold; and were that ever wrong, a
// pod too few means a look at the API itself, and a pod too many a certificate.
func (x *index) deletePod(key types.NamespacedName) *pod {
	old := x.pod(key)
	if old == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pods.remove(key)
	return old
}

// replacePods makes pods the only ones.
func (x *index) replacePods(pods []*pod) {
	t := newPodTable(len(pods))
	for _, p := range pods {
		key := p.key()
		t.remove(key)
		if p.placed {
			t.add(key, p)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pods = t
}

// pod returns the pod that has the name, or nil.
func (x *index) pod(key types.NamespacedName) *pod {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.pods.byName[key]
}

func newPodTable(pods int) podTable {
	return podTable{
		byName: make(map[types.NamespacedName]*pod, pods),
		onNode: make(map[string][]placement),
	}
}

// add adds p, whose name no pod in the table has.
func (t *podTable) add(key types.NamespacedName, p *pod) {
	t.byName[key] = p
	n := p.node.Value()
	t.onNode[n] = append(t.onNode[n], placement{p.account, p})
}

// remove removes the pod that has the name, if there is one.
func (t *podTable) remove(key types.NamespacedName) {
	p := t.byName[key]
	if p == nil {
		return
	}
	delete(t.byName, key)
	n := p.node.Value()
	here := t.onNode[n]
	here = slices.DeleteFunc(here, func(pl placement) bool { return pl.pod == p })
	if len(here) == 0 {
		delete(t.onNode, n)
		return
	}
	t.onNode[n] = here
}

// livePods returns how many live pods each account has.
func (x *index) livePods(now time.Time) map[authz.ServiceAccount]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := make(map[authz.ServiceAccount]int)
	for _, p := range x.pods.byName {
		if p.live(now) {
			n[p.account.Value()]++
		}
	}
	return n
}

// sizes returns how many there are of each kind.
func (x *index) sizes() (pods, nodes, accounts int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.pods.byName), len(x.nodes.byName), len(x.accounts.byName)
}

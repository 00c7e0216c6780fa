package inventory

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// A reader makes live reads: it asks the API itself about a node. There is one
// read per node at a time, and a new one not before a second has passed; who
// asks in between shares the next. All reads share one budget of requests, of
// which one node can have a small part only.
type reader struct {
	api     api
	view    *index // for accounts that are known well enough
	now     func() time.Time
	budget  *rate.Limiter
	spacing time.Duration // between the beginnings of two reads of a node
	timeout time.Duration // of a read
	maxJoin int           // who share a read
	counts  liveCounts

	mu     sync.Mutex
	lines  map[string]*line         // by node
	shares map[string]*rate.Limiter // of the budget, by node
}

// A node may make as many requests per second, and at once. A read takes two,
// and one more for each pod that is not on the node and each account that our
// view does not have; so a node whose pods keep asking for what is not there
// leaves most of the budget to others.
const (
	nodeRequests = 5
	nodeBurst    = 40
)

// maxShares is of how many nodes the share is remembered before those that are
// whole are forgotten.
const maxShares = 1024

// An api is what a live read asks the API for. What does not exist is nil.
type api struct {
	podsOn  func(ctx context.Context, node string) ([]*pod, error)
	pod     func(ctx context.Context, name types.NamespacedName) (*pod, error)
	node    func(ctx context.Context, name string) (*node, error)
	account func(ctx context.Context, name types.NamespacedName) (*account, error)
}

// A line has the read of a node that has not begun, for which callers stand in
// line. It exists while a read is under way, and for a second after it began.
type line struct{ next *liveRead }

// A liveRead is one look at the API, for all who joined before it began.
type liveRead struct {
	node     string
	joined   int
	pods     map[types.NamespacedName]struct{} // the callers'
	accounts map[types.NamespacedName]struct{} // the callers', if the view does not have them
	targets  map[types.NamespacedName]struct{} // those they want, if the view does not have them
	known    map[types.NamespacedName]*account // what the view has

	done  chan struct{} // closed when what follows is set
	found *index
	err   error
}

// read returns what a read found that began after the call did.
func (r *reader) read(ctx context.Context, q *authz.Query) (*index, error) {
	l, err := r.join(ctx, q)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, deadlinePassed(ctx, "reading node %s", l.node)
	case <-l.done:
		return l.found, l.err
	}
}

// join returns the next read of the node, which is going to look for what q
// needs too.
func (r *reader) join(ctx context.Context, q *authz.Query) (*liveRead, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := q.Caller.Node
	waiting := r.lines[name]
	idle := waiting == nil
	if idle {
		waiting = &line{}
		r.lines[name] = waiting
	}
	if waiting.next == nil {
		waiting.next = &liveRead{
			node:     name,
			pods:     make(map[types.NamespacedName]struct{}),
			accounts: make(map[types.NamespacedName]struct{}),
			targets:  make(map[types.NamespacedName]struct{}),
			known:    make(map[types.NamespacedName]*account),
			done:     make(chan struct{}),
		}
	}
	l := waiting.next
	if l.joined == r.maxJoin {
		return nil, undecided(authz.NoCapacity, "%d requests wait for the next read of node %s already", l.joined, name)
	}
	l.joined++
	l.want(q, r.view, r.now())
	if idle {
		// The read is not one caller's: others may join, and it must not end
		// with the call of the first.
		go r.serve(context.WithoutCancel(ctx), name, waiting)
	}
	return l, nil
}

// want adds what q needs. That an account exists is known well enough from the
// view, as it is for every request that needs no live read.
func (l *liveRead) want(q *authz.Query, view *index, now time.Time) {
	caller, target := types.NamespacedName(q.Caller.ServiceAccount), types.NamespacedName(q.Target)
	if a := view.account(caller); a != nil && a.uid == q.Caller.ServiceAccountUID && a.facts().Exists(now) {
		l.known[caller] = a
	} else {
		l.accounts[caller] = struct{}{}
	}
	if a := view.account(target); a != nil && a.facts().Exists(now) {
		l.known[target] = a
	} else {
		l.targets[target] = struct{}{}
	}
	if q.Caller.Bound() {
		l.pods[callerPodName(q)] = struct{}{}
	}
}

// serve makes the reads of a node, one after another, until nobody joins.
func (r *reader) serve(ctx context.Context, node string, waiting *line) {
	for {
		l := r.begin(node, waiting)
		if l == nil {
			return
		}
		began := r.now()
		l.found, l.err = r.look(ctx, l)
		close(l.done)
		time.Sleep(r.spacing - r.now().Sub(began))
	}
}

// spend takes one request from the budget, and from the node's share of it.
func (r *reader) spend(node string) error {
	now := r.now()
	if !r.share(node).AllowN(now, 1) {
		return undecided(authz.NoCapacity, "node %s has used up its share of the budget for reading from the API", node)
	}
	if !r.budget.AllowN(now, 1) {
		return undecided(authz.NoCapacity, "the budget for reading from the API is used up")
	}
	return nil
}

func (r *reader) share(node string) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	share := r.shares[node]
	if share == nil {
		if len(r.shares) >= maxShares {
			now := r.now()
			maps.DeleteFunc(r.shares, func(_ string, l *rate.Limiter) bool { return l.TokensAt(now) >= nodeBurst })
		}
		share = rate.NewLimiter(nodeRequests, nodeBurst)
		r.shares[node] = share
	}
	return share
}

// begin returns the read to make now, which nobody can join any more; or nil,
// and then the line is gone.
func (r *reader) begin(node string, waiting *line) *liveRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := waiting.next
	waiting.next = nil
	if l == nil {
		delete(r.lines, node)
	}
	return l
}

// look asks the API. What it finds is an index of its own: our view is written
// by its watches only.
func (r *reader) look(ctx context.Context, l *liveRead) (*index, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	x := newIndex()
	if err := r.lookAtNode(ctx, x, l.node); err != nil {
		return nil, err
	}
	if err := r.lookAtPods(ctx, x, l); err != nil {
		return nil, err
	}
	for name, a := range l.known {
		x.accounts.put(name, a)
	}
	for name := range l.accounts {
		if err := r.lookAtAccount(ctx, x, l.node, name); err != nil {
			return nil, err
		}
	}
	for name := range l.targets {
		// Without a pod of it on the node, it does not matter whether it exists.
		if _, asked := l.accounts[name]; asked || !x.runs(name, l.node) {
			continue
		}
		if err := r.lookAtAccount(ctx, x, l.node, name); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (r *reader) lookAtNode(ctx context.Context, x *index, name string) error {
	if name == "" {
		return nil
	}
	pods, err := ask(ctx, r, name, name, r.api.podsOn)
	if err != nil {
		return err
	}
	x.replacePods(pods)
	n, err := ask(ctx, r, name, name, r.api.node)
	if n != nil {
		x.nodes.put(n.key(), n)
	}
	return err
}

// lookAtPods looks for the callers' pods that are not on the node. That one is
// elsewhere is another answer than that it is nowhere.
func (r *reader) lookAtPods(ctx context.Context, x *index, l *liveRead) error {
	for name := range l.pods {
		if x.pod(name) != nil {
			continue
		}
		p, err := ask(ctx, r, l.node, name, r.api.pod)
		if err != nil {
			return err
		}
		if p != nil {
			x.putPod(p)
		}
	}
	return nil
}

func (r *reader) lookAtAccount(ctx context.Context, x *index, node string, name types.NamespacedName) error {
	a, err := ask(ctx, r, node, name, r.api.account)
	if a != nil {
		x.accounts.put(name, a)
	}
	return err
}

// ask makes one request on behalf of a node, if the budget allows it.
func ask[N, R any](ctx context.Context, r *reader, node string, name N, request func(context.Context, N) (R, error)) (answer R, err error) {
	if err := r.spend(node); err != nil {
		r.counts.overBudget.Add(1)
		return answer, err
	}
	answer, err = request(ctx, name)
	if err != nil {
		r.counts.failed.Add(1)
		return answer, undecided(authz.APITrouble, "reading %v for node %s: %w", name, node, err)
	}
	r.counts.ok.Add(1)
	return answer, nil
}

// Package inventory knows which pods, nodes and service accounts a cluster has,
// and how old that knowledge can be at most.
//
// It answers authz, whose [authz.Inventory] it implements, on every request and
// without asking the API server: watches write into an index that is made for
// the one question that is asked. What the index does not have may be on its
// way; [Inventory.Confirm] waits for it a moment, and then asks the API itself.
//
// The package knows nothing of tokens, of certificates, or of what is decided
// with its facts.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// A Config says from where an [Inventory] has its knowledge, and what its
// limits are. The zero value of a limit is its default.
type Config struct {
	// Client and Metadata ask the API server. Their own limits must leave room
	// for LiveRequests.
	Client   kubernetes.Interface
	Metadata metadata.Interface

	Logger *slog.Logger

	// Now returns the time. Ages are differences of what it returns, so it had
	// better have a monotonic clock reading, like [time.Now].
	Now func() time.Time

	// MaxStaleness is how old the view may be proven to be; beyond it nothing
	// is decided. An idle watch hears of a new version every one to two
	// minutes, so less than three make no sense. Default 5 min.
	MaxStaleness time.Duration

	// ProbeEvery is the time between two consistent reads of a resource.
	// Default 30 s.
	ProbeEvery time.Duration

	// Hold is how long a request waits for facts that may be late. Default 1 s.
	Hold time.Duration

	// MaxWaiting is how many requests wait for each node. One more does not
	// wait, but asks for a live read at once. Default 4.
	MaxWaiting int

	// MaxConfirming is how many requests may be waiting for facts in all, so
	// that those whose facts are known are not kept from being worked on. One
	// more is undecided ([authz.NoCapacity]). Default 128.
	MaxConfirming int

	// MaxJoining is how many requests share one live read of a node. One more
	// is undecided ([authz.NoCapacity]). Default 32.
	MaxJoining int

	// LiveRequests is the budget of all live reads together, in requests to
	// the API server per second, and LiveBurst what it may save up. A read
	// takes two, and one more for each account that is not known and each pod
	// that is not on its node; one node can have 5 per second, and 40 at once.
	// Past the budget a request is undecided ([authz.NoCapacity]). Default 200
	// and 400.
	LiveRequests float64
	LiveBurst    int

	// LiveTimeout bounds a live read. Default 5 s.
	LiveTimeout time.Duration
}

// liveSpacing is the time between the beginnings of two live reads of a node.
const liveSpacing = time.Second

func (c *Config) setDefaults() {
	c.MaxStaleness = cmp.Or(c.MaxStaleness, 5*time.Minute)
	c.ProbeEvery = cmp.Or(c.ProbeEvery, 30*time.Second)
	c.Hold = cmp.Or(c.Hold, time.Second)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 4)
	c.MaxConfirming = cmp.Or(c.MaxConfirming, 128)
	c.MaxJoining = cmp.Or(c.MaxJoining, 32)
	c.LiveRequests = cmp.Or(c.LiveRequests, 200)
	c.LiveBurst = cmp.Or(c.LiveBurst, 400)
	c.LiveTimeout = cmp.Or(c.LiveTimeout, 5*time.Second)
}

// check returns what is wrong with a configuration whose defaults are set.
func (c *Config) check() error {
	var errs []error
	must := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	must(c.Client != nil && c.Metadata != nil, "Client and Metadata must be set")
	must(c.Logger != nil && c.Now != nil, "Logger and Now must be set")
	must(c.MaxStaleness > 0 && c.ProbeEvery > 0 && c.Hold > 0 && c.LiveTimeout > 0, "durations must be positive")
	must(c.ProbeEvery < c.MaxStaleness, "ProbeEvery must be less than MaxStaleness")
	must(c.MaxWaiting > 0 && c.MaxConfirming > 0 && c.MaxJoining > 0 && c.LiveRequests > 0, "limits must be positive")
	must(c.LiveBurst >= nodeBurst, "LiveBurst must be at least what one node may have at once")
	return errors.Join(errs...)
}

// An Inventory is what is known of a live cluster. It is safe for concurrent
// use.
type Inventory struct {
	config  Config
	started atomic.Bool

	index    *index
	interest *interest
	memory   *memory
	gate     gate
	live     *reader
	counts   counts

	pods     *store[pod]
	nodes    *store[node]
	accounts *store[account]
}

var _ authz.Inventory = (*Inventory)(nil)

// New returns an inventory that knows nothing before it runs.
func New(c Config) (*Inventory, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	x, n := newIndex(), newInterest()
	resource := func(name string) *resource {
		r := newResource(name, c.Logger, c.Now)
		r.age.progress = func() { n.tell(subject{kind: aboutAge}) }
		return r
	}
	return &Inventory{
		config:   c,
		index:    x,
		interest: n,
		memory:   newMemory(n),
		gate:     gate{most: c.MaxWaiting, waiting: make(map[string]int)},
		live: &reader{
			api:     liveAPI(c.Client, c.Metadata),
			now:     c.Now,
			budget:  rate.NewLimiter(rate.Limit(c.LiveRequests), c.LiveBurst),
			spacing: liveSpacing,
			timeout: c.LiveTimeout,
			maxJoin: c.MaxJoining,
			lines:   make(map[string]*line),
			shares:  make(map[string]*rate.Limiter),
			view:    x,
		},
		pods:     podStore(resource(pods), x, n),
		nodes:    nodeStore(resource(nodes), x, n),
		accounts: accountStore(resource(serviceAccounts), x, n),
	}, nil
}

// Run watches the cluster until ctx is done, and then returns nil. It can be
// called once.
func (v *Inventory) Run(ctx context.Context) error {
	if v.started.Swap(true) {
		return errors.New("running the inventory: it runs already, or did")
	}
	c := &v.config
	var all sync.WaitGroup
	all.Go(func() { v.pods.follow(ctx, podSource(c.Client)) })
	all.Go(func() { v.nodes.follow(ctx, metadataSource(c.Metadata, nodes)) })
	all.Go(func() { v.accounts.follow(ctx, metadataSource(c.Metadata, serviceAccounts)) })
	for _, r := range v.resources() {
		list := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource(r.name)).List
		all.Go(func() { r.probe(ctx, c.ProbeEvery, list) })
	}
	all.Wait()
	return nil
}

// Look implements [authz.Inventory]. It allocates nothing unless it fails.
func (v *Inventory) Look(now time.Time, q authz.Query) (authz.Facts, error) {
	for _, r := range v.resources() {
		if !r.synced.Load() {
			return authz.Facts{}, r.notListed()
		}
	}
	for _, r := range v.resources() {
		if since := r.age.since(); elapsed(now, since) > v.config.MaxStaleness {
			return authz.Facts{}, undecided(authz.Stale, "what is known of %s is of %s, more than %v ago", r.name, since.UTC().Format(time.RFC3339), v.config.MaxStaleness)
		}
	}
	return v.index.facts(now, &q), nil
}

// LivePods returns how many live pods each service account has, in the whole
// cluster. It looks at every pod: it is for a word at the start, not for
// requests.
func (v *Inventory) LivePods(now time.Time) map[authz.ServiceAccount]int {
	return v.index.livePods(now)
}

// resources returns what is watched.
func (v *Inventory) resources() [3]*resource {
	return [...]*resource{v.pods.resource, v.nodes.resource, v.accounts.resource}
}

func (v *Inventory) now() time.Time { return v.config.Now() }

// elapsed returns how long ago t was, by the clock that ran further: a machine
// that was suspended stops the monotonic one, and an operator may set the other.
func elapsed(now, t time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

package inventory

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A resource is what is known about our view of one API resource.
type resource struct {
	name   string // in the plural, as in a role's rules
	log    *slog.Logger
	now    func() time.Time
	synced atomic.Bool // a list was complete
	age    age
	anew   chan struct{} // has one if the resource must be listed from nothing

	mu     sync.Mutex
	faults map[operation]fault // of operations whose last try failed
}

// An operation is something that is asked of the API server again and again. It
// is a verb of a role's rules, but for the probe's.
type operation string

const (
	opList  operation = "list"
	opWatch operation = "watch"
	opProbe operation = "probe" // is a list too
)

// A fault is a failure that nothing has cured yet.
type fault struct {
	at  time.Time
	err error
}

func newResource(name string, log *slog.Logger, now func() time.Time) *resource {
	return &resource{
		name:   name,
		log:    log.With(slog.String("resource", name)),
		now:    now,
		anew:   make(chan struct{}, 1),
		faults: make(map[operation]fault),
	}
}

// ended notes how an operation ended. What fails again and again is logged once.
func (r *resource) ended(op operation, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, before := r.faults[op]
	if err == nil {
		delete(r.faults, op)
		return
	}
	r.faults[op] = fault{at: r.now(), err: err}
	if !before {
		r.log.Error("asking the API server failed",
			slog.String("operation", string(op)),
			slog.Any("error", err),
			slog.String("next", r.next(op, err)))
	}
}

// startAnew makes the resource be listed from nothing.
func (r *resource) startAnew() {
	select {
	case r.anew <- struct{}{}:
	default: // it will be
	}
}

// lastFault returns the newest fault, if there is one.
func (r *resource) lastFault() (f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.faults {
		if g.at.After(f.at) {
			f = g
		}
	}
	return f
}

// notListed says that there has been no list yet, and why.
func (r *resource) notListed() error {
	if f := r.lastFault(); f.err != nil {
		return undecided(authz.NotSynced, "%s have not been listed yet: %w", r.name, f.err)
	}
	return undecided(authz.NotSynced, "%s have not been listed yet", r.name)
}

// next says what an operator can do about an operation that failed.
func (r *resource) next(op operation, err error) string {
	switch {
	case apierrors.IsForbidden(err):
		verb, user := op, "USER"
		if op == opProbe {
			verb = opList
		}
		if _, rest, ok := strings.Cut(err.Error(), `User "`); ok {
			user, _, _ = strings.Cut(rest, `"`)
		}
		return fmt.Sprintf("apply the ClusterRole and its binding in docs/running.md; whether it is allowed then says: kubectl auth can-i %s %s --all-namespaces --as=%s", verb, r.name, user)
	case apierrors.IsUnauthorized(err):
		return "check that our token or kubeconfig is of this cluster and has not expired"
	default:
		return "it is tried again; if it lasts, check that the API server can be reached from here"
	}
}

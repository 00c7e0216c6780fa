package inventory

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
			slog.String("cure", cure(err)))
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

// cure says what an operator can do about err.
func cure(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "bind our service account to a ClusterRole that permits get, list and watch of this resource (the chart's does)"
	case apierrors.IsUnauthorized(err):
		return "check that our token or kubeconfig is of this cluster and has not expired"
	default:
		return "it is tried again; if it lasts, check that the API server can be reached from here"
	}
}

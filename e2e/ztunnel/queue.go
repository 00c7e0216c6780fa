package ztunnel

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A task is a fetch that is to be made. Only those in the background are for
// later.
type task struct {
	priority Priority
	at       time.Time
}

// before reports whether a goes first. What is for later is always in the
// background, so that nothing that is due ever stands behind it.
func (a task) before(b task) bool {
	return a.priority > b.priority || a.priority == b.priority && a.at.Before(b.at)
}

// A queue has one task for each identity.
type queue map[Identity]task

// push adds a task, or takes the place of one that would be later.
func (q queue) push(id Identity, t task) {
	if have, ok := q[id]; !ok || t.before(have) {
		q[id] = t
	}
}

// never is longer than anything that is waited for.
const never = 1 << 62 * time.Nanosecond

// first returns what goes first, and how long it has to wait. Of equal tasks it
// is the one whose name is first.
func (q queue) first(at time.Time) (Identity, time.Duration) {
	if len(q) == 0 {
		return Identity{}, never
	}
	best := slices.MinFunc(slices.Collect(maps.Keys(q)), func(a, b Identity) int {
		switch {
		case q[a].before(q[b]):
			return -1
		case q[b].before(q[a]):
			return 1
		}
		return compare(a, b)
	})
	return best, q[best].at.Sub(at)
}

func compare(a, b Identity) int {
	return cmp.Or(cmp.Compare(a.TrustDomain, b.TrustDomain), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ServiceAccount, b.ServiceAccount))
}

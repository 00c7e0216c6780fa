package inventory

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// maxReads is how many reads wait for the watch at a time. The watch hears of a
// version within two minutes, and there is a read every half minute.
const maxReads = 16

// An age is how young our view of one resource is proven to be.
//
// That events arrive, or bookmarks, proves nothing: an API server that is cut
// off from its store goes on sending bookmarks. What proves it is a consistent
// read, one that the API server had to ask its store for: when the watch has
// reached the version of such a read, we have seen all that had happened when
// the read began.
type age struct {
	// progress, if not nil, is called when the view was proven to be younger.
	progress func()

	proven atomic.Pointer[time.Time] // nil if nothing is proven

	mu      sync.Mutex
	version string    // that the watch has reached
	listing time.Time // when the list under way began, if it is a consistent one
	reads   []read    // whose versions the watch has not reached
}

// A read is a consistent read: when it began, and the version it returned.
type read struct {
	began   time.Time
	version string
}

// since returns the time at which the view was complete, or the zero time.
func (a *age) since() time.Time {
	if t := a.proven.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// saw notes a consistent read.
func (a *age) saw(r read) error {
	if _, err := resourceversion.CompareResourceVersion(r.version, r.version); err != nil {
		return fmt.Errorf("reading the version of a list: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.reads) == maxReads {
		// The watch is stuck. The older ones are as good for the day it moves,
		// and the newest is what will count in the end.
		a.reads = a.reads[:maxReads-1]
	}
	a.reads = append(a.reads, r)
	a.settle()
	return nil
}

// at returns the version that the watch has reached.
func (a *age) at() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// wentBack reports whether a read that began when the watch had reached version
// returned an older one: the API server's store is not the one that we watched,
// but an older one that was restored. Our view is then of a past that never was,
// and proves nothing until it has been listed again.
func (a *age) wentBack(version string, r read) bool {
	order, err := resourceversion.CompareResourceVersion(r.version, version)
	if err != nil || order >= 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proven.Store(nil)
	a.reads = nil
	return true
}

// reached notes that the watch has reached a version.
func (a *age) reached(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = version
	a.settle()
}

// lists notes that the list begins which the next call of listed is about, and
// whether it is consistent.
func (a *age) lists(began time.Time, consistent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listing = time.Time{}
	if consistent {
		a.listing = began
	}
}

// listed notes that the view was replaced by a list. A consistent one is its
// own proof; another may have come from a cache that nobody has brought up to
// date, and proves as much as the version it reaches.
func (a *age) listed(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version = version
	a.prove(a.listing)
	a.settle()
}

// settle counts the reads whose versions were reached.
func (a *age) settle() {
	waiting := a.reads[:0]
	for _, r := range a.reads {
		if order, err := resourceversion.CompareResourceVersion(r.version, a.version); err == nil && order <= 0 {
			a.prove(r.began)
			continue
		}
		waiting = append(waiting, r)
	}
	a.reads = waiting
}

// prove notes that the view was complete at t.
func (a *age) prove(t time.Time) {
	if !t.After(a.since()) {
		return
	}
	a.proven.Store(&t)
	if a.progress != nil {
		a.progress()
	}
}

package ztunnel

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A Priority is how much a request matters. Renewals and all retries are in the
// background.
type Priority int

// The priorities, of which the later go first.
const (
	Background Priority = iota
	Warmup              // a workload was heard of
	RealTime            // a connection waits
)

// A State is what an identity's certificate is in.
type State string

// The states. Available does not mean that the certificate has not expired.
const (
	Initializing State = "Initializing"
	Available    State = "Available"
	Unavailable  State = "Unavailable"
)

// A Status is an identity's state, with its certificate or the reason for having
// none.
type Status struct {
	State       State
	Certificate *Certificate
	Err         error
}

// An Event is the end of a fetch.
type Event struct {
	Status // after it

	Identity Identity
	Began    time.Time
	Ended    time.Time
	Failure  error     // of this fetch, after which an older certificate may still be there
	Renewal  bool      // there was a certificate before
	Next     time.Time // when the identity is fetched again
}

// A Fetch gets one certificate. [Client.Fetch] is one.
type Fetch func(context.Context, Identity) (*Certificate, error)

// slots is how many fetches may run at once.
const slots = 8

// A Manager has the certificates of a node's identities. What is kept of an
// identity depends on its name only, and not on who asks.
type Manager struct {
	fetch   Fetch
	observe func(Event)
	random  func() float64 // in [0,1)
	wake    chan struct{}

	mu       sync.Mutex
	entries  map[Identity]*entry
	queue    queue
	running  map[Identity]bool // also if it was forgotten meanwhile
	failures map[Identity]*retry
}

// An entry is an identity that somebody wants.
type entry struct {
	status   Status
	priority Priority      // while initializing
	settled  chan struct{} // closed once it is no longer initializing
	gone     chan struct{} // closed once it is forgotten
}

// NewManager returns a manager without identities. It calls observe, which may
// be nil, after each fetch whose result is not thrown away, for several
// identities at once.
func NewManager(fetch Fetch, observe func(Event)) *Manager {
	if observe == nil {
		observe = func(Event) {}
	}
	return &Manager{
		fetch: fetch, observe: observe, random: rand.Float64, wake: make(chan struct{}, 1),
		entries: map[Identity]*entry{}, queue: queue{}, running: map[Identity]bool{}, failures: map[Identity]*retry{},
	}
}

// ErrForgotten is the error for who waits for an identity that is forgotten.
var ErrForgotten = errors.New("the identity was forgotten")

// Get returns the identity's certificate. Who asks first waits for the first
// fetch, as do all who ask before it has ended. Afterwards the answer is
// immediate, and is the last error if there is no certificate: asking does not
// make a failed fetch happen again.
func (m *Manager) Get(ctx context.Context, id Identity, p Priority) (*Certificate, error) {
	e := m.want(id, p)
	select {
	case <-e.settled:
	case <-e.gone:
		return nil, ErrForgotten
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.status.Certificate, e.status.Err
}

func (m *Manager) want(id Identity, p Priority) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	switch {
	case e == nil:
		e = &entry{Status{State: Initializing}, p, make(chan struct{}), make(chan struct{})}
		m.entries[id] = e
	case e.status.State == Initializing && p > e.priority:
		e.priority = p
	default:
		return e
	}
	if m.running[id] { // maybe for who has forgotten it since
		return e
	}
	m.queue.push(id, task{p, now()})
	m.changed()
	return e
}

// Forget ends the care for an identity. A fetch that runs goes on, for nothing.
// How often the identity has failed is not forgotten.
func (m *Manager) Forget(id Identity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e == nil {
		return
	}
	close(e.gone)
	delete(m.entries, id)
	delete(m.queue, id)
}

// Dump returns all identities that are cared for.
func (m *Manager) Dump() map[Identity]Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[Identity]Status, len(m.entries))
	for id, e := range m.entries {
		all[id] = e.status
	}
	return all
}

// Identities returns them in order.
func (m *Manager) Identities() []Identity {
	return slices.SortedFunc(maps.Keys(m.Dump()), func(a, b Identity) int { return compare(a, b) })
}

func (m *Manager) changed() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run fetches, until the context is done and no fetch runs any more.
func (m *Manager) Run(ctx context.Context) {
	var fetches sync.WaitGroup
	defer fetches.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(m.start(func(id Identity) { fetches.Go(func() { m.run(ctx, id) }) }))
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}
	}
}

// start begins what is due, as far as there are slots, and returns how long
// nothing will be.
func (m *Manager) start(begin func(Identity)) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.running) < slots {
		id, wait := m.queue.first(now())
		if wait > 0 {
			return wait
		}
		delete(m.queue, id)
		m.running[id] = true
		begin(id)
	}
	return never // a slot that becomes free wakes us
}

func (m *Manager) run(ctx context.Context, id Identity) {
	began := now()
	cert, err := m.fetch(ctx, id)
	if ctx.Err() != nil {
		return
	}
	event, wanted := m.finish(id, cert, err)
	if wanted {
		event.Began = began
		m.observe(event)
	}
	m.changed()
}

// finish records the end of a fetch, and when the next is due. A success whose
// midpoint has passed is due at once, and again, without any pause.
func (m *Manager) finish(id Identity, cert *Certificate, err error) (Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.running, id)
	e := m.entries[id]
	if e == nil {
		return Event{}, false
	}
	event := Event{Identity: id, Ended: now(), Failure: err, Renewal: e.status.Certificate != nil}
	if err == nil {
		delete(m.failures, id)
		e.status = Status{State: Available, Certificate: cert}
		event.Next = cert.RefreshAt()
	} else {
		event.Next = event.Ended.Add(m.pause(id, event.Ended))
		e.failed(err, &event)
	}
	if !isClosed(e.settled) {
		close(e.settled)
	}
	m.queue.push(id, task{Background, event.Next})
	event.Status = e.status
	return event, true
}

// failed keeps a certificate that is still valid, and has its retry no later
// than its end.
func (e *entry) failed(err error, event *Event) {
	have := e.status.Certificate
	if have == nil || have.Expired(event.Ended) {
		e.status = Status{State: Unavailable, Err: err}
		return
	}
	if end := have.Leaf.NotAfter; end.Before(event.Next) {
		event.Next = end
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause counts a failure and returns how long to wait.
func (m *Manager) pause(id Identity, at time.Time) time.Duration {
	r := m.failures[id]
	if r == nil {
		r = newRetry(at)
		m.failures[id] = r
	}
	return r.next(at, m.random())
}

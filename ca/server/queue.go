package server

import (
	"context"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// A queue admits requests, fair between parties: however many one sends, the
// next request of another waits for at most one of them. Nodes and accounts are
// those of verified tokens, so nobody can be many.
type queue struct {
	limits Limits

	mu      sync.Mutex
	running int
	parties map[party]*turn // those with requests running or waiting
	ring    []*turn         // those with requests waiting, next turn first
}

// A party takes one turn: the agent of a node, the other pods of a node, or an
// account whose tokens name no node.
type party struct {
	node    string
	account authz.ServiceAccount
}

// A turn is what one party has running and waiting.
type turn struct {
	of      party
	running int
	waiting []chan struct{} // closed when admitted, first come first
}

func newQueue(l Limits) *queue {
	return &queue{limits: l, parties: make(map[party]*turn)}
}

// An overloadError reports that a request was not admitted. It may be repeated
// after the given time.
type overloadError struct {
	err   string
	after time.Duration
}

func (e *overloadError) Error() string { return e.err }

// enter waits until a request of the party may run. The function that it returns
// must be called when the request has ended. The error is an [*overloadError],
// or that of ctx.
func (q *queue) enter(ctx context.Context, p party) (func(), error) {
	admitted, err := q.join(p)
	if err != nil {
		return nil, err
	}
	leave := func() { q.leave(p) }
	timer := time.NewTimer(q.limits.QueueWait)
	defer timer.Stop()
	select {
	case <-admitted:
		return leave, nil
	default:
	}
	select {
	case <-admitted:
		return leave, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = &overloadError{"waited too long for a turn", time.Second}
	}
	if q.giveUp(p, admitted) {
		return nil, err
	}
	return leave, nil // admitted at the last moment
}

// join adds a request of the party, and returns a channel that is closed once the
// request may run.
func (q *queue) join(p party) (chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t, ok := q.parties[p]
	if !ok {
		t = &turn{of: p}
		q.parties[p] = t
	}
	if len(t.waiting) >= q.limits.QueuePerNode {
		return nil, &overloadError{"too many requests of this node are waiting already", time.Second}
	}
	admitted := make(chan struct{})
	t.waiting = append(t.waiting, admitted)
	if len(t.waiting) == 1 {
		q.ring = append(q.ring, t)
	}
	q.admit()
	return admitted, nil
}

// leave ends a request of the party that was admitted.
func (q *queue) leave(p party) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.parties[p]
	t.running--
	q.running--
	q.forget(t)
	q.admit()
}

// load returns how many requests are running and waiting.
func (q *queue) load() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.ring {
		waiting += len(t.waiting)
	}
	return q.running, waiting
}

// giveUp removes a waiting request. It reports false if it has been admitted.
func (q *queue) giveUp(p party, admitted chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.parties[p]
	if t == nil {
		return false
	}
	for i, c := range t.waiting {
		if c == admitted {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			q.unring(t)
			q.forget(t)
			return true
		}
	}
	return false
}

// admit lets the next request run whose party may have one more, if there is
// room. There is never a second one: it is called when one request came or went.
func (q *queue) admit() {
	if q.running >= q.limits.InFlight {
		return
	}
	for range q.ring {
		t := q.ring[0]
		q.ring = append(q.ring[1:], t)
		if t.running >= q.limits.InFlightPerNode {
			continue
		}
		close(t.waiting[0])
		t.waiting = t.waiting[1:]
		t.running++
		q.running++
		q.unring(t)
		return
	}
}

// unring removes t from the ring once it has nothing waiting.
func (q *queue) unring(t *turn) {
	if len(t.waiting) > 0 {
		return
	}
	for i, other := range q.ring {
		if other == t {
			q.ring = append(q.ring[:i], q.ring[i+1:]...)
			return
		}
	}
}

// forget drops t once it has nothing running or waiting.
func (q *queue) forget(t *turn) {
	if t.running == 0 && len(t.waiting) == 0 {
		delete(q.parties, t.of)
	}
}

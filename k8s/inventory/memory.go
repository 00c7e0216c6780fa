package inventory

import (
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

const (
	// rememberFor is for how long facts that were not enough are remembered.
	rememberFor = 5 * time.Second

	// maxRemembered is of how many pairs. One more is not remembered, which
	// costs another look at the API.
	maxRemembered = 4096
)

// A pair is what facts are about: a caller, and the account it wants.
type pair struct {
	caller      authz.ServiceAccount
	pod, podUID string
	node        string
	target      authz.ServiceAccount
}

func pairOf(q *authz.Query) pair {
	c := &q.Caller
	return pair{c.ServiceAccount, c.Pod, c.PodUID, c.Node, q.Target}
}

// A memory has facts that were looked up with care and were not enough, so that
// who asks again at once is answered at once. Facts that were enough are never
// in it.
type memory struct {
	interest *interest

	mu     sync.Mutex
	byPair map[pair]*memo
	oldest []*memo // in the order in which they run out
}

// A memo is good until its time, or until there was an event about it.
type memo struct {
	pair   pair
	facts  authz.Facts
	until  time.Time
	events *listener
}

func newMemory(n *interest) *memory {
	return &memory{interest: n, byPair: make(map[pair]*memo)}
}

// recall returns the facts that are remembered about q.
func (m *memory) recall(now time.Time, q *authz.Query) (authz.Facts, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.byPair[pairOf(q)]
	if k == nil || k.events.touched() || !now.Before(k.until) {
		return authz.Facts{}, false
	}
	return k.facts, true
}

// remember remembers facts about q. It takes over the listener, which must have
// listened since before the facts were looked up: what has happened since then
// makes them forgotten at once.
func (m *memory) remember(now time.Time, q *authz.Query, facts authz.Facts, events *listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetOld(now)
	if len(m.oldest) == maxRemembered {
		m.interest.drop(events)
		return
	}
	k := &memo{pair: pairOf(q), facts: facts, until: now.Add(rememberFor), events: events}
	m.byPair[k.pair] = k
	m.oldest = append(m.oldest, k)
}

// forgetOld drops what has run out.
func (m *memory) forgetOld(now time.Time) {
	n := 0
	for n < len(m.oldest) && !now.Before(m.oldest[n].until) {
		k := m.oldest[n]
		m.interest.drop(k.events)
		if m.byPair[k.pair] == k {
			delete(m.byPair, k.pair)
		}
		n++
	}
	clear(m.oldest[:n])
	m.oldest = m.oldest[n:]
}

// size returns how much is remembered, and not yet dropped.
func (m *memory) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.oldest)
}

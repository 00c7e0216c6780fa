package inventory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// Confirm implements [authz.Inventory]. Facts that are not enough may only be
// late, so it waits for the event that brings what is missing; if none comes it
// asks the API itself. Facts that are still not enough are no older than the
// call, or were found so a few seconds ago and no event has touched them since.
//
// It takes Hold, a second and twice LiveTimeout at most: it may have to wait for
// a read that is under way, and for the next one's turn.
func (v *Inventory) Confirm(ctx context.Context, q authz.Query, enough func(authz.Facts) bool) (authz.Facts, error) {
	began := v.now()
	if facts, ok := v.memory.recall(began, &q); ok {
		v.counts.of(byMemory).Add(1)
		return facts, nil
	}
	defer v.counts.confirming.Add(-1)
	if v.counts.confirming.Add(1) > int64(v.config.MaxConfirming) {
		v.counts.of(undecidedly).Add(1)
		return authz.Facts{}, undecided(authz.NoCapacity, "%d requests wait for facts already", v.config.MaxConfirming)
	}
	events := v.interest.listen(subjects(&q)...)
	facts, by, err := v.confirm(ctx, began, &q, enough, events)
	v.counts.of(by).Add(1)
	if err != nil || enough(facts) {
		v.interest.drop(events)
		return facts, err
	}
	v.memory.remember(v.now(), &q, facts, events)
	return facts, nil
}

func (v *Inventory) confirm(ctx context.Context, began time.Time, q *authz.Query, enough func(authz.Facts) bool, events *listener) (authz.Facts, means, error) {
	facts, by, err := v.hold(ctx, began, q, enough, events)
	if by != byRead {
		return facts, by, err
	}
	found, err := v.live.read(ctx, q)
	if err != nil {
		return authz.Facts{}, undecidedly, err
	}
	return found.facts(v.now(), q), byRead, nil
}

// hold waits for the view to have enough, or to be proven younger than the
// call. If it returns byRead, neither happened, and the API must be asked. Who
// finds too many others of its node waiting does not wait.
func (v *Inventory) hold(ctx context.Context, began time.Time, q *authz.Query, enough func(authz.Facts) bool, events *listener) (authz.Facts, means, error) {
	if !v.gate.enter(q.Caller.Node) {
		return authz.Facts{}, byRead, nil
	}
	defer v.gate.leave(q.Caller.Node)
	proofs := v.interest.listen(subject{kind: aboutAge})
	defer v.interest.drop(proofs)
	t := time.NewTimer(v.config.Hold)
	defer t.Stop()
	for {
		// In this order: facts that are read after the proof are covered by it.
		proven := v.provenSince(began)
		facts, err := v.Look(v.now(), *q)
		switch {
		case err != nil:
			return authz.Facts{}, undecidedly, err
		case enough(facts):
			return facts, byEvent, nil
		case proven:
			return facts, byProof, nil
		}
		select {
		case <-ctx.Done():
			return authz.Facts{}, undecidedly, deadlinePassed(ctx, "waiting for an event")
		case <-t.C:
			return authz.Facts{}, byRead, nil
		case <-events.events:
		case <-proofs.events:
		}
	}
}

// provenSince reports whether the view is complete up to t at least.
func (v *Inventory) provenSince(t time.Time) bool {
	for _, r := range v.resources() {
		if r.age.since().Before(t) {
			return false
		}
	}
	return true
}

// A gate lets only so many wait for each node, so that no node can keep the
// others' requests from being worked on.
type gate struct {
	most int

	mu      sync.Mutex
	waiting map[string]int // by node
}

func (g *gate) enter(node string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[node] == g.most {
		return false
	}
	g.waiting[node]++
	return true
}

func (g *gate) leave(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting[node]--; g.waiting[node] == 0 {
		delete(g.waiting, node)
	}
}

func undecided(reason authz.Reason, format string, args ...any) error {
	return &authz.Undecided{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// deadlinePassed returns the error for a call that is over.
func deadlinePassed(ctx context.Context, format string, args ...any) error {
	return undecided(authz.DeadlinePassed, "%s: %w", fmt.Sprintf(format, args...), context.Cause(ctx))
}

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

func TestQueueAdmitsWhileThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{InFlight: 3, InFlightPerNode: 2, QueuePerNode: 5, QueueWait: time.Second})
		enter(t, q, "n1")
		enter(t, q, "n1")
		enter(t, q, "n2")
		for _, node := range []string{"n1", "n2"} {
			if _, err := q.enter(t.Context(), party{node: node}); !isOverload(err) {
				t.Errorf("enter(%s) = %v with three running, want overloaded after the wait", node, err)
			}
		}
	})
}

// TestQueueBounds has each bound of the queue, just within and just beyond.
func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{InFlight: 10, InFlightPerNode: 1, QueuePerNode: 2, QueueWait: time.Second})
		leave := enter(t, q, "n1")
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := q.enter(t.Context(), party{node: "n1"})
				results <- err
			}()
		}
		synctest.Wait()
		start := time.Now()
		if _, err := q.enter(t.Context(), party{node: "n1"}); !isOverload(err) || time.Since(start) != 0 {
			t.Errorf("the third in the queue got %v after %v, want overloaded at once", err, time.Since(start))
		}
		if _, err := q.enter(t.Context(), party{node: "n2"}); err != nil {
			t.Errorf("another node got %v", err)
		}
		leave()
		if err := <-results; err != nil {
			t.Errorf("the first in the queue got %v when there was room", err)
		}
		if err := <-results; !isOverload(err) || time.Since(start) != time.Second {
			t.Errorf("the second in the queue got %v after %v, want overloaded after 1s", err, time.Since(start))
		}
	})
}

// TestQueueIsFair has one node ask 50 times before another asks once.
func TestQueueIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{InFlight: 1, InFlightPerNode: 1, QueuePerNode: 100, QueueWait: time.Minute})
		leave := enter(t, q, "greedy")
		order := make(chan string, 60)
		ask := func(node string) {
			leave, err := q.enter(t.Context(), party{node: node})
			if err != nil {
				t.Error(err)
				return
			}
			order <- node
			leave()
		}
		for range 50 {
			go ask("greedy")
		}
		synctest.Wait()
		go ask("modest")
		synctest.Wait()
		leave()
		synctest.Wait()
		close(order)
		var got []string
		for node := range order {
			got = append(got, node)
		}
		if i := slices.Index(got, "modest"); i < 0 || i > 1 {
			t.Errorf("the modest node's turn was number %d of %d", i, len(got))
		}
	})
}

// [SRV-4] A client that goes while it waits leaves its turn to others.
func TestQueueForgetsWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{InFlight: 1, InFlightPerNode: 1, QueuePerNode: 10, QueueWait: time.Minute})
		leave := enter(t, q, "n1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := q.enter(ctx, party{node: "n2"})
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("enter = %v after the client went away", err)
		}
		leave()
		if len(q.parties) != 0 || len(q.ring) != 0 || q.running != 0 {
			t.Errorf("the queue still has %d nodes, %d waiting and %d running", len(q.parties), len(q.ring), q.running)
		}
	})
}

// TestAdmittedAtTheLastMoment gives up when the turn has just come: the request
// must run, or its place would be lost for good.
func TestAdmittedAtTheLastMoment(t *testing.T) {
	q := newQueue(Limits{InFlight: 1, InFlightPerNode: 1, QueuePerNode: 1, QueueWait: time.Minute})
	p := party{node: "n1"}
	admitted, err := q.join(p)
	if err != nil {
		t.Fatal(err)
	}
	if q.giveUp(p, admitted) {
		t.Error("gave up a turn that had come")
	}
	q.leave(p)
	if q.giveUp(p, admitted) || q.running != 0 {
		t.Errorf("gave up a turn that was over; %d run", q.running)
	}
}

// [SRV-4] Whoever comes and goes, what is worked on at once is bounded.
func TestQueueNeverExceedsItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{InFlight: 7, InFlightPerNode: 3, QueuePerNode: 20, QueueWait: 50 * time.Millisecond})
		for i := range 300 {
			node := fmt.Sprint("n", i%9)
			go func() {
				time.Sleep(time.Duration(i%13) * time.Millisecond)
				leave, err := q.enter(t.Context(), party{node: node})
				if err != nil {
					return
				}
				q.mu.Lock()
				if q.running > 7 || q.parties[party{node: node}].running > 3 {
					t.Errorf("%d run, %d of them of %s", q.running, q.parties[party{node: node}].running, node)
				}
				q.mu.Unlock()
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				leave()
			}()
		}
		time.Sleep(time.Second)
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.parties) != 0 || len(q.ring) != 0 || q.running != 0 {
			t.Errorf("afterwards the queue has %d nodes, %d waiting and %d running", len(q.parties), len(q.ring), q.running)
		}
	})
}

// TestParty has who takes turns with whom.
func TestParty(t *testing.T) {
	agent, other := authz.ServiceAccount{Namespace: "mesh", Name: "agent"}, authz.ServiceAccount{Namespace: "shop", Name: "cart"}
	s := &Server{cfg: Config{NodeAgent: func(sa authz.ServiceAccount) bool { return sa == agent }}}
	for _, tt := range []struct {
		name   string
		caller authz.Caller
		want   party
	}{
		{"a node's agent by itself", authz.Caller{ServiceAccount: agent, Node: "n1"}, party{node: "n1", account: agent}},
		{"a node's other pods together", authz.Caller{ServiceAccount: other, Node: "n1"}, party{node: "n1"}},
		{"an account whose token names no node by itself", authz.Caller{ServiceAccount: other}, party{account: other}},
		{"so with an agent's", authz.Caller{ServiceAccount: agent}, party{account: agent}},
	} {
		if got := s.party(tt.caller); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func enter(t *testing.T, q *queue, node string) func() {
	t.Helper()
	leave, err := q.enter(t.Context(), party{node: node})
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func isOverload(err error) bool {
	e, ok := errors.AsType[*overloadError](err)
	return ok && e.after > 0
}

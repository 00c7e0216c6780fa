package conformance

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	overtaken = "istio/ztunnel#1686; kubernetes/kubernetes#104108: a request may overtake the watch"
	sameName  = "kubernetes/kubernetes#62993: a name that comes again is not who it was"
)

func raceCases() []Case {
	return slices.Concat(overtakenCases(), againCases(), []Case{{
		ID: "race-13", Level: Profile, Source: "docs/decisions: age is proven; a partition must not keep what is gone alive", run: cutOff,
		Says: "an authority that is cut off from the cluster for longer than it may be says neither yes nor no, and serves again afterwards",
	}})
}

// cutOff has the API server give no news, which says nothing by itself: what was
// known goes on being good for a while, and then it must not.
func cutOff(t *T) {
	switch {
	case t.freeze == nil || t.thaw == nil:
		t.cannot("nobody here can cut the authority off from the cluster")
	case t.Staleness == 0:
		t.cannot("nobody said how old its view may be")
	}
	t.newPod(t.newAccount(), t.newNode()) // so that it hears of something just before
	t.issued(t.agent1, t.cart.id())
	defer t.thaw(context.WithoutCancel(t.ctx)) //nolint:errcheck // whatever happens, and it is thawed again below
	t.check("freezing the API server", t.freeze(t.ctx))
	t.pause(t.Staleness + t.Settle)
	for _, id := range []string{t.cart.id(), t.pay.id(), ""} {
		if a := t.ask(t.agent1, id); a.code != codes.Unavailable || a.took > bound {
			t.errorf("cut off for %v, asked for %s: %v: %s", t.Staleness+t.Settle, orOwn(t.agent1, id), a.code, a.message)
		}
	}
	t.check("thawing the API server", t.thaw(t.ctx))
	for range 60 {
		_, err := t.world.Node(t.ctx, t.name("news"))
		if err == nil && t.ask(t.agent1, t.cart.id()).issued() {
			return
		}
		t.pause(time.Second)
	}
	t.fatalf("not served again within a minute")
}

// overtakenCases are about what was made a moment ago.
func overtakenCases() []Case {
	newcomers := func(t *T, each func(*caller, string)) {
		for range 10 {
			a := t.newAccount()
			t.newPod(a, t.one)
			each(t.agent1, a.id())
		}
	}
	agents := func(t *T, each func(*caller, string)) {
		for range 5 {
			n := t.newNode()
			t.newPod(t.both, n)
			c := t.newAgent(n)
			each(c, t.both.id())
			each(c, "")
		}
	}
	return []Case{
		{ID: "race-01", Level: Must, Source: overtaken, run: func(t *T) {
			newcomers(t, func(c *caller, id string) { t.issued(c, id) })
		}, Says: "a pod that was bound a moment ago gives its identity, soon if not at once"},
		{ID: "race-02", Level: Profile, Source: overtaken, run: func(t *T) { newcomers(t, t.issuedAtOnce) },
			Says: "a pod that was bound a moment ago gives its identity at the first request"},
		{ID: "race-03", Level: Must, Source: overtaken, run: func(t *T) {
			agents(t, func(c *caller, id string) { t.issued(c, id) })
		}, Says: "an agent that was started a moment ago, on a node as new, gets what it may have, soon if not at once"},
		{ID: "race-04", Level: Profile, Source: overtaken, run: func(t *T) { agents(t, t.issuedAtOnce) },
			Says: "an agent that was started a moment ago, on a node as new, gets what it may have at the first request"},
		{ID: "race-05", Level: Must, Source: overtaken, run: func(t *T) {
			a := t.newAccount()
			for range 3 {
				t.refused(t.agent1, a.id())
			}
			t.newPod(a, t.one)
			t.issued(t.agent1, a.id())
		}, Says: "an identity that was asked for too early, and refused, is issued once its pod is there"},
		{ID: "race-06", Level: Must, Source: overtaken, run: func(t *T) {
			a := &account{namespace: t.prefix, name: t.name("account"), trustDomain: t.TrustDomain}
			for range 3 {
				t.refused(t.agent1, a.id())
			}
			a = t.newAccountIn(a.namespace, a.name)
			t.newPod(a, t.one)
			t.issued(t.agent1, a.id())
		}, Says: "an identity that was asked for before its account was there, and refused, is issued once its pod is there"},
		{ID: "race-07", Level: Must, Source: ambient, run: func(t *T) {
			a := t.newAccount()
			t.newPod(a, &node{})
			t.pause(t.quiet())
			t.refused(t.agent1, a.id())
			t.refused(t.agent2, a.id())
			t.newPod(a, t.two)
			t.issued(t.agent2, a.id())
			t.refused(t.agent1, a.id())
		}, Says: "a pod that is bound to no node gives nobody its identity"},
	}
}

// issuedAtOnce asks once.
func (t *T) issuedAtOnce(c *caller, id string) {
	a := t.ask(c, id)
	if !a.issued() {
		t.errorf("%s: %v: %s", orOwn(c, id), a.code, a.message)
		return
	}
	t.judge(a, orOwn(c, id))
	t.note("issued after %v", a.took)
}

// againCases are about what comes again under its name.
func againCases() []Case {
	return []Case{
		{ID: "race-08", Level: Must, Source: sameName, run: func(t *T) {
			a := t.newAccount()
			p := t.newPod(a, t.one)
			old := t.caller(p)
			t.issued(old, "")
			t.again(p, t.one)
			t.becomesRefused(old, "")
			t.issued(t.caller(p), "")
			t.issued(t.agent1, a.id())
		}, Says: "a pod that comes again gives its new token, and its node's agent, the identity, and its old token nothing"},
		{ID: "race-09", Level: Must, Source: ambient, run: func(t *T) {
			a := t.newAccount()
			p := t.newPod(a, t.one)
			t.issued(t.agent1, a.id())
			t.refused(t.agent2, a.id())
			t.again(p, t.two)
			t.issued(t.agent2, a.id())
			t.becomesRefused(t.agent1, a.id())
		}, Says: "a pod that comes again on another node takes its identity there, and leaves it nowhere else"},
		{ID: "race-10", Level: Must, Source: sameName, run: func(t *T) {
			a := t.newAccount()
			old := t.caller(t.newPod(a, t.one))
			t.issued(old, "")
			t.check("deleting a service account", t.world.DeleteAccount(t.ctx, a.namespace, a.name))
			a = t.newAccountIn(a.namespace, a.name)
			t.becomesRefused(old, "")
			t.issued(t.caller(t.newPod(a, t.one)), "")
			t.issued(t.agent1, a.id())
		}, Says: "a token of an account is worth nothing once another account has its name, and that one's is good"},
		{ID: "race-11", Level: Must, Source: overtaken, run: func(t *T) {
			n := t.newNode()
			t.newPod(t.both, n)
			t.issued(t.newAgent(n), t.both.id())
			t.check("deleting a node", t.world.DeleteNode(t.ctx, n.name))
			t.pause(t.quiet())
			var err error
			n.uid, err = t.world.Node(t.ctx, n.name)
			t.check("making a node again", err)
			t.newPod(t.both, n)
			c := t.newAgent(n)
			t.issued(c, t.both.id())
			t.issued(c, "")
		}, Says: "a node that comes again serves its new agent"},
		{ID: "race-12", Level: Must, Source: "istio, ztunnel: an upgrade with surge runs two agents on one node", run: func(t *T) {
			n := t.newNode()
			a := t.newAccount()
			t.newPod(a, n)
			first := t.newAgentPod(n)
			old, next := t.caller(first), t.newAgent(n)
			for range 2 {
				t.issued(old, a.id())
				t.issued(next, a.id())
			}
			t.check("deleting an agent", t.world.DeletePod(t.ctx, t.NodeAgentNamespace, first.name, 0))
			t.becomesRefused(old, a.id())
			t.issued(next, a.id())
		}, Says: "two agents of one node are both served, and when one goes the other still is"},
	}
}

// again deletes the pod, and makes one of its name.
func (t *T) again(p *pod, on *node) {
	t.check("deleting a pod", t.world.DeletePod(t.ctx, p.account.namespace, p.name, 0))
	var err error
	p.node = on
	p.uid, err = t.world.Pod(t.ctx, PodSpec{Namespace: p.account.namespace, Name: p.name, Account: p.account.name, Node: on.name})
	t.check("making a pod again", err)
}

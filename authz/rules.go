package authz

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// A rule is one condition of the node rule. Rules are applied in the order of
// their numbers; the one about the text of the identity comes before them all,
// see [Policy.ask]. A switch, and not a table of functions, keeps a decision
// free of allocations.
type rule int

const (
	tokenNamesNode rule = iota
	callerAccountExists
	callerPodLives
	nodesAgree
	nodeNotEvicted
	callerIsNodeAgent
	identityNotProtected
	identityOnNode
	rules // how many there are
)

// check returns a denial if the condition does not hold.
func (r rule) check(p *Policy, now time.Time, a *ask, f *Facts) error {
	switch r {
	case tokenNamesNode:
		return checkTokenNode(a)
	case callerAccountExists:
		return checkCallerAccount(now, a, f)
	case callerPodLives:
		return checkCallerPod(now, a, f)
	case nodesAgree:
		return checkNode(a, f)
	case nodeNotEvicted:
		return p.checkEvicted(a)
	case callerIsNodeAgent:
		return p.checkNodeAgent(a)
	case identityNotProtected:
		return p.checkProtected(a)
	default:
		return checkOnNode(now, a, f)
	}
}

// grants reports whether a request for which the rule holds needs to pass no
// other one: a token without a pod may have its own identity, if such tokens
// are accepted at all, and who asks for itself needs to be no node agent.
func (r rule) grants(a *ask) bool {
	switch r {
	case callerAccountExists:
		return !a.caller.Bound() && a.own()
	case nodeNotEvicted:
		return a.own()
	default:
		return r == identityOnNode
	}
}

// mayBeLate reports whether err is a denial that rests on facts, which may
// reach us later than they reached the caller.
func mayBeLate(err error) bool {
	d, denied := errors.AsType[*Denial](err)
	return denied && slices.Contains([]Reason{CallerGone, CallerDone, NodeMismatch, NotOnNode}, d.Reason)
}

// checkTokenNode refuses a token without the UID of its node too: the API
// server leaves it out when the Node object is gone.
func checkTokenNode(a *ask) error {
	c := &a.caller
	switch {
	case !c.Bound() && !a.own():
		return Deny(NoNode, "the token of %s is bound to no pod, so it is good for its own identity only", c.ServiceAccount)
	case c.Bound() && c.Node == "":
		return Deny(NoNode, "the token of pod %s/%s names no node", c.ServiceAccount.Namespace, c.Pod)
	case c.Bound() && c.NodeUID == "":
		return Deny(NoNode, "the token of pod %s/%s names node %s, but not its UID", c.ServiceAccount.Namespace, c.Pod, c.Node)
	}
	return nil
}

func checkCallerAccount(now time.Time, a *ask, f *Facts) error {
	switch acc := f.CallerAccount; {
	case acc.UID == "":
		return Deny(CallerGone, "there is no service account %s", a.caller.ServiceAccount)
	case acc.UID != a.caller.ServiceAccountUID:
		return Deny(CallerGone, "service account %s has UID %s, the token has %s", a.caller.ServiceAccount, acc.UID, a.caller.ServiceAccountUID)
	case !acc.Exists(now):
		return Deny(CallerGone, "service account %s was deleted at %s", a.caller.ServiceAccount, stamp(acc.Deleted))
	}
	return nil
}

func checkCallerPod(now time.Time, a *ask, f *Facts) error {
	c, pod := &a.caller, &f.CallerPod
	switch {
	case pod.UID == "":
		return Deny(CallerGone, "there is no pod %s/%s", c.ServiceAccount.Namespace, c.Pod)
	case pod.UID != c.PodUID:
		return Deny(CallerGone, "pod %s/%s has UID %s, the token has %s", c.ServiceAccount.Namespace, c.Pod, pod.UID, c.PodUID)
	case pod.Account != c.ServiceAccount:
		return Deny(CallerGone, "pod %s/%s runs as %s, the token is of %s", c.ServiceAccount.Namespace, c.Pod, pod.Account, c.ServiceAccount)
	case pod.Finished:
		return Deny(CallerDone, "pod %s/%s has finished", c.ServiceAccount.Namespace, c.Pod)
	case !pod.Live(now):
		return Deny(CallerGone, "pod %s/%s was deleted at %s", c.ServiceAccount.Namespace, c.Pod, stamp(pod.Deleted))
	}
	return nil
}

func checkNode(a *ask, f *Facts) error {
	c := &a.caller
	switch {
	case f.CallerPod.Node != c.Node:
		return Deny(NodeMismatch, "pod %s/%s is on node %q, the token says %q", c.ServiceAccount.Namespace, c.Pod, f.CallerPod.Node, c.Node)
	case f.Node.UID == "":
		return Deny(NodeMismatch, "there is no Node object %s", c.Node)
	case f.Node.UID != c.NodeUID:
		return Deny(NodeMismatch, "node %s has UID %s, the token has %s", c.Node, f.Node.UID, c.NodeUID)
	}
	return nil
}

func (p *Policy) checkEvicted(a *ask) error {
	if p.isEvicted(a.caller.Node) {
		return Deny(Evicted, "node %s is evicted", a.caller.Node)
	}
	return nil
}

func (p *Policy) isEvicted(node string) bool { return p.Evicted != nil && p.Evicted(node) }

func (p *Policy) checkNodeAgent(a *ask) error {
	if !slices.Contains(p.NodeAgents, a.caller.ServiceAccount) {
		return Deny(NotANodeAgent, "%s asks for %s, but the node agents are [%s]", a.caller.ServiceAccount, a.target, join(p.NodeAgents))
	}
	return nil
}

func (p *Policy) checkProtected(a *ask) error {
	if slices.Contains(p.Protected, a.target) {
		return Deny(Protected, "no node agent may have the identity of %s", a.target)
	}
	return nil
}

func checkOnNode(now time.Time, a *ask, f *Facts) error {
	switch {
	case f.Live == 0:
		return Deny(NotOnNode, "no live pod of %s is on node %s", a.target, a.caller.Node)
	case !f.TargetAccount.Exists(now):
		return Deny(NotOnNode, "there is no service account %s", a.target)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func join(accounts []ServiceAccount) string {
	names := make([]string, len(accounts))
	for i, sa := range accounts {
		names[i] = sa.String()
	}
	return strings.Join(names, " ")
}

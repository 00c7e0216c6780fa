package authz

import (
	"errors"
	"fmt"
	"time"
)

// A Step is one rule, and what came of it.
type Step struct {
	Rule     string // a sentence that is true if the rule holds
	Evidence string // what was looked at
	Denial   *Denial
	Grants   bool // the request needs to pass no other rule
}

// Explain applies the rules of [Policy.Authorize] to facts and returns each one
// that was applied, in order. The last step has the denial, if there is one.
func (p *Policy) Explain(now time.Time, caller Caller, want string, facts Facts) []Step {
	text := Step{Rule: "the identity is well-formed and in our trust domain", Evidence: want}
	a, err := p.ask(caller, want)
	if err != nil {
		text.Denial = denialOf(err)
		return []Step{text}
	}
	text.Evidence = a.id.String()
	steps := []Step{text}
	for r := range rules {
		err := r.check(p, now, &a, &facts)
		step := Step{Rule: r.String(), Evidence: r.evidence(p, &a, &facts), Denial: denialOf(err)}
		step.Grants = err == nil && r.grants(&a)
		steps = append(steps, step)
		if step.Denial != nil || step.Grants {
			break
		}
	}
	return steps
}

// Target returns the service account that want names for caller, and so what
// [Facts] an explanation needs.
func (p *Policy) Target(caller Caller, want string) (ServiceAccount, error) {
	a, err := p.ask(caller, want)
	return a.target, err
}

func denialOf(err error) *Denial {
	d, _ := errors.AsType[*Denial](err)
	return d
}

// String returns the rule as a sentence that is true if it holds.
func (r rule) String() string {
	switch r {
	case tokenNamesNode:
		return "the token names a node"
	case callerAccountExists:
		return "the caller's service account still exists"
	case callerPodLives:
		return "the caller's pod still exists and has not finished"
	case nodesAgree:
		return "token, pod and Node object name the same node"
	case nodeNotEvicted:
		return "the node is not evicted"
	case callerIsNodeAgent:
		return "the caller is a node agent"
	case identityNotProtected:
		return "the identity is not protected"
	default:
		return "the identity runs on the caller's node"
	}
}

// evidence says what the rule looked at, for people.
func (r rule) evidence(p *Policy, a *ask, f *Facts) string {
	c := &a.caller
	switch r {
	case tokenNamesNode:
		if !c.Bound() {
			return "the token is bound to no pod, and so good for its own identity only"
		}
		return fmt.Sprintf("node %s, UID %s in the token", orNone(c.Node), orNone(c.NodeUID))
	case callerAccountExists:
		return fmt.Sprintf("service account %s: UID %s in the token, %s in the cluster", c.ServiceAccount, orNone(c.ServiceAccountUID), orNone(f.CallerAccount.UID))
	case callerPodLives:
		return fmt.Sprintf("pod %s/%s: UID %s in the token, %s in the cluster", c.ServiceAccount.Namespace, c.Pod, orNone(c.PodUID), orNone(f.CallerPod.UID))
	case nodesAgree:
		return fmt.Sprintf("the pod is on node %s; UID %s in the token, %s in the cluster", orNone(f.CallerPod.Node), orNone(c.NodeUID), orNone(f.Node.UID))
	case nodeNotEvicted:
		if p.isEvicted(c.Node) {
			return fmt.Sprintf("node %s is on the eviction list", c.Node)
		}
		return fmt.Sprintf("node %s is not on the eviction list", orNone(c.Node))
	case callerIsNodeAgent:
		return fmt.Sprintf("the caller is %s; the node agents are [%s]", c.ServiceAccount, join(p.NodeAgents))
	case identityNotProtected:
		return fmt.Sprintf("the protected accounts are [%s]", join(p.Protected))
	default:
		return onNodeEvidence(a, f)
	}
}

func onNodeEvidence(a *ask, f *Facts) string {
	if f.Live == 0 {
		return fmt.Sprintf("no live pod of %s on node %s", a.target, orNone(a.caller.Node))
	}
	return fmt.Sprintf("live pods of %s on node %s: %d, UID %s among them; account UID %s", a.target, a.caller.Node, f.Live, f.LiveUID, orNone(f.TargetAccount.UID))
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

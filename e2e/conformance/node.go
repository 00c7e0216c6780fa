package conformance

import (
	"slices"
	"time"
)

const ambient = "Istio, ambient mesh security: a CA must check that a ztunnel asks for identities on its node"

func nodeCases() []Case { return slices.Concat(placeCases(), podCases(), callerCases()) }

// placeCases are about what runs where.
func placeCases() []Case {
	return []Case{
		{ID: "node-01", Level: Must, Source: ambient, run: func(t *T) {
			t.issued(t.agent1, t.cart.id())
			t.refused(t.agent2, t.cart.id())
		}, Says: "an agent has an identity that runs on its node, and another node's agent does not"},
		{ID: "node-02", Level: Must, Source: ambient, run: func(t *T) {
			t.refused(t.agent1, t.pay.id())
			t.issued(t.agent2, t.pay.id())
		}, Says: "an agent does not have an identity that runs on another node only"},
		{ID: "node-03", Level: Must, Source: "istio/istio#41379", run: func(t *T) {
			t.issued(t.agent1, t.both.id())
			t.issued(t.agent2, t.both.id())
		}, Says: "the agents of two nodes both have an identity that runs on both"},
		{ID: "node-04", Level: Must, Source: ambient, run: func(t *T) {
			c := t.caller(t.cartPod)
			t.refused(c, t.both.id())
			t.issued(c, "")
		}, Says: "a workload has its own identity, and not that of its neighbour on the node"},
		{ID: "node-05", Level: Must, Source: "istio/istio#56550", run: func(t *T) {
			for _, a := range []*account{
				t.newAccountIn(t.NodeAgentNamespace, t.name("agent")),
				t.newAccountIn(t.prefix, t.NodeAgentName),
			} {
				c := t.caller(t.newPod(a, t.one))
				t.refused(c, t.cart.id())
				t.issued(c, "")
			}
		}, Says: "an account that shares the node agents' namespace, or their name, is no node agent"},
		{ID: "node-06", Level: Must, Source: "SPIFFE-ID, Section 2; istio/istio#58427", run: func(t *T) {
			ns, sa := t.cart.namespace, t.cart.name
			t.issued(t.agent1, t.cart.id(), withCSR(t.plainCSR())) // or the refusals below may be of a CSR without names
			for _, td := range []string{"other.test", "", t.TrustDomain + ".other.test", "other-" + t.TrustDomain} {
				t.refused(t.agent1, "spiffe://"+td+"/ns/"+ns+"/sa/"+sa, withCSR(t.plainCSR()))
			}
			t.issued(t.agent1, t.cart.id())
		}, Says: "no identity of another trust domain is issued, nor of none"},
		{ID: "node-07", Level: Must, Source: "SPIFFE-ID, Section 2; spiffe/spiffe#183", run: spellings,
			Says: "an identity has one spelling, and no other is taken for it"},
	}
}

// podCases are about which pods give their identity.
func podCases() []Case {
	return []Case{
		{ID: "node-08", Level: Must, Source: ambient, run: func(t *T) {
			n := t.newNode()
			agent := t.newAgent(n)
			a := t.newAccount()
			p := t.newPod(a, n)
			t.issued(agent, a.id())
			t.check("deleting a pod", t.world.DeletePod(t.ctx, a.namespace, p.name, 0))
			t.becomesRefused(agent, a.id())
		}, Says: "once the last pod of an identity has gone from a node, its agent does not have the identity any more"},
		{ID: "node-09", Level: Must, Source: ambient, run: func(t *T) {
			n := t.newNode()
			agent := t.newAgent(n)
			a := t.newAccount()
			first, second := t.newPod(a, n), t.newPod(a, n)
			t.issued(agent, a.id())
			t.check("deleting a pod", t.world.DeletePod(t.ctx, a.namespace, first.name, 0))
			t.pause(t.quiet())
			t.issued(agent, a.id())
			t.check("deleting a pod", t.world.DeletePod(t.ctx, a.namespace, second.name, 0))
			t.becomesRefused(agent, a.id())
		}, Says: "one of two pods is enough for an identity, and none is not"},
		{ID: "node-10", Level: Should, Source: "Kubernetes, pod phases; a finished pod's containers do not run again", run: func(t *T) {
			for _, phase := range []string{"Succeeded", "Failed"} {
				n := t.newNode()
				agent := t.newAgent(n)
				a := t.newAccount()
				p := t.newPod(a, n)
				t.issued(agent, a.id())
				t.check("finishing a pod", t.world.SetPhase(t.ctx, a.namespace, p.name, phase))
				t.becomesRefused(agent, a.id())
			}
		}, Says: "a pod that has succeeded or failed gives nobody its identity"},
		{ID: "node-11", Level: Must, Source: "istio/istio#57674, #54889; istio, ztunnel: a pod is bound long before it has an address", run: func(t *T) {
			a := t.newAccount()
			t.newPodLike(a, t.one, PodSpec{Phase: "Pending"})
			t.issued(t.agent1, a.id())
		}, Says: "a pod that is still pending, without an address, gives its identity"},
		{ID: "node-12", Level: Must, Source: "jtblin/kube2iam#172; istio, ztunnel: a terminating pod carries traffic", run: func(t *T) {
			n := t.newNode()
			agent := t.newAgent(n)
			a := t.newAccount()
			p := t.newPod(a, n)
			t.check("deleting a pod", t.world.DeletePod(t.ctx, a.namespace, p.name, time.Hour))
			t.pause(t.quiet())
			t.issued(agent, a.id())
		}, Says: "a pod within its termination grace period gives its identity"},
		{ID: "node-13", Level: Should, Source: "istio, ztunnel: a host network pod keeps an identity on its node", run: func(t *T) {
			a := t.newAccount()
			t.newPodLike(a, t.one, PodSpec{HostNetwork: true})
			t.issued(t.agent1, a.id())
		}, Says: "a pod on the host network gives its identity"},
		{ID: "node-14", Level: Profile, Source: "Kubernetes, static pods: a mirror pod is made by the kubelet", run: func(t *T) {
			a := t.newAccount()
			t.newPodLike(a, t.one, PodSpec{Mirror: true})
			t.refused(t.agent1, a.id())
			t.newPod(a, t.one)
			t.issued(t.agent1, a.id())
		}, Says: "a mirror pod, which a kubelet makes up, gives nobody an identity"},
	}
}

// callerCases are about who asks.
func callerCases() []Case {
	return []Case{
		{ID: "node-15", Level: Must, Source: "istio, ztunnel: without metadata the caller asks for itself", run: func(t *T) {
			t.issued(t.agent1, "")
			t.issued(t.agent1, t.agent1.own)
		}, Says: "an agent has its own identity, whether it names it or not"},
		{ID: "node-16", Level: Must, Source: ambient, run: func(t *T) {
			n := t.newNode()
			p := t.newAgentPod(n)
			agent := t.caller(p)
			a := t.newAccount()
			t.newPod(a, n)
			t.issued(agent, a.id())
			t.check("deleting the agent", t.world.DeletePod(t.ctx, t.NodeAgentNamespace, p.name, 0))
			t.becomesRefused(agent, a.id())
		}, Says: "an agent that is gone gets nothing, although its token has not expired"},
		{ID: "node-17", Level: Must, Source: "kubernetes/kubernetes#62993", run: replacedAgent,
			Says: "the token of a pod is worth nothing once another pod has its name"},
		{ID: "node-18", Level: Profile, Source: "CVE-2025-5187: a node's name is not its identity", run: func(t *T) {
			n := t.newNode()
			agent := t.newAgent(n)
			a := t.newAccount()
			t.newPod(a, n)
			t.issued(agent, a.id())
			t.check("deleting a node", t.world.DeleteNode(t.ctx, n.name))
			_, err := t.world.Node(t.ctx, n.name)
			t.check("making a node again", err)
			t.becomesRefused(agent, a.id())
		}, Says: "a token of a node is worth nothing once another node has its name"},
		{ID: "node-19", Level: Profile, Source: "Kubernetes: a pod without its service account has no identity", run: func(t *T) {
			n := t.newNode()
			agent := t.newAgent(n)
			a := t.newAccount()
			t.newPod(a, n)
			t.issued(agent, a.id())
			t.check("deleting a service account", t.world.DeleteAccount(t.ctx, a.namespace, a.name))
			t.becomesRefused(agent, a.id())
		}, Says: "an identity goes with its service account"},
		{ID: "node-20", Level: Must, Source: ambient, run: func(t *T) {
			t.refused(t.agent1, t.newAccount().id())
		}, Says: "an identity that runs nowhere is refused"},
	}
}

// spellings asks for an identity that the agent may have in ways that are not
// its only one.
func spellings(t *T) {
	td, ns, sa := t.TrustDomain, t.cart.namespace, t.cart.name
	t.issued(t.agent1, t.cart.id(), withCSR(t.plainCSR())) // or the refusals below may be of a CSR without names
	for _, id := range []string{
		"SPIFFE://" + td + "/ns/" + ns + "/sa/" + sa,
		"spiffe://" + td + ":80/ns/" + ns + "/sa/" + sa,
		"spiffe://user@" + td + "/ns/" + ns + "/sa/" + sa,
		t.cart.id() + "/",
		t.cart.id() + "/more",
		t.cart.id() + "?x=1",
		t.cart.id() + "#f",
		t.cart.id() + ",spiffe://" + td + "/ns/x/sa/y",
		t.cart.id() + "\n",
		" " + t.cart.id(),
		"spiffe://" + td + "//ns/" + ns + "/sa/" + sa,
		"spiffe://" + td + "/ns//sa/" + sa,
		"spiffe://" + td + "/ns/./" + ns + "/sa/" + sa,
		"spiffe://" + td + "/ns/x/../" + ns + "/sa/" + sa,
		"spiffe://" + td + "/ns/" + ns + "/sa/c%61rt",
		"spiffe://" + td + "/ns/" + ns + "%2Fx/sa/" + sa,
		"spiffe://" + td + "/ns/" + ns + "/sa/CART",
		"spiffe://" + td + "/sa/" + sa + "/ns/" + ns,
		"https://" + td + "/ns/" + ns + "/sa/" + sa,
		ns + "/" + sa,
	} {
		t.refused(t.agent1, id, withCSR(t.plainCSR()))
	}
	t.issued(t.agent1, t.cart.id())
}

// replacedAgent has an agent replaced by one of the same name.
func replacedAgent(t *T) {
	n := t.newNode()
	p := t.newAgentPod(n)
	old := t.caller(p)
	a := t.newAccount()
	t.newPod(a, n)
	t.issued(old, a.id())
	t.again(p, n)
	t.becomesRefused(old, a.id())
	t.issued(t.caller(p), a.id())
}

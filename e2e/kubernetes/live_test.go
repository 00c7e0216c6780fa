package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// agentOn makes a node and a node agent on it.
func agentOn(t *testing.T, s *cluster.APIServer, node string) *corev1.Pod {
	t.Helper()
	s.Node(t, node)
	if !s.HasServiceAccount(t, "istio-system", "ztunnel") {
		s.ServiceAccount(t, "istio-system", "ztunnel")
	}
	return s.Pod(t, cluster.Pod{
		Namespace: "istio-system", Name: "zt-" + node, ServiceAccount: "ztunnel", Node: node, Phase: corev1.PodRunning,
	})
}

// workloadOn makes a service account of namespace shop, and a pod of it on a
// node.
func workloadOn(t *testing.T, s *cluster.APIServer, account, node string) *corev1.Pod {
	t.Helper()
	s.ServiceAccount(t, "shop", account)
	return s.Pod(t, cluster.Pod{
		Namespace: "shop", Name: account + "-1", ServiceAccount: account, Node: node, Phase: corev1.PodRunning,
	})
}

func TestCertificateByOtherJudges(t *testing.T) {
	c := begin(t)
	a := serve(t, c.APIServer, nil)
	token := c.PodToken(t, agentOn(t, c.APIServer, "n1"))
	workloadOn(t, c.APIServer, "cart", "n1")
	a.request(t, token, id("shop", "cart")).VerifyOpenSSL(t)
}

// behind is by how much a watch is late that requests overtake for certain. On
// one idle machine it is faster than they are.
const behind = 100 * time.Millisecond

// [NODE-3] A hundred pods, each bound 0 to 50 ms before its certificate is asked
// for. The kubelet starts a pod as soon as it is bound, and its node agent asks.
func TestPodBoundAMomentAgo(t *testing.T) {
	const pods = 100
	c := begin(t)
	ours, link := c.LinkedAPIServer(t)
	a := serve(t, ours, nil)
	token := c.PodToken(t, agentOn(t, c.APIServer, "n1"))
	a.must(t, issued, token, "")
	link.Delay(behind)
	before := a.confirmed(t)
	var slowest time.Duration
	for i := range pods {
		name := fmt.Sprintf("app-%d", i)
		pod := workloadOn(t, c.APIServer, name, "")
		c.Bind(t, pod, "n1")
		pause(i * 50 / pods)
		begun := time.Now()
		if got := a.request(t, token, id("shop", name)); got.word != issued {
			t.Errorf("a pod bound %d ms ago: %s", i*50/pods, got.word)
		}
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("the slowest answer took %v", slowest)
	a.wasConfirmed(t, before, pods/2, "event", "proof", "read")
}

// [NODE-3] A hundred node agents, each asking in its first 50 ms, on a node that
// is as new, over a connection that is as new.
func TestAgentStartedAMomentAgo(t *testing.T) {
	const agents = 100
	c := begin(t)
	ours, link := c.LinkedAPIServer(t)
	a := serve(t, ours, nil)
	c.ServiceAccount(t, "shop", "cart")
	link.Delay(behind)
	before := a.confirmed(t)
	var slowest time.Duration
	for i := range agents {
		node := fmt.Sprintf("n%d", i)
		pod := agentOn(t, c.APIServer, node)
		c.Pod(t, cluster.Pod{Namespace: "shop", Name: "cart-" + node, ServiceAccount: "cart", Node: node})
		token := c.PodToken(t, pod)
		pause(i * 50 / agents)
		begun := time.Now()
		one := &authority{Server: a.Server, Conn: a.where.Dial(t), where: a.where, account: a.account}
		for _, identity := range []string{"", id("shop", "cart")} {
			if got := one.request(t, token, identity); got.word != issued {
				t.Errorf("an agent started %d ms ago, for %q: %s", i*50/agents, identity, got.word)
			}
		}
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("the slowest two answers took %v", slowest)
	// An agent's second request may find what the first has waited for.
	a.wasConfirmed(t, before, agents/2, "event", "proof", "read")
}

// pause lets some milliseconds pass, because the test is about how many.
func pause(milliseconds int) { <-time.After(time.Duration(milliseconds) * time.Millisecond) }

func TestAPIServerStoppedAndStarted(t *testing.T) {
	c := begin(t)
	a := serve(t, c.APIServer, nil)
	token := c.PodToken(t, agentOn(t, c.APIServer, "n1"))
	workloadOn(t, c.APIServer, "cart", "n1")
	a.must(t, issued, token, id("shop", "cart"))
	a.must(t, "not-on-node", token, id("shop", "other"))

	c.Stop(t)
	t.Cleanup(func() {
		if c.Live(context.Background()) != nil {
			c.Start(t)
		}
	})
	// What is known is known, and needs no call.
	a.must(t, issued, token, id("shop", "cart"))
	// What is not known cannot be denied, since nobody can be asked.
	if got := a.ask(t, token, id("shop", "pay")); got.Code != codes.Unavailable {
		t.Errorf("for what is not known, without an API server: %s (%v)", got.word, got.Code)
	}
	if err := a.Ready(t.Context()); err != nil {
		t.Errorf("without an API server: %v", err)
	}

	c.Start(t)
	pay := workloadOn(t, c.APIServer, "pay", "n1")
	a.becomes(t, 5*time.Second, issued, token, id("shop", "pay"), "api-trouble", "deadline-passed")
	a.must(t, "not-on-node", token, id("shop", "nobody"))
	// The watches go on as well: what goes is noticed.
	c.DeletePod(t, pay, 0)
	a.becomes(t, time.Minute, "not-on-node", token, id("shop", "pay"), issued)
}

// An API server that is cut off from its store answers, keeps watches open and
// sends bookmarks on them. What it says is as old as the cut.
func TestFrozenEtcdMakesAnswersUnavailable(t *testing.T) {
	const (
		maxStaleness = 20 * time.Second
		probeEvery   = time.Second
		margin       = time.Second
	)
	c := begin(t)
	a := serve(t, c.APIServer, options{"maxStaleness": maxStaleness.String(), "probeEvery": probeEvery.String()})
	agent := agentOn(t, c.APIServer, "n1")
	token := c.PodToken(t, agent)
	workload := workloadOn(t, c.APIServer, "cart", "n1")
	a.must(t, issued, token, id("shop", "cart"))
	c.Touch(t, "n1", agent, workload)
	a.must(t, issued, token, id("shop", "cart"))

	thaw := c.FreezeEtcd(t)
	frozen := time.Now()
	for _, identity := range []string{"", id("shop", "cart")} {
		a.must(t, issued, token, identity)
	}
	proven := a.proven(t)
	if age := frozen.Sub(proven); age > probeEvery+2*margin {
		t.Errorf("what was known was %v old at the freeze", age)
	}
	if got := a.ask(t, token, id("shop", "pay")); got.Code != codes.Unavailable {
		t.Errorf("for what is not known, with etcd frozen: %s (%v)", got.word, got.Code)
	}
	// What was known is good until it is too old: after half of that time, and
	// all along.
	left := proven.Add(maxStaleness).Sub(frozen)
	cluster.Eventually(t, maxStaleness, "half of the time has passed", func(context.Context) error {
		half := time.Since(frozen) >= left/2
		if got := a.ask(t, token, id("shop", "cart")); got.word != issued {
			t.Fatalf("%v after the freeze: %s (%v)", time.Since(frozen), got.word, got.Code)
		}
		if !half {
			return errors.New("it has not")
		}
		return nil
	})
	a.becomes(t, maxStaleness+margin, "stale", token, id("shop", "cart"), issued)
	switch after := time.Since(frozen); {
	case after > maxStaleness+margin:
		t.Errorf("what was known %v ago was still good", after)
	case after < left-margin:
		t.Errorf("what was known was good for %v, and should have been for %v", after, left)
	}
	for _, identity := range []string{"", id("shop", "cart"), id("shop", "pay")} {
		a.must(t, "stale", token, identity)
	}
	if err := c.Live(t.Context()); err != nil {
		t.Errorf("the API server is not even alive, so nothing was shown: %v", err)
	}
	if err := a.Ready(t.Context()); err != nil {
		t.Errorf("a stale server stays ready: %v", err)
	}

	thaw()
	cluster.Eventually(t, time.Minute, "answers are back", func(context.Context) error {
		if err := c.Ready(t.Context()); err != nil {
			return err
		}
		c.Touch(t, "n1", agent, workload)
		if got := a.ask(t, token, id("shop", "cart")); got.word != issued {
			return fmt.Errorf("%s", got.word)
		}
		return nil
	})
	a.must(t, "not-on-node", token, id("shop", "pay"))
}

// Whoever does not wait for as long as ours is behind asks ours, who must not
// answer from what it has heard, but ask etcd.
func TestOtherAPIServerIsFurtherAheadThanTheHold(t *testing.T) {
	const pods = 6 // a node's pods are read once a second
	c := begin(t)
	ours, link := c.LinkedAPIServer(t)
	a := serve(t, ours, options{"hold": "50ms"})
	token := c.PodToken(t, agentOn(t, c.APIServer, "n1"))
	a.must(t, issued, token, "")

	link.Delay(300 * time.Millisecond)
	before := a.confirmed(t)
	for i := range pods {
		name := fmt.Sprintf("app-%d", i)
		workloadOn(t, c.APIServer, name, "n1")
		a.must(t, issued, token, id("shop", name))
	}
	a.wasConfirmed(t, before, pods/2, "read")
	before = a.confirmed(t)
	a.must(t, "not-on-node", token, id("shop", "nobody"))
	a.wasConfirmed(t, before, 1, "read")
}

// Ours is one of two API servers on one etcd, and behind: the other one has
// bound the pods, and signed the tokens, that ours has not heard of.
func TestOtherAPIServerIsAhead(t *testing.T) {
	c := begin(t)
	ours, link := c.LinkedAPIServer(t)
	a := serve(t, ours, options{"maxStaleness": "15s", "probeEvery": "1s"})
	agent := agentOn(t, c.APIServer, "n1")
	token := c.PodToken(t, agent)
	a.must(t, issued, token, "")

	// Ours hears of everything, later, and whoever waits a second hears of it.
	const pods = 10
	link.Delay(300 * time.Millisecond)
	before := a.confirmed(t)
	for i := range pods {
		name := fmt.Sprintf("app-%d", i)
		workloadOn(t, c.APIServer, name, "n1")
		a.must(t, issued, token, id("shop", name))
	}
	a.wasConfirmed(t, before, pods/2, "event")
	node := agentOn(t, c.APIServer, "n2")
	a.must(t, issued, c.PodToken(t, node), id("istio-system", "ztunnel"))
	a.must(t, "not-on-node", token, id("shop", "nobody"))

	// Ours hears of nothing.
	workload := workloadOn(t, c.APIServer, "cart", "n1")
	a.must(t, issued, token, id("shop", "cart"))
	link.Delay(0)
	link.Hold(t)
	workloadOn(t, c.APIServer, "late", "n1")
	if got := a.ask(t, token, id("shop", "late")); got.Code != codes.Unavailable {
		t.Errorf("for what ours has not heard of: %s (%v), want Unavailable", got.word, got.Code)
	}
	c.DeletePod(t, workload, 0)
	a.becomes(t, 20*time.Second, "stale", token, id("shop", "cart"), issued)

	// Ours hears of all that it has missed.
	link.Release()
	cluster.Eventually(t, time.Minute, "ours has caught up", func(context.Context) error {
		c.Touch(t, "n1", agent)
		if got := a.ask(t, token, id("shop", "late")); got.word != issued {
			return fmt.Errorf("%s", got.word)
		}
		return nil
	})
	a.becomes(t, 5*time.Second, "not-on-node", token, id("shop", "cart"), issued)
}

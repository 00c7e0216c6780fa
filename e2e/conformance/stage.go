package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"
)

// A stage is what all cases share: the authority, the cluster, one connection,
// and two nodes with an agent on each, which no case may change.
//
//	node 1: agent 1, a pod of cart, a pod of both
//	node 2: agent 2, a pod of pay, a pod of both
type stage struct {
	*Target

	world  World
	sign   Sign
	keySet func(context.Context) ([]byte, error)
	drain  func(context.Context) error
	freeze func(context.Context) error
	thaw   func(context.Context) error
	slow   bool
	conn   *connection
	prefix string // of the names of all that is made

	patience time.Duration // for an answer, whatever was asked

	keys            *keyring
	one, two        *node
	agent1, agent2  *caller
	cart, pay, both *account
	cartPod         *pod
}

// A node is a Node object.
type node struct{ name, uid string }

// An account is a service account.
type account struct {
	namespace, name, uid string

	trustDomain string
}

// id is the account's SPIFFE ID.
func (a *account) id() string {
	return fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", a.trustDomain, a.namespace, a.name)
}

// A pod is a Pod object.
type pod struct {
	name, uid string
	account   *account
	node      *node
}

// A caller is who asks.
type caller struct {
	token string
	own   string // its own identity
}

func newStage(ctx context.Context, c *Config) (*stage, error) {
	random := make([]byte, 3)
	rand.Read(random) // never fails: see go doc crypto/rand.Read
	s := &stage{
		Target: &c.Target, world: c.World, sign: c.Sign, keySet: c.Keys, drain: c.Drain, freeze: c.Freeze, thaw: c.Thaw, slow: c.Slow,
		prefix: "conformance-" + hex.EncodeToString(random), patience: 5 * time.Second, keys: &keyring{},
	}
	var err error
	if s.conn, err = s.dial(s.tls()); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", s.Address, err)
	}
	b := &builder{ctx: ctx, stage: s}
	s.one, s.two = b.node("node-1"), b.node("node-2")
	agents := b.account(s.NodeAgentNamespace, s.NodeAgentName)
	s.agent1 = b.caller(b.pod(s.prefix+"-agent-1", agents, s.one))
	s.agent2 = b.caller(b.pod(s.prefix+"-agent-2", agents, s.two))
	s.cart, s.pay, s.both = b.account(s.prefix, "cart"), b.account(s.prefix, "pay"), b.account(s.prefix, "both")
	s.cartPod = b.pod("cart-1", s.cart, s.one)
	b.pod("pay-1", s.pay, s.two)
	b.pod("both-1", s.both, s.one)
	b.pod("both-2", s.both, s.two)
	return s, b.err
}

// A builder makes objects until one cannot be made.
type builder struct {
	*stage

	ctx context.Context
	err error
}

func (b *builder) try(doing string, f func() error) {
	if b.err == nil {
		if err := f(); err != nil {
			b.err = fmt.Errorf("%s: %w", doing, err)
		}
	}
}

func (b *builder) node(name string) *node {
	n := &node{name: b.prefix + "-" + name}
	b.try("making node "+n.name, func() (err error) { n.uid, err = b.world.Node(b.ctx, n.name); return err })
	return n
}

func (b *builder) account(namespace, name string) *account {
	a := &account{namespace: namespace, name: name, trustDomain: b.TrustDomain}
	b.try("making service account "+name, func() (err error) {
		a.uid, err = b.world.Account(b.ctx, namespace, name)
		return err
	})
	return a
}

func (b *builder) pod(name string, a *account, n *node) *pod {
	p := &pod{name: name, account: a, node: n}
	b.try("making pod "+name, func() (err error) {
		p.uid, err = b.world.Pod(b.ctx, PodSpec{Namespace: a.namespace, Name: name, Account: a.name, Node: n.name})
		return err
	})
	return p
}

func (b *builder) caller(p *pod) *caller {
	c := &caller{own: p.account.id()}
	b.try("asking for a token of pod "+p.name, func() (err error) {
		c.token, err = b.world.Token(b.ctx, b.boundTo(p))
		return err
	})
	return c
}

// boundTo is the token that a kubelet mounts into the pod.
func (s *stage) boundTo(p *pod) TokenRequest {
	return TokenRequest{
		Namespace: p.account.namespace, Account: p.account.name,
		BoundKind: "Pod", BoundName: p.name, BoundUID: p.uid, Audiences: []string{s.Audience},
	}
}

// What a case makes for itself.

func (t *T) newNode() *node {
	n := &node{name: t.name("node")}
	var err error
	n.uid, err = t.world.Node(t.ctx, n.name)
	t.check("making a node", err)
	return n
}

func (t *T) newAccount() *account { return t.newAccountIn(t.prefix, t.name("account")) }

func (t *T) newAccountIn(namespace, name string) *account {
	a := &account{namespace: namespace, name: name, trustDomain: t.TrustDomain}
	var err error
	a.uid, err = t.world.Account(t.ctx, a.namespace, a.name)
	t.check("making a service account", err)
	return a
}

func (t *T) newPod(a *account, n *node) *pod { return t.newPodLike(a, n, PodSpec{}) }

// newPodLike makes a pod of an account on a node, in all else as the spec says.
func (t *T) newPodLike(a *account, n *node, like PodSpec) *pod {
	p := &pod{name: t.name("pod"), account: a, node: n}
	like.Namespace, like.Name, like.Account, like.Node = a.namespace, p.name, a.name, n.name
	var err error
	p.uid, err = t.world.Pod(t.ctx, like)
	t.check("making a pod", err)
	return p
}

// newAgent makes a node agent on a node.
func (t *T) newAgent(n *node) *caller { return t.caller(t.newAgentPod(n)) }

func (t *T) newAgentPod(n *node) *pod {
	return t.newPod(&account{namespace: t.NodeAgentNamespace, name: t.NodeAgentName, trustDomain: t.TrustDomain}, n)
}

// caller takes the pod's token.
func (t *T) caller(p *pod) *caller { return &caller{t.token(t.boundTo(p)), p.account.id()} }

func (t *T) token(r TokenRequest) string {
	token, err := t.world.Token(t.ctx, r)
	t.check("asking for a token", err)
	return token
}

// request is what a caller's client sends for an identity, "" for its own: a
// new key, and a CSR with the identity in it, as ztunnel's.
func (t *T) request(c *caller, id string, options ...option) *request {
	key, err := newKey()
	t.check("making a key", err)
	r := &request{headers: metadata.MD{}, key: key, seconds: 24 * 3600}
	r.headers.Set("authorization", "Bearer "+c.token)
	r.headers.Set("clusterid", t.ClusterID)
	san := id
	if id == "" {
		san = c.own
	} else {
		withMetadata("ImpersonatedIdentity", structpb.NewStringValue(id))(r)
	}
	r.csr, err = newCSR(key, csrSpec{uri: []string{san}})
	t.check("making a CSR", err)
	for _, o := range options {
		o(r)
	}
	return r
}

// ask asks once.
func (t *T) ask(c *caller, id string, options ...option) *answer {
	return t.conn.send(t.ctx, t.request(c, id, options...))
}

// issued asks until there is a certificate for the identity, and judges it.
func (t *T) issued(c *caller, id string, options ...option) *certificate {
	return t.judge(t.granted(c, id, options...), orOwn(c, id))
}

// granted asks until there is a certificate, which must be within the time that
// the authority may take to hear of the cluster. Whoever asks judges it.
func (t *T) granted(c *caller, id string, options ...option) (a *answer) {
	for more := t.settling(); more(); {
		if a = t.ask(c, id, options...); a.issued() {
			return a
		}
	}
	t.fatalf("refused for %v: %v: %s", t.Settle, a.code, a.message)
	return nil
}

// refused asks, and must be told no. That it cannot be told now is asked about
// again.
func (t *T) refused(c *caller, id string, options ...option) (a *answer) {
	for more := t.settling(); more(); {
		switch a = t.ask(c, id, options...); {
		case a.issued():
			t.fatalf("a certificate was issued for %s", orOwn(c, id))
		case a.refused():
			t.note("refused: %v: %s", a.code, a.message)
			return a
		}
	}
	t.fatalf("neither yes nor no for %v: %v: %s", t.Settle, a.code, a.message)
	return nil
}

// becomesRefused is for what was removed a moment ago, of which the authority
// may not have heard.
func (t *T) becomesRefused(c *caller, id string) {
	var a *answer
	for more := t.settling(); more(); {
		if a = t.ask(c, id); a.refused() {
			t.note("refused: %v: %s", a.code, a.message)
			return
		}
	}
	t.fatalf("not refused for %v: %v: %s", t.Settle, a.code, a.message)
}

// settling returns what reports whether to ask once more, and waits a moment
// before each time but the first.
func (t *T) settling() (more func() bool) {
	end := time.Now().Add(t.Settle) //nolint:forbidigo // an authority outside this process has no other clock
	asked := false
	return func() bool {
		switch {
		case !asked:
			asked = true
			return true
		case time.Until(end) <= 0:
			return false
		}
		t.pause(50 * time.Millisecond)
		return true
	}
}

// answered asks until there is a yes or a no, in whatever words, which must be
// soon. What cannot be told for as long as the authority may take to hear of the
// cluster is as good as a no. Too many requests are told with details, unlike too
// large ones.
func (t *T) answered(c *caller, id string, options ...option) *answer {
	options = append(options, func(r *request) { r.wait = t.patience })
	for end := time.Now().Add(t.Settle); ; t.pause(50 * time.Millisecond) { //nolint:forbidigo // as above
		a := t.ask(c, id, options...)
		later := a.code == codes.Unavailable || a.code == codes.ResourceExhausted && len(a.details) > 0
		switch {
		case a.code == codes.DeadlineExceeded:
			t.fatalf("no answer for %v: %s", t.patience, a.message)
		case !later || time.Until(end) < 0:
			return a
		}
	}
}

func orOwn(c *caller, id string) string {
	if id == "" {
		return c.own
	}
	return id
}

// plainCSR is a CSR of a new key that names nothing.
func (t *T) plainCSR() string {
	key, err := newKey()
	t.check("making a key", err)
	text, err := newCSR(key, csrSpec{})
	t.check("making a CSR", err)
	return text
}

// quiet is how long to wait when nothing would tell that the authority has heard
// of a change: what it does after that shows what it makes of it.
func (t *T) quiet() time.Duration { return min(t.Settle, 2*time.Second) }

// parallel calls f with the numbers below n, all at once, and waits.
func parallel(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

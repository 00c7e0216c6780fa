package authz_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
)

func TestScenarios(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			w := newWorld(s)
			var token scenario.Token
			for _, step := range s.Steps {
				next, err := scenario.Play(w, step, token)
				if err != nil {
					t.Errorf("%s: %v", step.Case, err)
					continue
				}
				token = next
			}
		})
	}
}

// cart is a workload and zt the node agent next to it.
func small(t testing.TB) (w *world, zt, cart authz.Caller) {
	t.Helper()
	w = newWorld(scenario.Scenario{Agents: []string{"istio-system/ztunnel"}})
	for _, p := range []scenario.Pod{
		{Namespace: "istio-system", Name: "zt-1", Account: "ztunnel", Node: "n1"},
		{Namespace: "shop", Name: "cart-1", Account: "cart", Node: "n1"},
		{Namespace: "shop", Name: "cart-2", Account: "cart", Node: "n1"},
	} {
		if err := w.MakePod(p); err != nil {
			t.Fatal(err)
		}
	}
	return w, caller(t, w, "istio-system/zt-1"), caller(t, w, "shop/cart-1")
}

func caller(t testing.TB, w *world, pod string) authz.Caller {
	t.Helper()
	token, err := w.Token("pod", pod)
	if err != nil {
		t.Fatal(err)
	}
	return token.(authz.Caller)
}

const cartID = "spiffe://cluster.local/ns/shop/sa/cart"

func TestGrantCarriesItsEvidence(t *testing.T) {
	w, zt, _ := small(t)
	g, err := w.policy.Authorize(t.Context(), zt, cartID)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := g.Evidence(), (authz.Evidence{Pods: 2, PodUID: w.Pods[2].UID}); got != want {
		t.Errorf("Evidence = %v, want %v", got, want)
	}
	if g.Caller() != zt || g.ID().String() != cartID || g.IsZero() {
		t.Errorf("the grant is %v to %v", g.ID(), g.Caller())
	}
}

func TestZeroGrantPermitsNothing(t *testing.T) {
	if g := (authz.Grant{}); !g.IsZero() || !g.ID().IsZero() {
		t.Error("the zero grant is not zero")
	}
}

// TestTokenContradictsCluster has the callers that no API server would make.
func TestTokenContradictsCluster(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*authz.Caller)
		want   authz.Reason
	}{
		{"[TOK-4] the token has no pod UID", func(c *authz.Caller) { c.PodUID = "" }, authz.CallerGone},
		{"the token has no account UID", func(c *authz.Caller) { c.ServiceAccountUID = "" }, authz.CallerGone},
		{"the token names another node", func(c *authz.Caller) { c.Node = "n2" }, authz.NodeMismatch},
		{"the token has another node UID", func(c *authz.Caller) { c.NodeUID = "x" }, authz.NodeMismatch},
		{"the token names no node", func(c *authz.Caller) { c.Node = "" }, authz.NoNode},
		{"the token has no node UID", func(c *authz.Caller) { c.NodeUID = "" }, authz.NoNode},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, zt, _ := small(t)
			tt.change(&zt)
			g, err := w.policy.Authorize(t.Context(), zt, cartID)
			wantDenied(t, g, err, tt.want)
		})
	}
}

func TestAccountWithoutIdentity(t *testing.T) {
	w, zt, _ := small(t)
	zt.ServiceAccount.Name = "a/b"
	g, err := w.policy.Authorize(t.Context(), zt, "")
	wantDenied(t, g, err, authz.BadIdentity)
}

// TestPodOfAnotherAccount has a pod that is not of the account in the token,
// which Kubernetes makes impossible.
func TestPodOfAnotherAccount(t *testing.T) {
	w, zt, _ := small(t)
	w.Pods[0].Pod.Account = "other"
	g, err := w.policy.Authorize(t.Context(), zt, cartID)
	wantDenied(t, g, err, authz.CallerGone)
}

// TestDetails changes one fact at a time, and reads what the operator is told.
func TestDetails(t *testing.T) {
	minuteAgo := func(w *world, more time.Duration) time.Time { return w.Now.Add(-time.Minute - more) }
	for _, tt := range []struct {
		name   string
		change func(*world, *authz.Facts)
		reason authz.Reason // "" if it is granted all the same
		detail string
	}{
		{"no account", func(_ *world, f *authz.Facts) { f.CallerAccount = authz.Account{} }, authz.CallerGone, "there is no service account istio-system/ztunnel"},
		{"another account", func(_ *world, f *authz.Facts) { f.CallerAccount.UID = "x" }, authz.CallerGone, "has UID x, the token has"},
		{"an account deleted a minute ago", func(w *world, f *authz.Facts) { f.CallerAccount.Deleted = minuteAgo(w, 0) }, "", ""},
		{"...and a moment", func(w *world, f *authz.Facts) { f.CallerAccount.Deleted = minuteAgo(w, 1) }, authz.CallerGone, "service account istio-system/ztunnel was deleted at 2026-01-02T11:58:59Z"},
		{"no pod", func(_ *world, f *authz.Facts) { f.CallerPod = authz.Pod{} }, authz.CallerGone, "there is no pod istio-system/zt-1"},
		{"another pod", func(_ *world, f *authz.Facts) { f.CallerPod.UID = "x" }, authz.CallerGone, "pod istio-system/zt-1 has UID x"},
		{"a pod deleted a minute ago", func(w *world, f *authz.Facts) { f.CallerPod.Deleted = minuteAgo(w, 0) }, "", ""},
		{"...and a moment", func(w *world, f *authz.Facts) { f.CallerPod.Deleted = minuteAgo(w, 1) }, authz.CallerGone, "pod istio-system/zt-1 was deleted at 2026-01-02T11:58:59Z"},
		{"a pod that is to be deleted", func(w *world, f *authz.Facts) { f.CallerPod.Deleted = w.Now.Add(time.Hour) }, "", ""},
		{"a pod on another node", func(_ *world, f *authz.Facts) { f.CallerPod.Node = "n2" }, authz.NodeMismatch, `pod istio-system/zt-1 is on node "n2", the token says "n1"`},
		{"no Node object", func(_ *world, f *authz.Facts) { f.Node = authz.Node{} }, authz.NodeMismatch, "there is no Node object n1"},
		{"another Node object", func(_ *world, f *authz.Facts) { f.Node.UID = "x" }, authz.NodeMismatch, "node n1 has UID x"},
		{"no account of the identity", func(_ *world, f *authz.Facts) { f.TargetAccount = authz.Account{} }, authz.NotOnNode, "there is no service account shop/cart"},
		{"an account of the identity deleted long ago", func(w *world, f *authz.Facts) { f.TargetAccount.Deleted = minuteAgo(w, 1) }, authz.NotOnNode, "there is no service account shop/cart"},
		{"no pod of the identity", func(_ *world, f *authz.Facts) { f.Live = 0 }, authz.NotOnNode, "no live pod of shop/cart is on node n1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, zt, _ := small(t)
			facts, err := w.Look(w.Now, authz.Query{Caller: zt, Target: account("shop/cart")})
			if err != nil {
				t.Fatal(err)
			}
			tt.change(w, &facts)
			w.policy.Inventory = fixed{facts}
			g, err := w.policy.Authorize(t.Context(), zt, cartID)
			if tt.reason == "" {
				if err != nil || g.ID().String() != cartID {
					t.Errorf("Authorize = %v, %v; want it granted", g.ID(), err)
				}
				return
			}
			wantDenied(t, g, err, tt.reason)
			if !strings.Contains(fmt.Sprint(err), tt.detail) {
				t.Errorf("%v, want %q", err, tt.detail)
			}
		})
	}
}

// [NODE-2] The operator is told who asked, and which node agents there are.
func TestDetailNamesTheNodeAgents(t *testing.T) {
	w, _, cart := small(t)
	w.policy.NodeAgents = accounts([]string{"istio-system/ztunnel", "kube-system/zt"})
	g, err := w.policy.Authorize(t.Context(), cart, "spiffe://cluster.local/ns/istio-system/sa/ztunnel")
	wantDenied(t, g, err, authz.NotANodeAgent)
	const want = "shop/cart asks for istio-system/ztunnel, but the node agents are [istio-system/ztunnel kube-system/zt]"
	if !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestNames has the longest names that there are, and names a byte longer.
func TestNames(t *testing.T) {
	n := func(of string, times int) string { return strings.Repeat(of, times) }
	for _, tt := range []struct {
		name, namespace, account string
		good                     bool
	}{
		{"a namespace of 63 bytes", n("a", 63), "x", true},
		{"...and of 64", n("a", 64), "x", false},
		{"an account of 253 bytes", "x", n("z", 253), true},
		{"...and of 254", "x", n("z", 254), false},
		{"an account with dots, of 253 bytes", "x", n("ab.", 84) + "c", true},
		{"the first and last letters and digits", "a0z9", "z9a0", true},
		{"what comes before a", "x", "`", false},
		{"what comes after z", "x", "{", false},
		{"what comes before 0", "x", "a/b", false},
		{"what comes after 9", "x", "a:b", false},
		{"a namespace that is none", "a.b", "x", false},
		{"a dash inside", "a-b", "a-b.c-d", true},
		{"a dash at the end of a part", "x", "a-.b", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := "spiffe://cluster.local/ns/" + tt.namespace + "/sa/" + tt.account
			w := newWorld(scenario.Scenario{})
			if err := w.MakePod(scenario.Pod{Namespace: tt.namespace, Name: "p", Account: tt.account, Node: "n1"}); err != nil {
				t.Fatal(err)
			}
			c := authz.Caller{
				ServiceAccount: authz.ServiceAccount{Namespace: tt.namespace, Name: tt.account}, ServiceAccountUID: w.Accounts[0].UID,
				Pod: "p", PodUID: w.Pods[0].UID, Node: "n1", NodeUID: w.Nodes[0].UID,
			}
			for _, want := range []string{"", id} {
				g, err := w.policy.Authorize(t.Context(), c, want)
				if !tt.good {
					wantDenied(t, g, err, authz.BadIdentity)
				} else if err != nil || g.ID().String() != id {
					t.Errorf("Authorize(%q) = %v, %v", want, g.ID(), err)
				}
			}
		})
	}
}

func TestLongIdentityIsNotParsed(t *testing.T) {
	w, zt, _ := small(t)
	const head = "spiffe://cluster.local/ns/shop/sa/"
	for _, tt := range []struct{ name, id, detail string }{
		{"[CSR-7] 2049 bytes", head + strings.Repeat("a", 2049-len(head)), "it is 2049 bytes long"},
		{"2048 bytes", head + strings.Repeat("a", 2048-len(head)), "is not of the form"},
		{"a name of 254 bytes", head + strings.Repeat("a", 254), "is not of the form"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := w.policy.Authorize(t.Context(), zt, tt.id)
			wantDenied(t, g, err, authz.BadIdentity)
			if !strings.Contains(fmt.Sprint(err), tt.detail) {
				t.Errorf("%.100v, want %q", err, tt.detail)
			}
		})
	}
}

// lateInventory answers as told, and counts how often it was asked to confirm.
type lateInventory struct {
	world     *world
	look      error              // what Look fails with
	first     func(*authz.Facts) // what Look does not know yet
	confirm   error              // what Confirm fails with
	confirmed int
	enough    []bool // of what Look and then of what Confirm knows
}

func (l *lateInventory) Look(now time.Time, q authz.Query) (authz.Facts, error) {
	f, err := l.world.Look(now, q)
	if l.first != nil {
		l.first(&f)
	}
	return f, errors.Join(err, l.look)
}

func (l *lateInventory) Confirm(ctx context.Context, q authz.Query, enough func(authz.Facts) bool) (authz.Facts, error) {
	l.confirmed++
	if l.confirm != nil {
		return authz.Facts{}, l.confirm
	}
	late, err := l.Look(l.world.Now, q)
	if err != nil {
		return authz.Facts{}, err
	}
	facts, err := l.world.Confirm(ctx, q, enough)
	l.enough = []bool{enough(late), enough(facts)}
	return facts, err
}

// TestLateFactsAreConfirmed hides one fact at a time from the first look.
func TestLateFactsAreConfirmed(t *testing.T) {
	for _, tt := range []struct {
		name string
		hide func(*authz.Facts)
	}{
		{"[NODE-3] the pod of the identity", func(f *authz.Facts) { f.Live = 0 }},
		{"the account of the identity", func(f *authz.Facts) { f.TargetAccount = authz.Account{} }},
		{"the caller's pod", func(f *authz.Facts) { f.CallerPod = authz.Pod{} }},
		{"the caller's new pod of the same name", func(f *authz.Facts) { f.CallerPod.UID = "old" }},
		{"that the caller's new pod has not finished", func(f *authz.Facts) { f.CallerPod.Finished = true }},
		{"the caller's account", func(f *authz.Facts) { f.CallerAccount = authz.Account{} }},
		{"the node", func(f *authz.Facts) { f.Node = authz.Node{} }},
		{"the node's new UID", func(f *authz.Facts) { f.Node.UID = "old" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, zt, _ := small(t)
			late := &lateInventory{world: w, first: tt.hide}
			w.policy.Inventory = late
			g, err := w.policy.Authorize(t.Context(), zt, cartID)
			if err != nil || g.ID().String() != cartID || late.confirmed != 1 {
				t.Errorf("Authorize = %v, %v after %d confirmations; want %s after 1", g.ID(), err, late.confirmed, cartID)
			}
			if !slices.Equal(late.enough, []bool{false, true}) {
				t.Errorf("enough says %v of the late facts and of all, want false and true", late.enough)
			}
		})
	}
}

// TestCannotTellIsNotNo has everything that keeps us from knowing.
func TestCannotTellIsNotNo(t *testing.T) {
	trouble := errors.New("dial tcp: connection refused")
	stale := &authz.Undecided{Reason: authz.Stale, Err: trouble}
	hide := func(f *authz.Facts) { f.Live = 0 }
	for _, tt := range []struct {
		name string
		inv  lateInventory
		want authz.Reason
	}{
		{"what we know is stale", lateInventory{look: stale}, authz.Stale},
		{"looking fails in a way of its own", lateInventory{look: trouble}, authz.APITrouble},
		{"confirming is undecided", lateInventory{first: hide, confirm: stale}, authz.Stale},
		{"confirming fails in a way of its own", lateInventory{first: hide, confirm: trouble}, authz.APITrouble},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, zt, _ := small(t)
			tt.inv.world = w
			w.policy.Inventory = &tt.inv
			g, err := w.policy.Authorize(t.Context(), zt, cartID)
			u, ok := errors.AsType[*authz.Undecided](err)
			if !ok || u.Reason != tt.want || !errors.Is(err, authz.ErrUndecided) || !errors.Is(err, trouble) || !g.IsZero() {
				t.Errorf("Authorize = %v, %v; want undecided (%s) because of %v", g.ID(), err, tt.want, trouble)
			}
		})
	}
}

// TestDenialsThatNoFactCanChange are spoken without waiting for facts.
func TestDenialsThatNoFactCanChange(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy func(*authz.Policy)
		as     string
		want   authz.Reason
		id     string
	}{
		{"a malformed identity", nil, "istio-system/zt-1", authz.BadIdentity, "spiffe://cluster.local/x"},
		{"an evicted node", func(p *authz.Policy) { p.Evicted = func(n string) bool { return n == "n1" } }, "istio-system/zt-1", authz.Evicted, cartID},
		{"a caller that is no node agent", nil, "shop/cart-1", authz.NotANodeAgent, "spiffe://cluster.local/ns/istio-system/sa/ztunnel"},
		{"a protected identity", func(p *authz.Policy) { p.Protected = accounts([]string{"shop/cart"}) }, "istio-system/zt-1", authz.Protected, cartID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, _, _ := small(t)
			late := &lateInventory{world: w}
			w.policy.Inventory = late
			if tt.policy != nil {
				tt.policy(&w.policy)
			}
			g, err := w.policy.Authorize(t.Context(), caller(t, w, tt.as), tt.id)
			wantDenied(t, g, err, tt.want)
			if late.confirmed != 0 {
				t.Errorf("it was confirmed %d times", late.confirmed)
			}
		})
	}
}

func wantDenied(t *testing.T, g authz.Grant, err error, want authz.Reason) {
	t.Helper()
	d, ok := errors.AsType[*authz.Denial](err)
	if !ok || d.Reason != want || !g.IsZero() || errors.Is(err, authz.ErrUndecided) {
		t.Errorf("Authorize = %v, %v; want it denied (%s)", g.ID(), err, want)
	}
}

// TestGrantsAllocateNothing has the requests that are granted, which are nearly
// all of them.
func TestGrantsAllocateNothing(t *testing.T) {
	w, zt, cart := small(t)
	for _, tt := range []struct {
		name   string
		caller authz.Caller
		want   string
	}{
		{"a node agent for another", zt, cartID},
		{"a workload that names itself", cart, cartID},
	} {
		facts, err := w.Look(w.Now, authz.Query{Caller: tt.caller, Target: account("shop/cart")})
		if err != nil {
			t.Fatal(err)
		}
		w.policy.Inventory = fixed{facts}
		n := testing.AllocsPerRun(100, func() {
			if _, err := w.policy.Authorize(t.Context(), tt.caller, tt.want); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", tt.name, n)
		}
		w.policy.Inventory = w
	}
}

// fixed is an inventory that always has the same facts.
type fixed struct{ facts authz.Facts }

func (f fixed) Look(time.Time, authz.Query) (authz.Facts, error) { return f.facts, nil }

func (f fixed) Confirm(context.Context, authz.Query, func(authz.Facts) bool) (authz.Facts, error) {
	return f.facts, nil
}

func BenchmarkAuthorize(b *testing.B) {
	w, zt, _ := small(b)
	facts, err := w.Look(w.Now, authz.Query{Caller: zt, Target: account("shop/cart")})
	if err != nil {
		b.Fatal(err)
	}
	w.policy.Inventory = fixed{facts}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.policy.Authorize(b.Context(), zt, cartID); err != nil {
			b.Fatal(err)
		}
	}
}

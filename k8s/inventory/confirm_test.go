package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A liveCluster is the API that live reads ask. It counts the reads of nodes.
type liveCluster struct {
	mu    sync.Mutex
	pods  []*pod
	err   error         // of requests of the kind that fails
	fails string        // the kind
	delay time.Duration // of the list of pods
	began []time.Time   // of reads of nodes
}

func (c *liveCluster) api() api {
	return api{
		podsOn: func(ctx context.Context, node string) ([]*pod, error) {
			c.mu.Lock()
			c.began = append(c.began, time.Now())
			pods, err := c.on(node), c.failure("pods")
			c.mu.Unlock()
			select {
			case <-time.After(c.delay):
				return pods, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		pod: func(_ context.Context, name types.NamespacedName) (*pod, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, p := range c.pods {
				if p.key() == name {
					return p, c.failure("pod")
				}
			}
			return nil, c.failure("pod")
		},
		node: func(_ context.Context, name string) (*node, error) {
			return &node{name, "u-" + name}, c.failure("node")
		},
		account: func(_ context.Context, name types.NamespacedName) (*account, error) {
			if name.Name == "none" {
				return nil, c.failure("account")
			}
			return newAccount(&metaObject(name.Namespace, name.Name, "a-"+name.Name).ObjectMeta), c.failure("account")
		},
	}
}

func (c *liveCluster) failure(of string) error {
	if c.fails == of {
		return c.err
	}
	return nil
}

func (c *liveCluster) on(node string) (found []*pod) {
	for _, p := range c.pods {
		if p.node.Value() == node {
			found = append(found, p)
		}
	}
	return found
}

func (c *liveCluster) reads() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.began)
}

// inBubble runs f with an inventory that has listed everything, in a cluster
// where the agent runs and nothing else.
func inBubble(t *testing.T, f func(t *testing.T, v *Inventory, c *liveCluster), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestInventory(t, change...)
		c := &liveCluster{pods: []*pod{newPod(podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1"))}}
		v.live.api = c.api()
		v.sync(t)
		time.Sleep(time.Minute)
		f(t, v, c)
		// Whoever serves the reads of a node goes home in the end.
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(v.live.lines) > 0 || len(v.gate.waiting) > 0 {
			t.Errorf("left behind: %v %v", v.live.lines, v.gate.waiting)
		}
		if n := len(v.interest.listeners[subject{kind: aboutAge}]); n > 0 {
			t.Errorf("left behind: %d listeners for proofs", n)
		}
	})
}

func cartPod() *pod { return newPod(podObject("shop", "cart-1", "cart", "n1", "p-cart-1")) }

// A result is what a call of Confirm returned, and after how long.
type result struct {
	facts authz.Facts
	err   error
	took  time.Duration
}

func confirm(v *Inventory, q authz.Query) result {
	return confirmWith(context.Background(), v, q)
}

func confirmWith(ctx context.Context, v *Inventory, q authz.Query) result {
	began := time.Now()
	f, err := v.Confirm(ctx, q, hasPod)
	return result{f, err, time.Since(began)}
}

// later calls Confirm in the background.
func later(v *Inventory, q authz.Query) <-chan result {
	c := make(chan result, 1)
	go func() { c <- confirm(v, q) }()
	synctest.Wait()
	return c
}

func (r result) want(t *testing.T, reason authz.Reason, live int, took time.Duration) {
	t.Helper()
	wantReason(t, r.err, reason)
	if u, ok := errors.AsType[*authz.Undecided](r.err); ok && u.Err == nil {
		t.Errorf("%v has no cause", r.err)
	}
	if r.err != nil && !errors.Is(r.err, authz.ErrUndecided) {
		t.Errorf("%v does not match ErrUndecided", r.err)
	}
	if r.facts.Live != live || r.took != took {
		t.Errorf("%d live pods after %v, want %d after %v", r.facts.Live, r.took, live, took)
	}
}

// NODE-3: a pod whose watch event is 2 s late. Its certificate is asked for at
// once, and is granted after the hold; or was asked for before the pod was there,
// refused, and asked for again 1 s after the event, and is granted at once.
func TestNODE3AnEventThatIsTwoSecondsLate(t *testing.T) {
	const late = 2 * time.Second
	appears := func(v *Inventory, c *liveCluster) {
		c.mu.Lock()
		c.pods = append(c.pods, cartPod())
		c.mu.Unlock()
		time.AfterFunc(late, func() { must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1"))) })
	}
	t.Run("NODE-3: asked at once", func(t *testing.T) {
		inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
			c.delay = 10 * time.Millisecond
			appears(v, c)
			authorize(t, v, "", time.Second+10*time.Millisecond)
		})
	})
	t.Run("NODE-3: it never appears", func(t *testing.T) {
		inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
			authorize(t, v, authz.NotOnNode, time.Second)
			for range 100 {
				authorize(t, v, authz.NotOnNode, 0)
			}
			if c.reads() != 1 {
				t.Errorf("%d live reads, want 1", c.reads())
			}
		})
	})
	t.Run("NODE-3: asked too early, and again 1 s after the event", func(t *testing.T) {
		inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
			authorize(t, v, authz.NotOnNode, time.Second)
			appears(v, c)
			time.Sleep(late + time.Second)
			authorize(t, v, "", 0)
			if c.reads() != 1 {
				t.Errorf("%d live reads, want that of the refusal only", c.reads())
			}
		})
	})
}

// authorize asks on n1 for the identity of shop/cart, and wants it granted, or
// denied for a reason, after this time.
func authorize(t *testing.T, v *Inventory, want authz.Reason, after time.Duration) {
	t.Helper()
	agent := zt1()
	td := spiffeid.RequireTrustDomainFromString("cluster.local")
	policy := &authz.Policy{TrustDomain: td, NodeAgents: []authz.ServiceAccount{agent.ServiceAccount}, Inventory: v, Now: time.Now}
	began := time.Now()
	_, err := policy.Authorize(t.Context(), agent, "spiffe://cluster.local/ns/shop/sa/cart")
	d, _ := errors.AsType[*authz.Denial](err)
	if took := time.Since(began); (err == nil) != (want == "") || err != nil && (d == nil || d.Reason != want) || took != after {
		t.Errorf("after %v: %v, want %q after %v", took, err, want, after)
	}
}

// NODE-3: an event that comes within the hold is enough.
// wantConfirmed compares by which means calls ended; those by which none did may
// be left out.
func wantConfirmed(t *testing.T, v *Inventory, want map[string]uint64) {
	t.Helper()
	all := map[string]uint64{"event": 0, "proof": 0, "read": 0, "memory": 0, "undecided": 0}
	maps.Copy(all, want)
	if diff := cmp.Diff(all, v.Confirmed()); diff != "" {
		t.Errorf("confirmed (-want +got):\n%s", diff)
	}
}

func TestNODE3AnEventThatIsLateIsWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		answer := later(v, cart())
		time.Sleep(300 * time.Millisecond)
		must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1")))
		(<-answer).want(t, "", 1, 300*time.Millisecond)
		if c.reads() > 0 {
			t.Errorf("%d live reads", c.reads())
		}
	})
}

// NODE-3: an event that comes after the hold, or never.
func TestNODE3APodWhoseEventIsLaterThanTheHoldIsReadFromTheAPI(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		c.pods = append(c.pods, cartPod())
		c.delay = 10 * time.Millisecond
		r := confirm(v, cart())
		r.want(t, "", 1, time.Second+10*time.Millisecond)
		want := authz.Facts{
			CallerAccount: authz.Account{UID: "a-ztunnel"},
			CallerPod:     authz.Pod{UID: "p-zt-1", Account: zt1().ServiceAccount, Node: "n1"},
			Node:          authz.Node{UID: "u-n1"},
			TargetAccount: authz.Account{UID: "a-cart"},
			Live:          1,
			LiveUID:       "p-cart-1",
		}
		if r.facts != want {
			t.Errorf("%+v, want %+v", r.facts, want)
		}
		// What the API said is not in the view: that is its watch's alone.
		if f, _ := v.Look(time.Now(), cart()); f.Live != 0 {
			t.Error("a live read was written into the view")
		}
		// And that it said yes is not remembered.
		c.pods = c.pods[:1]
		confirm(v, cart()).want(t, "", 0, time.Second+10*time.Millisecond)
	})
}

// NODE-3: however often it is asked for, a pod that is not there is read once in 5 s.
func TestNODE3APodThatNeverAppearsIsDeniedCheaply(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		confirm(v, cart()).want(t, "", 0, time.Second)
		for range 100 {
			confirm(v, cart()).want(t, "", 0, 0)
		}
		time.Sleep(rememberFor - 1)
		confirm(v, cart()).want(t, "", 0, 0)
		time.Sleep(time.Nanosecond)
		confirm(v, cart()).want(t, "", 0, time.Second)
		if c.reads() != 2 {
			t.Errorf("%d live reads, want 2", c.reads())
		}
	})
}

// NODE-3: a denial is remembered no longer than until an event touches it.
func TestNODE3ADenialIsForgottenWithTheEvent(t *testing.T) {
	events := map[string]func(*testing.T, *Inventory){
		"the pod": func(t *testing.T, v *Inventory) { must(t, v.pods.Add(podObject("shop", "x", "cart", "n1", "u"))) },
		"the caller's pod": func(t *testing.T, v *Inventory) {
			must(t, v.pods.Delete(cache.DeletedFinalStateUnknown{Key: "istio-system/zt-1"}))
		},
		"a mirror pod in its place": func(t *testing.T, v *Inventory) {
			must(t, v.pods.Update(podObject("istio-system", "zt-1", "ztunnel", "n1", "x", mirror)))
		},
		"the node":    func(t *testing.T, v *Inventory) { must(t, v.nodes.Update(metaObject("", "n1", "other"))) },
		"the account": func(t *testing.T, v *Inventory) { must(t, v.accounts.Delete(metaObject("shop", "cart", ""))) },
		"the caller's": func(t *testing.T, v *Inventory) {
			must(t, v.accounts.Update(metaObject("istio-system", "ztunnel", "o")))
		},
		"a list of accounts": func(t *testing.T, v *Inventory) { must(t, v.accounts.Replace(nil, "200")) },
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
				confirm(v, cart()).want(t, "", 0, time.Second)
				event(t, v)
				if r := confirm(v, cart()); r.err != nil || r.took == 0 && r.facts.Live == 0 {
					t.Errorf("%+v: still remembered", r)
				}
			})
		})
	}
}

func TestOtherEventsWakeNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
		var looks atomic.Int32
		done := make(chan bool)
		go func() {
			_, _ = v.Confirm(context.Background(), cart(), func(authz.Facts) bool { looks.Add(1); return false })
			close(done)
		}()
		synctest.Wait()
		before := looks.Load()
		must(t, v.pods.Add(podObject("shop", "cart-2", "cart", "n2", "1"))) // elsewhere
		must(t, v.pods.Add(podObject("shop", "pay-1", "pay", "n1", "2")))   // another account's
		must(t, v.pods.Add(podObject("shop", "cart-3", "cart", "n1", "3", mirror)))
		must(t, v.pods.Update(podObject("istio-system", "zt-1", "ztunnel", "n1", "p-zt-1"))) // nothing new
		must(t, v.nodes.Add(metaObject("", "n3", "u-n3")))
		must(t, v.nodes.Update(metaObject("", "n1", "u-n1")))
		must(t, v.accounts.Add(metaObject("shop", "pay", "a-pay")))
		synctest.Wait()
		if n := looks.Load() - before; n != 0 {
			t.Errorf("looked %d times more", n)
		}
		must(t, v.pods.Add(podObject("shop", "cart-4", "cart", "n1", "4")))
		synctest.Wait()
		if n := looks.Load() - before; n != 1 {
			t.Errorf("looked %d times after the event that matters, want once", n)
		}
		<-done
	})
}

func TestNoMoreThanFourWaitForANode(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		var waiting []<-chan result
		for range 4 {
			waiting = append(waiting, later(v, cart()))
		}
		if c.reads() != 0 {
			t.Fatalf("%d live reads by those who wait", c.reads())
		}
		c.delay = time.Millisecond
		confirm(v, cart()).want(t, "", 0, time.Millisecond) // the fifth
		q := cart()
		q.Caller.Node = "n2"
		other := later(v, q) // another node's
		if c.reads() != 1 {
			t.Errorf("%d live reads, want the fifth's only", c.reads())
		}
		must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1")))
		for _, w := range waiting {
			(<-w).want(t, "", 1, time.Millisecond)
		}
		<-other
	})
}

func TestAViewProvenYoungerThanTheCallIsFinal(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		answer := later(v, cart())
		time.Sleep(100 * time.Millisecond)
		prove := func(began time.Time, version string) {
			for _, r := range v.resources() {
				must(t, r.age.saw(read{began, version}))
				r.age.reached(version)
			}
			synctest.Wait()
		}
		prove(time.Now().Add(-100*time.Millisecond-1), "110")
		select {
		case r := <-answer:
			t.Fatalf("%+v from a view proven as of before the call", r)
		default:
		}
		prove(time.Now(), "120")
		(<-answer).want(t, "", 0, 100*time.Millisecond)
		confirm(v, cart()).want(t, "", 0, 0) // and remembered
		wantConfirmed(t, v, map[string]uint64{"proof": 1, "memory": 1})
		if c.reads() > 0 {
			t.Errorf("%d live reads", c.reads())
		}
	})
}

func TestOneLiveReadServesAllWhoCameBeforeItBegan(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		c.delay = 200 * time.Millisecond
		var answers []<-chan result
		for i := range 3 {
			q := cart()
			q.Target.Name = fmt.Sprintf("cart-%d", i)
			answers = append(answers, later(v, q))
		}
		// They all wait a second; the first to be served begins the read, and
		// the others may find it begun already.
		time.Sleep(time.Second + 50*time.Millisecond)
		c.mu.Lock()
		c.pods = append(c.pods, cartPod()) // too late for the read that is under way
		c.mu.Unlock()
		v.gate.most = 0
		late := later(v, cart())
		for _, a := range answers {
			if r := <-a; r.err != nil || r.facts.CallerPod.UID == "" || r.facts.Live > 0 {
				t.Errorf("%+v: not what it asked for", r)
			}
		}
		(<-late).want(t, "", 1, 950*time.Millisecond+200*time.Millisecond)
		if n := c.reads(); n != 2 {
			t.Errorf("%d live reads, want 2", n)
		}
		if d := c.began[1].Sub(c.began[0]); d != time.Second {
			t.Errorf("the second began %v after the first, want 1 s", d)
		}
	})
}

func TestAReadIsSharedByNoMoreThanAllowed(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		v.gate.most = 0
		c.delay = 100 * time.Millisecond
		first := later(v, cart()) // begins at once
		var joined []<-chan result
		for range 3 {
			joined = append(joined, later(v, cart()))
		}
		confirm(v, cart()).want(t, authz.NoCapacity, 0, 0)
		<-first
		for _, a := range joined {
			(<-a).want(t, "", 0, time.Second+100*time.Millisecond)
		}
	}, func(c *Config) { c.MaxJoining = 3 })
}

func TestPastTheBudgetNothingIsDecided(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		v.gate.most = 0
		v.live.budget = rate.NewLimiter(1, 4) // a read is 2 for the node, and 1 for a pod that is elsewhere
		q := cart()
		confirm(v, q).want(t, "", 0, 0)
		if n := v.Remembered(); n != 1 {
			t.Errorf("%d answers are remembered, want the first", n)
		}
		q.Caller.Node = "n2"
		confirm(v, q).want(t, authz.NoCapacity, 0, 0)
		time.Sleep(3 * time.Second)
		confirm(v, q).want(t, "", 0, 0)
		if c.reads() != 3 {
			t.Errorf("%d live reads, want 3, of which one was not completed", c.reads())
		}
		want := map[string]uint64{"ok": 7, "failed": 0, "over-budget": 1}
		if diff := cmp.Diff(want, v.LiveRequests()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A node whose dead pods' tokens ask for one thing after the other uses up its
// own share, and leaves the rest to others.
func TestOneNodeCannotHaveTheWholeBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
		v.gate.most = 0
		refused := 0
		for second := range 30 {
			var answers []<-chan result
			for i := range 20 {
				q := cart()
				q.Caller.Pod, q.Target.Name = fmt.Sprintf("dead-%d-%d", second, i), fmt.Sprintf("x-%d-%d", second, i)
				answers = append(answers, later(v, q))
			}
			honest := cart()
			honest.Caller.Node, honest.Target.Name = "n2", fmt.Sprintf("late-%d", second)
			if r := confirm(v, honest); r.err != nil {
				t.Errorf("after %d s the other node got %v", second, r.err)
			}
			for _, a := range answers {
				if r := <-a; reasonOf(r.err) == authz.NoCapacity {
					refused++
				}
			}
			time.Sleep(time.Second)
		}
		if refused < 400 {
			t.Errorf("of 600 requests of the greedy node %d were undecided", refused)
		}
		if left := v.live.budget.Tokens(); left < 200 {
			t.Errorf("it left %v of the budget", left)
		}
	})
}

// However many wait for facts, the bound is below what a server works on at once.
func TestNoMoreThanAllowedWaitForFacts(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		c.delay = 3 * time.Second
		var waiting []<-chan result
		for i := range 5 {
			q := cart()
			q.Caller.Node = fmt.Sprint("n", i)
			waiting = append(waiting, later(v, q))
		}
		if n := v.Confirming(); n != 5 {
			t.Errorf("%d are being confirmed, want 5", n)
		}
		confirm(v, cart()).want(t, authz.NoCapacity, 0, 0)
		for _, a := range waiting {
			if r := <-a; r.err != nil {
				t.Errorf("one of the five that may wait got %v", r.err)
			}
		}
		if r := confirm(v, cart()); r.err != nil {
			t.Errorf("after they had gone: %v", r.err)
		}
		want := map[string]uint64{"event": 0, "proof": 0, "read": 5, "memory": 1, "undecided": 1}
		if diff := cmp.Diff(want, v.Confirmed()); diff != "" {
			t.Errorf("Confirmed (-want +got):\n%s", diff)
		}
	}, func(c *Config) { c.MaxConfirming = 5 })
}

// The shares of many nodes are forgotten once they are whole again, and no
// sooner: a node could have another.
func TestSharesAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
		use := func(node string, want int) {
			t.Helper()
			v.live.share(node).AllowN(time.Now(), 1)
			if n := len(v.live.shares); n != want {
				t.Fatalf("%d shares are remembered, want %d", n, want)
			}
		}
		for i := range maxShares - 1 {
			use(fmt.Sprint("n", i), i+1)
		}
		time.Sleep(time.Second)
		use("greedy", maxShares)
		use("one more", 2)
		use("greedy", 2)
	})
}

// An account that the view does not have is asked for only if a pod of it is on
// the node, since it does not matter otherwise.
func TestAccountsAreReadWhenTheyMatter(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		v.gate.most = 0
		c.pods = append(c.pods, newPod(podObject("shop", "new-1", "new", "n1", "p-new-1")))
		c.fails, c.err = "account", errors.New("broken pipe")
		for _, tt := range []struct {
			target string
			reason authz.Reason
		}{{"cart", ""}, {"elsewhere", ""}, {"new", authz.APITrouble}} {
			q := cart()
			q.Target.Name = tt.target
			if r := confirm(v, q); reasonOf(r.err) != tt.reason {
				t.Errorf("%s: %v, want %q", tt.target, r.err, tt.reason)
			}
			time.Sleep(time.Second)
		}
		c.fails = ""
		q := cart()
		q.Target.Name = "new"
		if r := confirm(v, q); r.err != nil || r.facts.TargetAccount.UID != "a-new" || r.facts.Live != 1 {
			t.Errorf("new: %+v", r)
		}
		// A caller's account of another UID than the token's is asked for too.
		q = cart()
		q.Caller.ServiceAccountUID, q.Caller.PodUID = "another", "another"
		c.fails = "account"
		if r := confirm(v, q); reasonOf(r.err) != authz.APITrouble {
			t.Errorf("the caller's account: %v", r.err)
		}
	})
}

func reasonOf(err error) authz.Reason {
	if u, ok := errors.AsType[*authz.Undecided](err); ok {
		return u.Reason
	}
	return ""
}

func TestWhatTheAPIDoesNotSayIsNotANo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
	tests := []struct {
		name   string
		change func(*liveCluster)
		reason authz.Reason
		took   time.Duration
	}{
		{"it refuses to list the pods", func(c *liveCluster) { c.fails, c.err = "pods", forbidden }, authz.APITrouble, time.Second},
		{"it refuses the node", func(c *liveCluster) { c.fails, c.err = "node", forbidden }, authz.APITrouble, time.Second},
		{"it refuses the caller's pod", func(c *liveCluster) { c.pods, c.fails, c.err = nil, "pod", forbidden }, authz.APITrouble, time.Second},
		{"it fails", func(c *liveCluster) { c.fails, c.err = "pods", errors.New("broken pipe") }, authz.APITrouble, time.Second},
		{"it hangs", func(c *liveCluster) { c.delay = time.Hour }, authz.APITrouble, 6 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
				test.change(c)
				confirm(v, cart()).want(t, test.reason, 0, test.took)
				if n := v.LiveRequests()["failed"]; n != 1 {
					t.Errorf("%d requests are counted as failed, want 1", n)
				}
				c.fails, c.delay = "", 0
				confirm(v, cart()).want(t, "", 0, time.Second) // trouble is not remembered
				wantConfirmed(t, v, map[string]uint64{"undecided": 1, "read": 1})
			})
		})
	}
}

func TestACallThatIsOverDecidesNothing(t *testing.T) {
	for _, limit := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
		inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
			c.delay = time.Second
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			confirmWith(ctx, v, cart()).want(t, authz.DeadlinePassed, 0, limit)
			wantConfirmed(t, v, map[string]uint64{"undecided": 1})
		})
	}
}

// Who waits while the view becomes too old is not answered from it.
func TestAViewThatAgesDuringTheHoldSaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
		time.Sleep(4*time.Minute - 500*time.Millisecond)
		answer := later(v, cart())
		time.Sleep(600 * time.Millisecond)
		must(t, v.pods.Add(podObject("shop", "cart-1", "cart", "n1", "p-cart-1")))
		(<-answer).want(t, authz.Stale, 0, 600*time.Millisecond)
		wantConfirmed(t, v, map[string]uint64{"undecided": 1})
	})
}

func TestAFullMemoryForgetsNothingAndRemembersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newInterest()
		m := newMemory(n)
		query := func(i int) authz.Query {
			q := cart()
			q.Target.Name = fmt.Sprint(i)
			return q
		}
		remember := func(i int) bool {
			q := query(i)
			m.remember(time.Now(), &q, authz.Facts{}, n.listen(subjects(&q)...))
			_, ok := m.recall(time.Now(), &q)
			return ok
		}
		for i := range maxRemembered {
			if !remember(i) {
				t.Fatalf("%d is not remembered", i)
			}
			time.Sleep(time.Microsecond)
		}
		if remember(maxRemembered) {
			t.Error("one too many is remembered")
		}
		if q := query(0); func() bool { _, ok := m.recall(time.Now(), &q); return !ok }() {
			t.Error("the first is forgotten")
		}
		time.Sleep(rememberFor - maxRemembered*time.Microsecond)
		if !remember(maxRemembered) {
			t.Error("there is room again, and it is not remembered")
		}
		time.Sleep(rememberFor)
		remember(0)
		if len(m.byPair) != 1 || len(m.oldest) != 1 || len(n.listeners) != len(subjects(&authz.Query{})) {
			t.Errorf("%d pairs, %d memos, %d subjects are left", len(m.byPair), len(m.oldest), len(n.listeners))
		}
	})
}

func TestTheNewerOfTwoMemosOfAPairStays(t *testing.T) {
	n := newInterest()
	m := newMemory(n)
	q := cart()
	remember := func(now time.Time) *listener {
		l := n.listen(subjects(&q)...)
		m.remember(now, &q, authz.Facts{}, l)
		return l
	}
	remember(noon()).wake()
	if _, ok := m.recall(noon(), &q); ok {
		t.Error("remembered after an event")
	}
	remember(noon().Add(time.Second))
	other := cart()
	other.Target.Name = "other"
	m.remember(noon().Add(rememberFor), &other, authz.Facts{}, n.listen())
	if _, ok := m.recall(noon().Add(rememberFor), &q); !ok {
		t.Error("forgotten with the older one")
	}
}

// An event between the look at the API and the moment when its answer would be
// remembered is not lost.
func TestADenialThatAnEventOvertookIsNotRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		c.delay = 100 * time.Millisecond
		answer := later(v, cart())
		time.Sleep(time.Second + 50*time.Millisecond)
		must(t, v.accounts.Update(metaObject("shop", "cart", "new")))
		(<-answer).want(t, "", 0, time.Second+100*time.Millisecond)
		confirm(v, cart()).want(t, "", 0, time.Second+100*time.Millisecond)
	})
}

// What happened before the look at the API is in its answer.
func TestAnEventDuringTheHoldDoesNotKeepADenialFromBeingRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, _ *liveCluster) {
		answer := later(v, cart())
		time.Sleep(500 * time.Millisecond)
		must(t, v.nodes.Update(metaObject("", "n1", "other")))
		(<-answer).want(t, "", 0, time.Second)
		confirm(v, cart()).want(t, "", 0, 0)
	})
}

func TestTheCallersPodIsFoundOnAnotherNodeToo(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		q := cart()
		q.Caller.Node = "n2"
		r := confirm(v, q)
		if r.err != nil || r.facts.CallerPod.Node != "n1" || r.facts.Node.UID != "u-n2" {
			t.Errorf("%+v", r)
		}
	})
}

// A token without a node must not make us list the pods of no node, which are
// all that are not scheduled.
func TestACallerWithoutANodeIsReadWithoutItsPods(t *testing.T) {
	inBubble(t, func(t *testing.T, v *Inventory, c *liveCluster) {
		q := cart()
		q.Caller.Pod, q.Caller.PodUID, q.Caller.Node, q.Caller.NodeUID = "", "", "", ""
		q.Target.Name = "none"
		r := confirm(v, q)
		want := authz.Facts{CallerAccount: authz.Account{UID: "a-ztunnel"}}
		if r.err != nil || r.facts != want {
			t.Errorf("%+v, want %+v", r, want)
		}
		if c.reads() > 0 {
			t.Error("the pods of no node were listed")
		}
	})
}

package ztunnel

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPrefetcher(t *testing.T) {
	inBubble(t, "fetches one at a time, and waits for each [3.4]", func(t *testing.T) {
		m, a := run(t, slow(func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if id == named("1") {
				return nil, errRefused // which it has waited for as well
			}
			return day(ctx, id, nth)
		}))
		p := NewPrefetcher(m)
		go p.Run(t.Context())
		for i := range 4 {
			p.Prefetch(named(fmt.Sprint(i)))
		}
		pass(3500 * time.Millisecond)
		for i := range 4 {
			if got, want := a.at(named(fmt.Sprint(i)))[0], time.Duration(i)*time.Second; got != want {
				t.Errorf("%d was fetched at %v, want %v", i, got, want)
			}
		}
	})
	inBubble(t, "a connection does not stand behind it [3.4]", func(t *testing.T) {
		m, a := run(t, slow(day))
		p := NewPrefetcher(m)
		go p.Run(t.Context())
		for i := range 100 {
			p.Prefetch(named(fmt.Sprint(i)))
		}
		synctest.Wait()
		ask(t, m, named("99"), RealTime)
		if got := a.at(named("99")); len(got) != 1 || got[0] != 0 {
			t.Errorf("asked at %v", got)
		}
	})
	inBubble(t, "has room for 256, and drops what is more [3.4]", func(t *testing.T) {
		m, _ := run(t, day)
		p := NewPrefetcher(m)
		for i := range 260 {
			p.Prefetch(named(fmt.Sprint(i)))
		}
		p.Forget(named("0"))
		if p.Dropped() != 5 {
			t.Errorf("%d dropped", p.Dropped())
		}
		go p.Run(t.Context())
		synctest.Wait()
		if got := len(m.Dump()); got != 256 {
			t.Errorf("%d fetched", got)
		}
	})
	inBubble(t, "forgets in its turn [3.4]", func(t *testing.T) {
		m, _ := run(t, slow(day))
		p := NewPrefetcher(m)
		go p.Run(t.Context())
		p.Prefetch(named("a"))
		p.Prefetch(named("b"))
		p.Forget(named("a"))
		pass(1500 * time.Millisecond)
		if got := accounts(m); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("after 1.5 s: %q", got)
		}
		pass(time.Second)
		if got := accounts(m); !slices.Equal(got, []string{"b"}) {
			t.Errorf("after 2.5 s: %q", got)
		}
	})
}

func accounts(m *Manager) (names []string) {
	for _, id := range m.Identities() {
		names = append(names, id.ServiceAccount)
	}
	return names
}

func TestNode(t *testing.T) {
	pod := func(uid, account, node string) Workload { return Workload{uid, named(account), node, true} }
	host := func(uid, account, node string) Workload { return Workload{uid, named(account), node, false} }
	foreign := host("3", "cart", "n1")
	foreign.Identity.TrustDomain = "elsewhere"
	for _, tt := range []struct {
		name   string
		set    []Workload
		remove []string
		want   []string
	}{
		{"workloads of the node, in the mesh [3.4]", []Workload{pod("1", "cart", "n1"), pod("2", "pay", "n2"), host("3", "web", "n1")}, nil, []string{"cart"}},
		{"the last one gone [3.4]", []Workload{pod("1", "cart", "n1"), pod("2", "pay", "n1")}, []string{"1"}, []string{"pay"}},
		{"another one left [3.4]", []Workload{pod("1", "cart", "n1"), pod("2", "cart", "n1")}, []string{"1"}, []string{"cart"}},
		{"another one left on another node [3.4]", []Workload{pod("1", "cart", "n1"), pod("2", "cart", "n2")}, []string{"1"}, nil},
		{"one on the host's network left [3.4]", []Workload{pod("1", "cart", "n1"), host("2", "cart", "n1")}, []string{"1"}, []string{"cart"}},
		{"one of another trust domain left [3.4]", []Workload{pod("1", "cart", "n1"), foreign}, []string{"1"}, []string{"cart"}},
		{"gone elsewhere [3.4]", []Workload{pod("1", "cart", "n1"), pod("2", "cart", "n2")}, []string{"2", "9"}, []string{"cart"}},
		{"another identity: both stay [3.4]", []Workload{pod("1", "cart", "n1"), pod("1", "pay", "n1")}, nil, []string{"cart", "pay"}},
		{"and the older one for ever [3.4]", []Workload{pod("1", "cart", "n1"), pod("1", "pay", "n1")}, []string{"1"}, []string{"cart"}},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			m, _ := run(t, day)
			p := NewPrefetcher(m)
			go p.Run(t.Context())
			n := NewNode("n1", p)
			for _, w := range tt.set {
				n.Set(w)
			}
			for _, uid := range tt.remove {
				n.Remove(uid)
			}
			synctest.Wait()
			if diff := cmp.Diff(tt.want, accounts(m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

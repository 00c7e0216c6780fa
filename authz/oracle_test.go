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

// FuzzAgainstOracle makes a small cluster, changes it, and asks with tokens of
// all ages for identities of all kinds. Whatever is granted must be what the
// oracle grants, and whatever is denied what it denies.
func FuzzAgainstOracle(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte("\x00\x01\x02\x03\x80\x81\x82\xff\xfe\xfd\x10\x20\x30\x40\x50\x60\x70"))
	for seed := range 200 {
		f.Add(noise(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &dice{data[:min(len(data), 1000)]}
		s := scenario.Scenario{Agents: []string{"sys/agent"}}
		if d.roll(4) == 0 {
			s.Protected = []string{"a/x"}
		}
		if d.roll(4) == 0 {
			s.Evicted = []string{"n0"}
		}
		w := newWorld(s)
		var tokens []authz.Caller
		for len(d.data) > 0 {
			switch change(d, w); d.roll(2) {
			case 0:
				tokens = append(tokens[max(0, len(tokens)-7):], take(d, w)...)
			case 1:
				compare(t, d, w, s, tokens)
			}
		}
	})
}

// noise returns bytes that are always the same for a seed.
func noise(seed int) []byte {
	b := make([]byte, 600)
	x := uint32(seed)*2654435761 + 12345
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x >> 11)
	}
	return b
}

// dice turn bytes into choices.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	v := int(d.data[0]) % n
	d.data = d.data[1:]
	return v
}

func (d *dice) pick(words ...string) string { return words[d.roll(len(words))] }

// change does one thing to the cluster. What cannot be done is not.
func change(d *dice, w *world) {
	pod := scenario.Pod{
		Namespace: d.pick("a", "b", "sys"), Name: d.pick("p0", "p1", "p2"),
		Account: d.pick("x", "y", "agent"), Node: d.pick("n0", "n1", ""),
		Phase:  d.pick("Running", "Running", "Pending", "Succeeded", "Failed"),
		Mirror: d.roll(8) == 0,
	}
	name := pod.Namespace + "/" + pod.Name
	var err error
	switch d.roll(10) {
	default:
		err = w.MakePod(pod)
	case 5:
		err = w.SetPhase(pod)
	case 6:
		err = w.Terminate(pod, time.Duration(d.roll(100))*time.Second)
	case 7:
		err = w.Delete(d.pick("pod", "node", "account"), d.pick(name, "n0", pod.Namespace+"/"+pod.Account))
	case 8:
		err = w.Wait(time.Duration(d.roll(100)) * time.Second)
	case 9:
		err = w.MakeNode(d.pick("n0", "n1"))
	}
	_ = err // making what exists, or changing what does not, changes nothing
}

// take takes a token, if there is what to take it for.
func take(d *dice, w *world) []authz.Caller {
	name := d.pick("a", "b", "sys", "sys") + "/" + d.pick("p0", "p1", "p2")
	kind := "pod"
	if d.roll(5) == 0 {
		kind, name = "account", d.pick("a/x", "b/y", "sys/agent")
	}
	token, err := w.Token(kind, name)
	if err != nil {
		return nil
	}
	return []authz.Caller{token.(authz.Caller)}
}

func compare(t *testing.T, d *dice, w *world, s scenario.Scenario, tokens []authz.Caller) {
	t.Helper()
	for _, c := range tokens {
		want := d.pick("", "spiffe://cluster.local/ns/a/sa/x", "spiffe://cluster.local/ns/b/sa/y",
			"spiffe://cluster.local/ns/sys/sa/agent", "spiffe://other/ns/a/sa/x", "spiffe://cluster.local/ns/a/sa/x/")
		g, err := w.policy.Authorize(context.Background(), c, want)
		granted := ""
		if !g.IsZero() {
			granted = g.ID().String()
		}
		if o := oracle(w, s, c, want); o != granted || (granted == "") != (err != nil) || errors.Is(err, authz.ErrUndecided) {
			t.Fatalf("%+v asks for %q: got %q (%v), the oracle says %q\nin %+v", c, want, granted, err, o, w.Memory)
		}
	}
}

// oracle returns the identity that must be granted, or "". It is written from
// the design, over the plain lists, and shares nothing with the package.
func oracle(w *world, s scenario.Scenario, c authz.Caller, want string) string {
	own := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", c.ServiceAccount.Namespace, c.ServiceAccount.Name)
	if want == "" {
		want = own
	}
	part := strings.Split(want, "/")
	if len(part) != 7 || strings.Join(part[:4], "/") != "spiffe://cluster.local/ns" || part[5] != "sa" {
		return ""
	}
	account := func(name, uid string) bool {
		return slices.ContainsFunc(w.Accounts, func(o scenario.Object) bool { return o.Name == name && (uid == "any" || o.UID == uid) })
	}
	alive := func(p scenario.MemoryPod) bool {
		return !p.Mirror && (p.Phase == "Running" || p.Phase == "Pending") && (p.Deleted.IsZero() || w.Now.Sub(p.Deleted) <= time.Minute)
	}
	if !account(c.ServiceAccount.String(), c.ServiceAccountUID) {
		return ""
	}
	if c.Pod == "" {
		if want == own {
			return own
		}
		return ""
	}
	if c.NodeUID == "" || slices.Contains(s.Evicted, c.Node) || !slices.Contains(w.Nodes, scenario.Object{Name: c.Node, UID: c.NodeUID}) {
		return ""
	}
	var itself, others bool
	for _, p := range w.Pods {
		itself = itself || p.UID == c.PodUID && p.Name == c.Pod && p.Account() == c.ServiceAccount.String() && p.Node == c.Node && alive(p)
		others = others || p.Account() == part[4]+"/"+part[6] && p.Node == c.Node && alive(p)
	}
	switch {
	case !itself:
		return ""
	case want == own:
		return own
	case !slices.Contains(s.Agents, c.ServiceAccount.String()), slices.Contains(s.Protected, part[4]+"/"+part[6]), !others, !account(part[4]+"/"+part[6], "any"):
		return ""
	}
	return want
}

// FuzzIdentity gives every spelling to a node agent that may have one identity.
func FuzzIdentity(f *testing.F) {
	all, err := scenario.All()
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range all {
		for _, step := range s.Steps {
			f.Add(step.Want)
		}
	}
	w, zt, _ := small(f)
	f.Fuzz(func(t *testing.T, want string) {
		g, err := w.policy.Authorize(context.Background(), zt, want)
		if err != nil {
			if !g.IsZero() {
				t.Errorf("Authorize(%q) = %v along with %v", want, g.ID(), err)
			}
			return
		}
		if want != "" && g.ID().String() != want {
			t.Errorf("Authorize(%q) = %v: the spelling was changed", want, g.ID())
		}
		switch g.ID().String() {
		case cartID, "spiffe://cluster.local/ns/istio-system/sa/ztunnel":
		default:
			t.Errorf("Authorize(%q) = %v, which is not on the node", want, g.ID())
		}
	})
}

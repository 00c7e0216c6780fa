package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	text := `
agent istio-system/ztunnel
unbound
# first case
pod shop/cart-1 sa=cart node=n1 phase=Pending
as shop/cart-1
allow own
terminate shop/cart-1 90s
# second case
deny not-on-node spiffe://cluster.local/ns/a/sa/b`
	got, err := scenario.Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	want := scenario.Scenario{
		Name: "x", Agents: []string{"istio-system/ztunnel"}, Unbound: true,
		Steps: []scenario.Step{
			{Line: 5, Case: "first case", Verb: scenario.MakePod, Pod: scenario.Pod{Namespace: "shop", Name: "cart-1", Account: "cart", Node: "n1", Phase: "Pending"}},
			{Line: 6, Case: "first case", Verb: scenario.As, Kind: "pod", Name: "shop/cart-1"},
			{Line: 7, Case: "first case", Verb: scenario.Allow},
			{Line: 8, Case: "first case", Verb: scenario.Terminate, Duration: 90 * time.Second, Pod: scenario.Pod{Namespace: "shop", Name: "cart-1", Phase: "Running"}},
			{Line: 10, Case: "second case", Verb: scenario.Deny, Reason: "not-on-node", Want: "spiffe://cluster.local/ns/a/sa/b"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown line", "pods shop/cart", `x.txt:1: cannot parse "pods shop/cart"`},
		{"an unknown field", "pod shop/cart zone=1", `unknown field "zone=1"`},
		{"an unknown phase", "pod shop/cart phase=Done", `unknown field "phase=Done"`},
		{"a pod without namespace", "pod cart sa=x", `pod "cart" has no namespace`},
		{"a question that nobody asks", "node n1\nallow own", "x.txt:2: allow before any as"},
		{"a denial without reason", "as a/b\ndeny own", `cannot parse "deny own"`},
		{"policy after the first step", "node n1\nagent a/b", "agent after the first step"},
		{"a policy line with too much", "unbound yes", "unbound with 1 words"},
		{"a duration without unit", "wait 5", "missing unit"},
		{"a kind that cannot be deleted", "delete namespace x", "cannot parse"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := scenario.Parse("x", tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse(%q) = %v, want an error with %q", tt.text, err, tt.want)
			}
		})
	}
}

// yes is a world that grants everything, to everybody.
type yes struct{ scenario.Memory }

func (w *yes) Token(kind, name string) (scenario.Token, error) { return w.Memory.Token(kind, name) }
func (w *yes) Ask(_ scenario.Token, want string) (scenario.Answer, error) {
	return scenario.Answer{Granted: want}, nil
}

// no is a world that denies everything, for one reason.
type no struct{ yes }

func (w *no) Ask(scenario.Token, string) (scenario.Answer, error) {
	return scenario.Answer{Reason: "not-on-node"}, nil
}

// TestPlayNotices plays files whose answers are not the ones given.
func TestPlayNotices(t *testing.T) {
	const head = "pod shop/cart-1 sa=cart node=n1\nas shop/cart-1\n"
	for _, tt := range []struct {
		name  string
		world scenario.World
		line  string
		want  string // "" if the answer is right
	}{
		{"a grant that must be a denial", &yes{}, "deny not-on-node spiffe://x", "want it denied"},
		{"a denial that must be a grant", &no{}, "allow spiffe://x", "want it granted"},
		{"a denial for the wrong reason", &no{}, "deny evicted spiffe://x", "want it denied (evicted)"},
		{"a grant that is right", &yes{}, "allow spiffe://x", ""},
		{"a denial that is right", &no{}, "deny not-on-node spiffe://x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := play(t, tt.world, head+tt.line)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Play = %v, want %q", err, tt.want)
			}
		})
	}
}

func play(t *testing.T, w scenario.World, text string) error {
	t.Helper()
	s, err := scenario.Parse("x", text)
	if err != nil {
		t.Fatal(err)
	}
	var token scenario.Token
	for _, step := range s.Steps {
		if token, err = scenario.Play(w, step, token); err != nil {
			return err
		}
	}
	return nil
}

func FuzzParse(f *testing.F) {
	f.Add("agent a/b\npod a/b sa=c node=n\nas a/b\nallow own\ndeny x y\nwait 1s\nterminate a/b 1s\nfinish a/b Failed\ndelete pod a/b")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := scenario.Parse("x", text)
		if err != nil && !strings.HasPrefix(err.Error(), "x.txt:") {
			t.Errorf("Parse(%q) = %v, which names no line", text, err)
		}
		if err != nil && len(s.Steps) > 0 {
			t.Errorf("Parse(%q) returned steps along with an error", text)
		}
	})
}

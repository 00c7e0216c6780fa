package authz_test

import (
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
	"github.com/google/go-cmp/cmp"
)

// TestExplainAgrees explains every answer that the scenarios ask for, and
// compares the last step with the answer.
func TestExplainAgrees(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		w := newWorld(s)
		var token scenario.Token
		for _, step := range s.Steps {
			if token, err = scenario.Play(w, step, token); err != nil {
				t.Fatalf("%s: %v", s.Name, err)
			}
			if step.Verb == scenario.Allow || step.Verb == scenario.Deny {
				explain(t, w, step, token.(authz.Caller))
			}
		}
	}
}

func explain(t *testing.T, w *world, step scenario.Step, c authz.Caller) {
	t.Helper()
	target, _ := w.policy.Target(c, step.Want)
	facts, err := w.Look(w.Now, authz.Query{Caller: c, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	steps := w.policy.Explain(w.Now, c, step.Want, facts)
	reason := ""
	for i, st := range steps {
		if st.Rule == "" || st.Evidence == "" {
			t.Errorf("line %d: step %d says nothing: %+v", step.Line, i, st)
		}
		if st.Denial != nil {
			reason = string(st.Denial.Reason)
		}
		if i < len(steps)-1 && (st.Denial != nil || st.Grants) {
			t.Errorf("line %d: steps after the last one", step.Line)
		}
	}
	if reason != step.Reason {
		t.Errorf("line %d: explained as %q, want %q", step.Line, reason, step.Reason)
	}
}

// TestExplainSays reads the rules and the evidence as people do.
func TestExplainSays(t *testing.T) {
	sa := authz.ServiceAccount{Namespace: "mesh", Name: "proxy"}
	bound := authz.Caller{ServiceAccount: sa, ServiceAccountUID: "a", Pod: "p", PodUID: "b", Node: "n1", NodeUID: "c"}
	unbound := authz.Caller{ServiceAccount: sa, ServiceAccountUID: "a"}
	known := authz.Facts{
		CallerAccount: authz.Account{UID: "a"}, CallerPod: authz.Pod{UID: "b", Account: sa, Node: "n1"}, Node: authz.Node{UID: "c"},
		TargetAccount: authz.Account{UID: "d"}, Live: 2, LiveUID: "e",
	}
	alone := known
	alone.Live, alone.LiveUID = 0, ""
	lives := []string{
		"the token names a node: node n1, UID c in the token",
		"the caller's service account still exists: service account mesh/proxy: UID a in the token, a in the cluster",
		"the caller's pod still exists and has not finished: pod mesh/p: UID b in the token, b in the cluster",
		"token, pod and Node object name the same node: the pod is on node n1; UID c in the token, c in the cluster",
	}
	agent := slices.Concat(lives, []string{
		"the node is not evicted: node n1 is not on the eviction list",
		"the caller is a node agent: the caller is mesh/proxy; the node agents are [mesh/proxy mesh/other]",
		"the identity is not protected: the protected accounts are [mesh/ca]",
	})
	for _, tt := range []struct {
		name    string
		evicted string
		caller  authz.Caller
		facts   authz.Facts
		want    []string // but for the first step
	}{
		{"a grant", "", bound, known, append(agent[:7:7], "the identity runs on the caller's node: live pods of shop/cart on node n1: 2, UID e among them; account UID d")},
		{"no pod of it", "", bound, alone, append(agent[:7:7], "the identity runs on the caller's node: no live pod of shop/cart on node n1")},
		{"an evicted node", "n1", bound, known, append(lives[:4:4], "the node is not evicted: node n1 is on the eviction list")},
		{"a token without a pod", "", unbound, known, []string{"the token names a node: the token is bound to no pod, and so good for its own identity only"}},
		{"no account", "", bound, authz.Facts{}, []string{lives[0], "the caller's service account still exists: service account mesh/proxy: UID a in the token, (none) in the cluster"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newWorld(scenario.Scenario{Agents: []string{"mesh/proxy", "mesh/other"}, Protected: []string{"mesh/ca"}, Evicted: []string{tt.evicted}}).policy
			var got []string
			for _, st := range p.Explain(time.Time{}, tt.caller, cartID, tt.facts) {
				got = append(got, st.Rule+": "+st.Evidence)
			}
			if diff := cmp.Diff(tt.want, got[1:]); diff != "" {
				t.Errorf("Explain (-want +got):\n%s", diff)
			}
		})
	}
}

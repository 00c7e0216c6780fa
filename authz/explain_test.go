package authz_test

import (
	"testing"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
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

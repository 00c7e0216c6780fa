package scenario

import (
	"fmt"
	"time"
)

// A World is a cluster, and a certificate authority that watches it. Each
// method returns only when its effect may be asked about.
type World interface {
	MakeNode(name string) error
	MakeAccount(name string) error // NS/NAME

	// MakePod makes a pod, and its account and node if they are missing.
	MakePod(p Pod) error

	// SetPhase sets the phase of the pod named by p to p.Phase.
	SetPhase(p Pod) error

	// Terminate deletes the pod named by p with a grace period. The object
	// stays, as it does while a kubelet stops the containers.
	Terminate(p Pod, grace time.Duration) error

	// Delete removes an object at once. kind is "pod", "node" or "account".
	Delete(kind, name string) error

	Wait(d time.Duration) error

	// Token returns a token of the pod or account. Whatever happens to the
	// cluster later, the token stays as it is.
	Token(kind, name string) (Token, error)

	// Ask asks for an identity, "" for the caller's own. An error says that
	// there was no answer: neither yes nor no.
	Ask(t Token, want string) (Answer, error)
}

// A Token is whatever a [World] wants it to be.
type Token any

// An Answer is what the certificate authority said.
type Answer struct {
	Granted string // the identity in the certificate, "" if there is none
	Reason  string // why there is none
	Own     string // what the caller's own identity is
}

// Play executes one step. Token is the one that the last As returned.
func Play(w World, s Step, t Token) (Token, error) {
	var err error
	switch s.Verb {
	case MakeNode:
		err = w.MakeNode(s.Name)
	case MakeAccount:
		err = w.MakeAccount(s.Name)
	case MakePod:
		err = w.MakePod(s.Pod)
	case Finish:
		err = w.SetPhase(s.Pod)
	case Terminate:
		err = w.Terminate(s.Pod, s.Duration)
	case Delete:
		err = w.Delete(s.Kind, s.Name)
	case Wait:
		err = w.Wait(s.Duration)
	case As:
		t, err = w.Token(s.Kind, s.Name)
	case Allow, Deny:
		err = ask(w, s, t)
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %s: %w", s.Line, s.Verb, err)
	}
	return t, nil
}

// ask reports an answer that is not the one that the step requires. A refusal
// for the wrong reason is as wrong as a grant.
func ask(w World, s Step, t Token) error {
	got, err := w.Ask(t, s.Want)
	if err != nil {
		return fmt.Errorf("asking for %q: %w", s.Want, err)
	}
	want := s.Want
	if want == "" {
		want = got.Own
	}
	switch {
	case s.Verb == Allow && got.Granted != want:
		return fmt.Errorf("%q: got %q (%s), want it granted", s.Want, got.Granted, got.Reason)
	case s.Verb == Deny && (got.Granted != "" || got.Reason != s.Reason):
		return fmt.Errorf("%q: got %q (%s), want it denied (%s)", s.Want, got.Granted, got.Reason, s.Reason)
	}
	return nil
}

package authz_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// world is a scenario's cluster in memory, and the policy that it configures.
type world struct {
	scenario.Memory
	policy authz.Policy
}

func newWorld(s scenario.Scenario) *world {
	w := &world{Memory: scenario.Memory{Now: time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)}}
	w.policy = authz.Policy{
		TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"),
		NodeAgents:  accounts(s.Agents),
		Protected:   accounts(s.Protected),
		Inventory:   w,
		Now:         func() time.Time { return w.Now },
		Evicted:     func(node string) bool { return slices.Contains(s.Evicted, node) },
	}
	return w
}

func (w *world) Token(kind, name string) (scenario.Token, error) {
	t, err := w.Memory.Token(kind, name)
	return authz.Caller{
		ServiceAccount: account(t.Account), ServiceAccountUID: t.AccountUID,
		Pod: t.Pod, PodUID: t.PodUID, Node: t.Node, NodeUID: t.NodeUID,
	}, err
}

func (w *world) Ask(t scenario.Token, want string) (scenario.Answer, error) {
	caller := t.(authz.Caller)
	grant, err := w.policy.Authorize(context.Background(), caller, want)
	answer := scenario.Answer{Own: "spiffe://cluster.local/ns/" + caller.ServiceAccount.Namespace + "/sa/" + caller.ServiceAccount.Name}
	if d, ok := errors.AsType[*authz.Denial](err); ok {
		answer.Reason, err = string(d.Reason), nil
	}
	if !grant.IsZero() {
		answer.Granted = grant.ID().String()
	}
	return answer, err
}

// Look implements authz.Inventory by going through the lists.
func (w *world) Look(now time.Time, q authz.Query) (authz.Facts, error) {
	var f authz.Facts
	for _, a := range w.Accounts {
		if account(a.Name) == q.Caller.ServiceAccount {
			f.CallerAccount.UID = a.UID
		}
		if account(a.Name) == q.Target {
			f.TargetAccount.UID = a.UID
		}
	}
	for _, n := range w.Nodes {
		if n.Name == q.Caller.Node {
			f.Node.UID = n.UID
		}
	}
	for _, p := range w.Pods {
		pod := authz.Pod{UID: p.UID, Account: account(p.Account()), Node: p.Node, Deleted: p.Deleted, Finished: p.Phase == "Succeeded" || p.Phase == "Failed"}
		if p.Mirror {
			continue
		}
		if p.Namespace == q.Caller.ServiceAccount.Namespace && p.Name == q.Caller.Pod {
			f.CallerPod = pod
		}
		gone := !p.Deleted.IsZero() && now.Sub(p.Deleted) > 60*time.Second
		if pod.Node == q.Caller.Node && pod.Node != "" && pod.Account == q.Target && !pod.Finished && !gone {
			f.Live++
			f.LiveUID = p.UID
		}
	}
	return f, nil
}

// Confirm implements authz.Inventory: nothing is ever late in memory.
func (w *world) Confirm(_ context.Context, q authz.Query, _ func(authz.Facts) bool) (authz.Facts, error) {
	return w.Look(w.Now, q)
}

func accounts(names []string) []authz.ServiceAccount {
	var all []authz.ServiceAccount
	for _, n := range names {
		all = append(all, account(n))
	}
	return all
}

func account(name string) authz.ServiceAccount {
	namespace, name, _ := strings.Cut(name, "/")
	return authz.ServiceAccount{Namespace: namespace, Name: name}
}

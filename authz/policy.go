// Package authz decides which SPIFFE identity a caller may have certified.
//
// It is the second stage of a request: k8s/token has turned a bearer token into
// a [Caller], and ca will sign for nothing but the [Grant] that leaves here. The
// decision is a pure function of the caller, the identity it asks for, the time
// and the [Facts]; the package knows nothing of gRPC, of X.509, or of the
// Kubernetes API. Facts reach it through an [Inventory].
package authz

import (
	"context"
	"errors"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Policy authorizes requests. It must not be changed once in use, and is then
// safe for concurrent use.
type Policy struct {
	// TrustDomain is the only trust domain in which identities are granted.
	TrustDomain spiffeid.TrustDomain

	// NodeAgents are the service accounts whose pods may ask for the identity
	// of any pod on their own node.
	NodeAgents []ServiceAccount

	// Protected are the service accounts whose identity no node agent may have.
	Protected []ServiceAccount

	// Evicted reports whether nothing may be issued to the node any more. Nil
	// means that no node is evicted.
	Evicted func(node string) bool

	// Inventory is asked for the facts.
	Inventory Inventory

	// Now is the clock. It is read anew after each wait for facts.
	Now func() time.Time
}

// Authorize returns the grant for caller, who asked for the identity want; the
// empty string asks for the caller's own. An error is a [*Denial], or matches
// [ErrUndecided]; the grant that comes with an error is zero.
//
// A denial that rests on facts which may only be late is not spoken before
// [Inventory.Confirm] has had its say.
func (p *Policy) Authorize(ctx context.Context, caller Caller, want string) (Grant, error) {
	a, err := p.ask(caller, want)
	if err != nil {
		return Grant{}, err
	}
	q := Query{Caller: caller, Target: a.target}
	now := p.Now()
	facts, err := p.Inventory.Look(now, q)
	if err != nil {
		return Grant{}, undecided(err)
	}
	grant, err := p.decide(now, &a, &facts)
	if !mayBeLate(err) {
		return grant, err
	}
	return p.confirm(ctx, a, q)
}

// An ask is a request that has been parsed.
type ask struct {
	caller Caller
	id     spiffeid.ID
	target ServiceAccount
}

// own reports whether the caller asks for its own identity.
func (a *ask) own() bool { return a.target == a.caller.ServiceAccount }

// ask applies the rules about the text of the request.
func (p *Policy) ask(caller Caller, want string) (ask, error) {
	if want == "" {
		own, err := identity(p.TrustDomain, caller.ServiceAccount)
		if err != nil {
			return ask{}, Deny(BadIdentity, "the caller has no identity: %v", err)
		}
		return ask{caller, own, caller.ServiceAccount}, nil
	}
	id, target, err := parseIdentity(p.TrustDomain, want)
	if err != nil {
		return ask{}, Deny(BadIdentity, "%v", err)
	}
	return ask{caller, id, target}, nil
}

// confirm decides on facts that are no older than the call.
func (p *Policy) confirm(ctx context.Context, a ask, q Query) (Grant, error) {
	facts, err := p.Inventory.Confirm(ctx, q, func(f Facts) bool {
		_, err := p.decide(p.Now(), &a, &f)
		return !mayBeLate(err)
	})
	if err != nil {
		return Grant{}, undecided(err)
	}
	return p.decide(p.Now(), &a, &facts)
}

// decide applies the rules to facts, in their order.
func (p *Policy) decide(now time.Time, a *ask, f *Facts) (Grant, error) {
	for r := range rules {
		if err := r.check(p, now, a, f); err != nil {
			return Grant{}, err
		}
		if r.grants(a) {
			return Grant{id: a.id, caller: a.caller, evidence: Evidence{f.Live, f.LiveUID}}, nil
		}
	}
	return Grant{}, errors.New("no rule granted the request, and none denied it") // the last one does either
}

// undecided makes sure that an inventory's error cannot be taken for a denial.
func undecided(err error) error {
	if errors.Is(err, ErrUndecided) {
		return err
	}
	return &Undecided{Reason: APITrouble, Err: err}
}

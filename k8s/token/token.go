// Package token turns the credentials of a request into an [authz.Caller].
//
// It is the first stage of a request that looks at what the client says: the
// authorization and clusterid values of a call go in, and what a bound
// Kubernetes service account token proves comes out, or the reason why not. The
// check is offline: signatures are verified with the key set of the cluster's
// own API server, so that a request costs the API server nothing. Only a token
// whose key cannot be found is shown to it, as a TokenReview.
//
// The package knows nothing of pods, nodes and service accounts as they are now.
// Whether those that a token names still exist, with these UIDs, is asked on
// every request by [authz.Policy], from one view of the cluster and with one way
// to deal with facts that are late. A review never stands in for that.
package token

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// A Verifier verifies the tokens of one cluster. It is safe for concurrent use.
//
// Which cluster that is, no request may choose: several clusters are several
// verifiers, each with the issuers and the key set of its own.
type Verifier struct {
	rules   rules
	keys    *keys
	reviews *reviews // nil if unknown keys are not reviewed
	seen    *cache[*proof]
	now     func() time.Time

	clusters clusterCounts
	hits     atomic.Uint64
	misses   atomic.Uint64
}

// A proof is what a token proves, and on what that rests.
type proof struct {
	caller authz.Caller
	expiry time.Time
	key    *key
}

// New returns a verifier, or everything that is wrong with c. The verifier has
// no keys yet: see [Verifier.Run].
func New(c Config) (*Verifier, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.setDefaults()
	c.Issuers, c.Audiences = slices.Clone(c.Issuers), slices.Clone(c.Audiences)
	v := &Verifier{
		rules:    rules{c.Issuers, c.Audiences, c.AllowUnbound, c.MaxTokenLife},
		keys:     newKeys(&c),
		seen:     newCache[*proof](c.CacheSize),
		now:      c.Now,
		clusters: clusterCounts{own: c.ClusterID},
	}
	if c.Review != nil {
		v.reviews = newReviews(&c)
	}
	return v, nil
}

// Verify returns the caller that a request's authorization values prove. All
// values of authorization and clusterid are wanted, since a second one is
// refused. An error is an [*authz.Denial] with a reason of authentication, or
// an [*authz.Undecided]; neither tells anything secret.
//
// A token that was verified before costs one hash and a look at the clock and
// the key set. Everything that is to be refused takes the whole way, so that
// the reason is always that of the rules.
func (v *Verifier) Verify(ctx context.Context, authorization, clusterID []string) (authz.Caller, error) {
	token, err := bearer(authorization)
	if err != nil {
		return authz.Caller{}, err
	}
	if err := v.clusters.check(clusterID); err != nil {
		return authz.Caller{}, err
	}
	now, id := v.now(), sumOf(token)
	if p, ok := v.seen.get(id); ok && now.Before(p.expiry) && v.keys.hold(now, p.key) {
		v.hits.Add(1)
		return p.caller, nil
	}
	v.misses.Add(1)
	return v.verify(ctx, now, id, token)
}

// verify applies every check to a token, those that need no key first.
func (v *Verifier) verify(ctx context.Context, now time.Time, id sum, token string) (authz.Caller, error) {
	t, err := parse(token)
	if err != nil {
		return authz.Caller{}, authz.Deny(authz.BadToken, "%v", err)
	}
	if err := v.rules.check(now, &t.claims); err != nil {
		return authz.Caller{}, err
	}
	key, err := v.keys.find(ctx, now, t.kid, t.claims.issuedAt)
	if err != nil && v.reviews != nil && ctx.Err() == nil {
		return v.reviews.ask(ctx, now, id, token, &t.claims)
	}
	if err != nil {
		return authz.Caller{}, err
	}
	if err := t.verify(key); err != nil {
		return authz.Caller{}, authz.Deny(authz.BadSignature, "%v", err)
	}
	p := &proof{t.claims.caller(), t.claims.expiry, key}
	v.seen.put(id, p)
	return p.caller, nil
}

// Run keeps the key set fresh until ctx is done. While it cannot be read it is
// tried again sooner, first after the shortest interval that is allowed.
func (v *Verifier) Run(ctx context.Context) {
	failures := 0
	for {
		r, err := v.keys.refresh(ctx, v.now())
		if err != nil {
			return // ctx is done
		}
		if failures++; r.err == nil {
			failures = 0
		}
		v.sweep()
		select {
		case <-ctx.Done():
			return
		case <-time.After(v.keys.nextWait(failures)):
		}
	}
}

// sweep forgets what can be of no use any more.
func (v *Verifier) sweep() {
	now := v.now()
	v.seen.sweep(func(p *proof) bool { return now.Before(p.expiry) && v.keys.know(p.key) })
	if v.reviews != nil {
		v.reviews.sweep(now)
	}
}

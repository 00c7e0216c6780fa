package token

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// reviews asks the API server for its opinion of tokens.
type reviews struct {
	review    func(context.Context, string, []string) (authenticationv1.TokenReviewStatus, error)
	audiences []string
	budget    *rate.Limiter
	life      time.Duration
	verdicts  *cache[*verdict]

	accepted, refused, failed, overBudget atomic.Uint64
}

// A verdict is what came of a review, or will.
type verdict struct {
	done   chan struct{} // closed once the rest is set
	caller authz.Caller
	err    error     // a denial, or undecided
	until  time.Time // zero if undecided, which is not worth keeping
}

func newReviews(c *Config) *reviews {
	return &reviews{
		review:    c.Review,
		audiences: c.Audiences,
		budget:    rate.NewLimiter(rate.Limit(c.ReviewRate), c.ReviewBurst),
		life:      c.VerdictLife,
		verdicts:  newCache[*verdict](c.VerdictCacheSize),
	}
}

// good reports whether the verdict can be shared with one who asks at now.
func (v *verdict) good(now time.Time) bool { return !isClosed(v.done) || now.Before(v.until) }

// ask returns the verdict on a token that has passed every check that needs no
// key. All who ask for one token at a time share a review, which does not end
// with whoever began it.
func (r *reviews) ask(ctx context.Context, now time.Time, id sum, token string, c *claims) (authz.Caller, error) {
	good := func(v *verdict) bool { return v.good(now) }
	v, err := r.verdicts.share(id, good, func() (*verdict, error) {
		if !r.budget.AllowN(now, 1) {
			r.overBudget.Add(1)
			return nil, &authz.Undecided{Reason: authz.NoCapacity, Err: fmt.Errorf("no token review is left within %v a second", r.budget.Limit())}
		}
		v := &verdict{done: make(chan struct{})}
		go r.run(context.WithoutCancel(ctx), v, now, token, c)
		return v, nil
	})
	if err != nil {
		return authz.Caller{}, err
	}
	select {
	case <-v.done:
		return v.caller, v.err
	case <-ctx.Done():
		return authz.Caller{}, &authz.Undecided{Reason: authz.DeadlinePassed, Err: fmt.Errorf("waiting for a token review: %w", ctx.Err())}
	}
}

// run asks, and sets the verdict. It is good for a while from when it was asked
// for. That it does not outlive the token is seen to by the rules, which every
// request passes before it gets here.
func (r *reviews) run(ctx context.Context, v *verdict, now time.Time, token string, c *claims) {
	defer close(v.done)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	status, err := r.review(ctx, token, r.audiences)
	if err != nil {
		r.failed.Add(1)
		v.err = &authz.Undecided{Reason: authz.APITrouble, Err: errors.New("asking for a token review: " + redact(err.Error(), token))}
		return
	}
	v.until = now.Add(r.life)
	if v.err = r.judge(&status, token, c); v.err != nil {
		r.refused.Add(1)
		return
	}
	r.accepted.Add(1)
	v.caller = c.caller()
}

// judge reads a review. An API server that does not know of audiences says that
// a token is authenticated and names none (kubernetes/kubernetes#62692), so one
// of ours must be echoed.
func (r *reviews) judge(status *authenticationv1.TokenReviewStatus, token string, c *claims) error {
	if !status.Authenticated {
		return authz.Deny(authz.ReviewRefused, "the API server says of the token of %s: %s", c.subject, redact(status.Error, token))
	}
	if !slices.ContainsFunc(status.Audiences, func(a string) bool { return slices.Contains(r.audiences, a) }) {
		return authz.Deny(authz.ReviewRefused, "reviewed for %s; our audiences are %s", quoteAll(status.Audiences), quoteAll(r.audiences))
	}
	return agree(&status.User, c)
}

// agree refuses a review that is of another token than the claims are: the API
// server and we must have read the same text in the same way.
func agree(user *authenticationv1.UserInfo, c *claims) error {
	if user.Username != c.subject || user.UID != c.account.uid {
		return authz.Deny(authz.ReviewRefused, "reviewed as %s, UID %s; the token says %s, UID %s", quote(user.Username), quote(user.UID), c.subject, c.account.uid)
	}
	credential := c.id
	if credential != "" {
		credential = "JTI=" + c.id // kubernetes, apiserver/pkg/authentication/token/jwt
	}
	for _, extra := range []struct{ key, claim string }{
		{"pod-name", c.pod.name},
		{"pod-uid", c.pod.uid},
		{"node-name", c.node.name},
		{"node-uid", c.node.uid},
		{"credential-id", credential},
	} {
		reviewed := user.Extra["authentication.kubernetes.io/"+extra.key]
		if !isJust(reviewed, extra.claim) {
			return authz.Deny(authz.ReviewRefused, "the token of %s was reviewed with %s %s; it says %s", c.subject, extra.key, quoteAll(reviewed), quote(extra.claim))
		}
	}
	return nil
}

// isJust reports whether values are just the one that is wanted, or none if
// that is empty.
func isJust(values []string, want string) bool {
	if want == "" {
		return len(values) == 0 || len(values) == 1 && values[0] == ""
	}
	return len(values) == 1 && values[0] == want
}

func (r *reviews) sweep(now time.Time) {
	r.verdicts.sweep(func(v *verdict) bool { return v.good(now) })
}

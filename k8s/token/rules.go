package token

import (
	"slices"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// leeway is by how much the API server's clock may be ahead of ours. It is not
// for expiry: a token that has expired here is refused here.
const leeway = time.Minute

// rules are the checks of a well-formed token that need no key.
type rules struct {
	issuers, audiences []string
	allowUnbound       bool
	maxLife            time.Duration
}

// check applies the rules in the order of their reasons in package authz.
func (r *rules) check(now time.Time, c *claims) error {
	if !slices.Contains(r.issuers, c.issuer) {
		return authz.Deny(authz.UnknownIssuer, "issued by %s; our issuers are %s", quote(c.issuer), quoteAll(r.issuers))
	}
	// Not just one of them: who else a token is meant for could present it here.
	if slices.ContainsFunc(c.audience, func(a string) bool { return !slices.Contains(r.audiences, a) }) {
		return authz.Deny(authz.WrongAudience, "meant for %s; our audiences are %s", quoteAll(c.audience), quoteAll(r.audiences))
	}
	if err := r.checkTime(now, c); err != nil {
		return err
	}
	return r.checkBinding(c)
}

func (r *rules) checkTime(now time.Time, c *claims) error {
	life := c.expiry.Sub(c.issuedAt)
	switch {
	case !now.Before(c.expiry): // RFC 7519, Section 4.1.4: "on or after"
		return authz.Deny(authz.ExpiredToken, "expired at %s, %v ago: our clock says %s", stamp(c.expiry), now.Sub(c.expiry).Truncate(time.Second), stamp(now))
	case now.Add(leeway).Before(c.issuedAt):
		return authz.Deny(authz.EarlyToken, "issued at %s, which is %v ahead: our clock says %s", stamp(c.issuedAt), c.issuedAt.Sub(now).Truncate(time.Second), stamp(now))
	case now.Add(leeway).Before(c.notBefore):
		return authz.Deny(authz.EarlyToken, "not valid before %s, which is %v ahead: our clock says %s", stamp(c.notBefore), c.notBefore.Sub(now).Truncate(time.Second), stamp(now))
	case life > r.maxLife:
		return authz.Deny(authz.BadToken, "made to last %v, more than %v", life, r.maxLife)
	}
	return nil
}

// checkBinding refuses whatever is bound to something that it does not know,
// since what that permits it cannot know either.
func (r *rules) checkBinding(c *claims) error {
	who := c.namespace + "/" + c.account.name
	switch bound := c.pod != (ref{}); {
	case len(c.others) > 0:
		return authz.Deny(authz.NotPodBound, "the token of %s is bound to %s", who, quoteAll(c.others))
	case !bound && c.node != (ref{}):
		return authz.Deny(authz.NotPodBound, "the token of %s is bound to node %s and no pod", who, c.node.name)
	case !bound && !r.allowUnbound:
		return authz.Deny(authz.NotPodBound, "the token of %s is bound to nothing", who)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

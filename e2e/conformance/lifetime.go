package conformance

import (
	"fmt"
	"math"
	"time"
)

const (
	day      = 24 * 3600
	renewing = "istio, ztunnel: it renews half-way between NotBefore and NotAfter, and at once, again and again, if that is past"
	outlived = "istio/istio#59768; istio/istio#18990; smallstep/certificates#381"
)

func lifetimeCases() []Case {
	return []Case{
		{ID: "lifetime-01", Level: Should, Source: "istio: istiod has a default; SECRET_TTL=0s", run: func(t *T) {
			t.issued(t.agent1, t.cart.id(), withSeconds(0))
		}, Says: "who asks for no lifetime gets a certificate that lives"},
		{ID: "lifetime-02", Level: Should, Source: "istio: SECRET_TTL is how long a certificate is wanted for", run: anHour,
			Says: "who asks for an hour gets an hour, or a little less"},
		{ID: "lifetime-03", Level: Must, Source: outlived, run: lives([]int64{day, 365 * day, 3650 * day, 36500 * day}, withinIssuers),
			Says: "no certificate outlives its issuers or its root, however long it is wanted for"},
		{ID: "lifetime-04", Level: Should, Source: "istio: a certificate cannot be taken back, but ends", run: lives([]int64{3650 * day}, func(c *certificate) error {
			return atMost(c, 366*day*time.Second)
		}), Says: "no certificate lives for more than a year, however long it is wanted for"},
		{ID: "lifetime-05", Level: Profile, Source: "istio: SECRET_TTL is set on each client, long ago", run: func(t *T) {
			if err := atMost(t.issued(t.agent1, t.cart.id(), withSeconds(365*day)), 364*day*time.Second); err != nil {
				t.errorf("%v", err)
			}
		}, Says: "who asks for more than it can have gets what it can have"},
		{ID: "lifetime-06", Level: Must, Source: outlived + "; a count of seconds may not fit where nanoseconds are counted", run: lives(absurd(), notExpired, withinIssuers),
			Says: "a lifetime that is negative or overflows gives no certificate that has expired or outlives its issuers"},
		{ID: "lifetime-07", Level: Profile, Source: "no client means it", run: refusals(absurdities),
			Says: "a lifetime that is negative or overflows is refused"},
		{ID: "lifetime-08", Level: Must, Source: renewing, run: lives(append(absurd(), 0, 1, 2, 5, 10, 30, 60, 120, 240, 300, 600, 3600, day, 90*day), midpointAhead),
			Says: "no certificate is to be renewed as soon as it is there, however short it is wanted for"},
		{ID: "lifetime-09", Level: Should, Source: "istio/istio#32176; dapr/dapr#3058", run: profile(backdated),
			Says: "it is valid from some time ago, for clocks that are late, and not from more than a day ago"},
		{ID: "lifetime-10", Level: Profile, Source: "istio, ztunnel: what was issued at once is renewed at once", run: spread,
			Says: "certificates that are issued at one moment do not all end at one"},
	}
}

// absurd returns lifetimes that are negative, or that overflow as nanoseconds, to
// little, much or less than nothing.
func absurd() []int64 {
	const most = math.MaxInt64 / int64(time.Second)
	return []int64{-1, -day, math.MinInt64, math.MaxInt64, most + 1, 2*most + 2, 2*most + 3, 4*most + 4 + day}
}

func absurdities(*T) (all []option) {
	for _, n := range absurd() {
		all = append(all, called(fmt.Sprintf("%d seconds", n), withSeconds(n)))
	}
	return all
}

// lives is a case about certificates that are wanted for so many seconds. It may
// be refused to issue them.
func lives(seconds []int64, checks ...func(*certificate) error) func(*T) {
	return func(t *T) {
		for _, n := range seconds {
			a := t.answered(t.agent1, t.cart.id(), withSeconds(n))
			if !a.issued() {
				t.note("%d seconds: %v: %s", n, a.code, a.message)
				continue
			}
			c, err := open(a)
			if err != nil {
				t.fatalf("%d seconds: %v", n, err)
			}
			for _, check := range checks {
				if err := check(c); err != nil {
					t.errorf("%d seconds: %v", n, err)
				}
			}
		}
		t.issued(t.agent1, t.cart.id())
	}
}

func withinIssuers(c *certificate) error {
	issuers, err := c.issuers()
	if err != nil {
		return err
	}
	for i, r := range issuers {
		if end := r.TBS.Validity.NotAfter; c.leaf.TBS.Validity.NotAfter.After(end) {
			return fmt.Errorf("it ends at %v, and issuer %d at %v", c.leaf.TBS.Validity.NotAfter, i, end)
		}
	}
	return nil
}

// left is how long from now, by the clock of the suite.
func left(t time.Time) time.Duration { return time.Until(t) }

func atMost(c *certificate, d time.Duration) error {
	if l := left(c.leaf.TBS.Validity.NotAfter); l > d {
		return fmt.Errorf("it ends in %v", l)
	}
	return nil
}

func anHour(t *T) {
	const clocks = 5 * time.Minute // by which two may differ
	l := left(t.issued(t.agent1, t.cart.id(), withSeconds(3600)).leaf.TBS.Validity.NotAfter)
	if l > time.Hour+clocks || l < time.Hour/2 {
		t.errorf("it ends in %v", l)
	}
}

func notExpired(c *certificate) error {
	if l := left(c.leaf.TBS.Validity.NotAfter); l <= 0 {
		return fmt.Errorf("it ended %v ago", -l)
	}
	return nil
}

func midpointAhead(c *certificate) error {
	if l := left(c.leaf.midpoint()); l <= 0 {
		return fmt.Errorf("it is to be renewed %v ago", -l)
	}
	return nil
}

func backdated(c *certificate) error {
	age := -left(c.leaf.TBS.Validity.NotBefore)
	if age < 10*time.Second || age > day*time.Second {
		return fmt.Errorf("it is valid from %v ago", age)
	}
	return nil
}

// spread compares lives, not ends: what is issued a second later may end a second
// later.
func spread(t *T) {
	var least, most time.Duration
	for i := range 10 {
		l := t.opened(t.agent1, t.cart.id()).leaf.life()
		if i == 0 {
			least, most = l, l
		}
		least, most = min(least, l), max(most, l)
	}
	t.note("lives from %v to %v", least, most)
	if most-least < 10*time.Second {
		t.errorf("ten certificates all live for %v", least)
	}
}

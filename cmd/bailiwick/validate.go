package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validate returns every problem.
func (c *Config) validate() error {
	var errs []error
	check := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	_, err := spiffeid.TrustDomainFromString(c.TrustDomain)
	check("trustDomain", err)
	if strings.Contains(c.TrustDomain, "/") {
		check("trustDomain", fmt.Errorf("%q is not the name of a trust domain", short(c.TrustDomain)))
	}
	check("istioNamespace", firstOf(validation.IsDNS1123Label(c.IstioNamespace)))
	_, err = parseAccounts(c.NodeAgents)
	check("nodeAgents", err)
	_, err = parseAccounts(c.Protected)
	check("protected", err)
	for _, node := range c.EvictedNodes {
		check("evictedNodes", firstOf(validation.IsDNS1123Subdomain(node)))
	}
	if c.TokenReview != reviewOff && c.TokenReview != reviewUnknownKey {
		check("tokenReview", fmt.Errorf("%q is neither %q nor %q", short(string(c.TokenReview)), reviewUnknownKey, reviewOff))
	}
	if c.ClusterID == "" {
		check("clusterID", errors.New("it is empty; leave it out, or name what clients send"))
	}
	if len(c.Audiences) == 0 {
		check("audiences", errors.New("the list is empty, so no token would be accepted; leave it out, or name one"))
	}
	if c.Issuers != nil && len(c.Issuers) == 0 {
		check("issuers", errors.New("the list is empty, so no token would be accepted; leave it out, or name one"))
	}
	check("issuers", noEmpty(c.Issuers))
	check("audiences", noEmpty(c.Audiences))
	check("servingNames", cmp.Or(noLonger(c.ServingNames), c.servingNames().Validate()))
	if len(errs) == 0 { // otherwise the trust domain may be what is wrong
		check("maxLeafLife, minLeafLife", c.profile().Validate())
	}
	return errors.Join(slices.Concat(errs, c.validateDurations(), c.validateNumbers(), c.validateRelations())...)
}

// atLeast returns an error for each field that is below its bound, or not above
// zero if it has no other.
func atLeast[T cmp.Ordered](fields []bounded[T]) []error {
	var errs []error
	var zero T
	for _, f := range fields {
		switch {
		case f.least == zero && f.value <= zero:
			errs = append(errs, fmt.Errorf("%s: %v is not more than 0; leave it out for its default", f.name, f.value))
		case f.value < f.least:
			errs = append(errs, fmt.Errorf("%s: %v is less than %v", f.name, f.value, f.least))
		}
	}
	return errs
}

// A bounded field of the configuration has a least value.
type bounded[T any] struct {
	name         string
	value, least T
}

func (c *Config) validateDurations() []error {
	l := &c.Limits
	return atLeast([]bounded[time.Duration]{
		{"maxStaleness", time.Duration(c.MaxStaleness), 0},
		{"probeEvery", time.Duration(c.ProbeEvery), time.Second},
		{"hold", time.Duration(c.Hold), 0},
		{"limits.deadline", time.Duration(l.Deadline), 0},
		{"limits.queueWait", time.Duration(l.QueueWait), 0},
		{"limits.connectionAge", time.Duration(l.ConnectionAge), 0},
		{"limits.drainDelay", time.Duration(l.DrainDelay), 0},
		{"limits.drainTimeout", time.Duration(l.DrainTimeout), 0},
	})
}

func (c *Config) validateNumbers() []error {
	l := &c.Limits
	return atLeast([]bounded[float64]{
		{"kubernetesQPS", float64(c.KubernetesQPS), 1},
		{"kubernetesBurst", float64(c.KubernetesBurst), 1},
		{"limits.inFlight", float64(l.InFlight), 1},
		{"limits.inFlightPerNode", float64(l.InFlightPerNode), 1},
		{"limits.queuePerNode", float64(l.QueuePerNode), 1},
		{"limits.connections", float64(l.Connections), 1},
		{"limits.connectionsPerHost", float64(l.ConnectionsPerHost), 1},
	})
}

// validateRelations compares fields that mean nothing without each other.
func (c *Config) validateRelations() []error {
	var errs []error
	if c.ProbeEvery >= c.MaxStaleness {
		errs = append(errs, fmt.Errorf("probeEvery: %v is not below maxStaleness, %v", c.ProbeEvery, c.MaxStaleness))
	}
	if c.Hold >= c.Limits.Deadline {
		errs = append(errs, fmt.Errorf("hold: %v is not below limits.deadline, %v: no time would be left to ask the API server", c.Hold, c.Limits.Deadline))
	}
	return errs
}

// warnings returns what is allowed, and probably not meant.
func (c *Config) warnings() []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if len(c.NodeAgents) == 0 {
		warn("nodeAgents is empty: no node agent is trusted, so every ztunnel will be refused")
	}
	if c.MaxStaleness < Duration(3*time.Minute) {
		warn("maxStaleness is %v: below 3m, a cluster in which nothing happens looks out of date", c.MaxStaleness)
	}
	if c.MinLeafLife < Duration(ca.DefaultMinLeafLife) {
		warn("minLeafLife is %v: less than 10m is for tests only", c.MinLeafLife)
	}
	if c.MaxLeafLife > Duration(longLeafLife) {
		warn("maxLeafLife is %v: a stolen certificate is good until it expires; more than %v is hardly ever meant", c.MaxLeafLife, Duration(longLeafLife))
	}
	if c.AllowUnboundTokens {
		warn("allowUnboundTokens: whoever may create tokens for an account gets its certificates, from anywhere")
	}
	if calls, perSecond, atOnce := c.kubernetesCalls(); c.KubernetesQPS < float32(perSecond) || c.KubernetesBurst < atOnce {
		warn("kubernetesQPS is %v and kubernetesBurst %d: %s may be %d calls a second and %d at once, and would wait for each other; raise what is lower, or leave it out",
			c.KubernetesQPS, c.KubernetesBurst, calls, perSecond, atOnce)
	}
	return w
}

// kubernetesCalls returns what requests can make us ask of the API server, and
// how often, per second and at once.
func (c *Config) kubernetesCalls() (calls string, perSecond, atOnce int) {
	if c.TokenReview == reviewOff {
		return "live reads", liveRate, liveBurst
	}
	return "live reads and token reviews", liveRate + reviewRate, liveBurst + reviewBurst
}

// longLeafLife is the life of a certificate beyond which it is warned about.
const longLeafLife = 30 * 24 * time.Hour

// parseAccounts parses service accounts written as namespace/name, with spaces
// around them if somebody likes that.
func parseAccounts(names []string) ([]authz.ServiceAccount, error) {
	var accounts []authz.ServiceAccount
	var errs []error
	for _, s := range names {
		namespace, name, _ := strings.Cut(strings.TrimSpace(s), "/")
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			errs = append(errs, fmt.Errorf("%q is not a service account written as namespace/name", short(s)))
			continue
		}
		accounts = append(accounts, authz.ServiceAccount{Namespace: namespace, Name: name})
	}
	return accounts, errors.Join(errs...)
}

func noEmpty(list []string) error {
	if slices.Contains(list, "") {
		return errors.New("an entry is empty")
	}
	return nil
}

// noLonger refuses what is longer than any DNS name (RFC 1035, Section 2.3.4, as
// text).
func noLonger(list []string) error {
	if i := slices.IndexFunc(list, func(name string) bool { return len(name) > 253 }); i >= 0 {
		return fmt.Errorf("%q is longer than the 253 bytes of a DNS name", short(list[i]))
	}
	return nil
}

func firstOf(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(problems[0])
}

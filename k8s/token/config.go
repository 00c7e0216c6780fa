package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// DefaultAudience is the audience of the tokens that Istio's node proxy and
// agents present to a certificate authority.
const DefaultAudience = "istio-ca"

// A Config says which tokens a [Verifier] accepts, and how it finds out. The
// zero value of each field but Issuers and FetchKeys is its documented default.
type Config struct {
	// Issuers are the accepted values of the iss claim, each in full. See
	// [IssuerOf] and [DiscoverIssuer].
	Issuers []string

	// Audiences are ours: a token must be meant for one of them or more, and for
	// nobody else. The default is [DefaultAudience].
	Audiences []string

	// ClusterID is what the clients of this cluster send as their clusterid,
	// "Kubernetes" unless they were told otherwise. It decides nothing, and is
	// only counted: see [Status].
	ClusterID string

	// AllowUnbound also accepts tokens that are bound to no object at all.
	AllowUnbound bool

	// MaxTokenLife is the longest accepted time from iat to exp, 24 h by
	// default, so that a token that was made to last is not mistaken for one of
	// the kubelet's, which last 12 h with Istio's charts.
	MaxTokenLife time.Duration

	// FetchKeys reads the cluster's key set, as [KeysFrom] does. It must heed
	// its context.
	FetchKeys func(context.Context) ([]byte, error)

	// KeyRefresh is how often the key set is read, 5 min by default;
	// MinKeyRefresh the least time from one reading to the next, for a token
	// with an unknown key too, 10 s by default; and MaxKeyAge, 1 h by default,
	// the age at which the set is of no use any more.
	KeyRefresh, MinKeyRefresh, MaxKeyAge time.Duration

	// Review asks the API server for its opinion of a token, as [ReviewsFrom]
	// does. It must heed its context. It is asked only if the key of a token
	// cannot be found, and every check that needs no key has been passed. Nil
	// means that it is never asked.
	Review func(ctx context.Context, token string, audiences []string) (authenticationv1.TokenReviewStatus, error)

	// ReviewRate is how many reviews may be asked for in a second, 100 by
	// default, and ReviewBurst how many at once, 600 by default. They bound
	// what clients without any credentials can make us do to the API server.
	// A client-go limiter in front of it must not be narrower.
	ReviewRate, ReviewBurst int

	// VerdictLife is for how long a review's verdict, yes or no, is kept, 10 s
	// by default, as the API server itself does.
	VerdictLife time.Duration

	// CacheSize is how many verified tokens are remembered, 32 768 by default,
	// and VerdictCacheSize how many verdicts, 4 096 by default. At the bound,
	// another one is forgotten. An entry takes less than 1 KiB.
	CacheSize, VerdictCacheSize int

	// Now is the clock, [time.Now] by default.
	Now func() time.Time

	// Log gets what happens to the key set. The default is nowhere.
	Log *slog.Logger
}

// check returns everything that is wrong.
func (c *Config) check() error {
	var errs []error
	if len(c.Issuers) == 0 {
		errs = append(errs, errors.New("token: no issuer is configured"))
	}
	if slices.Contains(c.Issuers, "") || slices.Contains(c.Audiences, "") {
		errs = append(errs, errors.New("token: an issuer or audience is empty"))
	}
	if c.FetchKeys == nil {
		errs = append(errs, errors.New("token: there is no way to read the key set"))
	}
	for _, d := range []time.Duration{c.MaxTokenLife, c.KeyRefresh, c.MinKeyRefresh, c.MaxKeyAge, c.VerdictLife} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("token: a duration is negative: %v", d))
		}
	}
	for _, n := range []int{c.ReviewRate, c.ReviewBurst, c.CacheSize, c.VerdictCacheSize} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("token: a rate or size is negative: %d", n))
		}
	}
	d := *c
	d.setDefaults()
	if d.MinKeyRefresh > d.KeyRefresh || d.KeyRefresh > d.MaxKeyAge {
		errs = append(errs, fmt.Errorf("token: not in order: MinKeyRefresh %v, KeyRefresh %v, MaxKeyAge %v",
			d.MinKeyRefresh, d.KeyRefresh, d.MaxKeyAge))
	}
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	if len(c.Audiences) == 0 {
		c.Audiences = []string{DefaultAudience}
	}
	if c.Now == nil {
		c.Now = time.Now //nolint:forbidigo // the default clock
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.MaxTokenLife = cmp.Or(c.MaxTokenLife, 24*time.Hour)
	c.KeyRefresh = cmp.Or(c.KeyRefresh, 5*time.Minute)
	c.MinKeyRefresh = cmp.Or(c.MinKeyRefresh, 10*time.Second)
	c.MaxKeyAge = cmp.Or(c.MaxKeyAge, time.Hour)
	c.ReviewRate = cmp.Or(c.ReviewRate, 100)
	c.ReviewBurst = cmp.Or(c.ReviewBurst, 600)
	c.VerdictLife = cmp.Or(c.VerdictLife, 10*time.Second)
	c.CacheSize = cmp.Or(c.CacheSize, 32<<10)
	c.VerdictCacheSize = cmp.Or(c.VerdictCacheSize, 4<<10)
}

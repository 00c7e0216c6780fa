package ca

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The lives of [DefaultProfile].
const (
	DefaultMaxLeafLife = 24 * time.Hour
	DefaultMinLeafLife = 10 * time.Minute
)

// A Profile bounds what an [Authority] issues.
type Profile struct {
	// TrustDomain is the only one in which identities are certified.
	TrustDomain spiffeid.TrustDomain

	// MaxLeafLife is the longest life of a leaf, counted from now, and the life
	// of one whose requester does not ask for any.
	MaxLeafLife time.Duration

	// MinLeafLife is the shortest. It is also what must be left of the issuer:
	// ztunnel renews half-way through, so a sliver of life makes a hot loop.
	MinLeafLife time.Duration

	// AllowEd25519 accepts CSRs for Ed25519 keys, which Envoy cannot use.
	AllowEd25519 bool
}

// DefaultProfile returns the profile of an authority for td.
func DefaultProfile(td spiffeid.TrustDomain) Profile {
	return Profile{TrustDomain: td, MaxLeafLife: DefaultMaxLeafLife, MinLeafLife: DefaultMinLeafLife}
}

// Validate reports what is wrong with the profile.
func (p Profile) Validate() error {
	switch {
	case p.TrustDomain.IsZero():
		return errors.New("the profile has no trust domain")
	case p.MinLeafLife < time.Second:
		return fmt.Errorf("the shortest leaf life is %v, less than a second", p.MinLeafLife)
	case p.MaxLeafLife < p.MinLeafLife:
		return fmt.Errorf("the longest leaf life, %v, is below the shortest, %v", p.MaxLeafLife, p.MinLeafLife)
	// A certificate says its validity in seconds: RFC 5280, Section 4.1.2.5.
	case p.MinLeafLife%time.Second != 0 || p.MaxLeafLife%time.Second != 0:
		return fmt.Errorf("the leaf lives %v and %v are not whole seconds", p.MinLeafLife, p.MaxLeafLife)
	}
	return nil
}

// life returns the life of a leaf for which seconds were asked. Zero asks for
// none in particular. A life above the maximum is cut down without a word, as
// clients ask for what they were configured with years ago; one that no
// duration can hold was never meant.
func (p Profile) life(seconds int64) (time.Duration, error) {
	const most = math.MaxInt64 / int64(time.Second)
	switch {
	case seconds < 0:
		return 0, refuse(BadLifetime, "a life of %d seconds is negative", seconds)
	case seconds == 0:
		return p.MaxLeafLife, nil
	case seconds > most:
		return 0, refuse(BadLifetime, "a life of %d seconds is more than can be counted", seconds)
	}
	life := time.Duration(seconds) * time.Second
	if life < p.MinLeafLife {
		return 0, refuse(BadLifetime, "a life of %v is below the shortest, %v", life, p.MinLeafLife)
	}
	return min(life, p.MaxLeafLife), nil
}

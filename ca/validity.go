package ca

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"time"
)

// maxBackdate bounds by how much NotBefore lies before now, for verifiers whose
// clock is behind ours. It is small against the life, because ztunnel renews
// half-way between NotBefore and NotAfter: with a fifth of the life, that moment
// is still three eighths of it ahead.
const maxBackdate = 2 * time.Minute

// A validity is when a leaf is valid.
type validity struct {
	notBefore, notAfter time.Time
	shortened           bool // by the end of the path
}

// validity returns when a leaf is valid that is signed now and is meant to live
// for life, which is not below the profile's minimum. A leaf that outlives a
// certificate above it would fail its holder without warning, so the path bounds
// it on both sides.
func (a *Authority) validity(now time.Time, life time.Duration) (validity, error) {
	now = now.UTC().Truncate(time.Second) // RFC 5280, Section 4.1.2.5
	if now.Before(a.beginsLast.NotBefore) {
		return validity{}, &IssuerError{IssuerEarly, &ValidityError{a.beginsLast, now}}
	}
	left := a.NotAfter().Sub(now)
	v := validity{shortened: left < life}
	life = min(life, left)
	if life < a.profile.MinLeafLife {
		return validity{}, &IssuerError{IssuerExpiring, fmt.Errorf("%s is on the signing path and has less than %v left: our clock says %s",
			Describe(a.endsFirst), a.profile.MinLeafLife, stamp(now))}
	}
	backdate := min(maxBackdate, life/5).Truncate(time.Second)
	v.notBefore = now.Add(-backdate)
	if v.notBefore.Before(a.beginsLast.NotBefore) {
		v.notBefore = a.beginsLast.NotBefore
	}
	v.notAfter = now.Add(life - drawback(life, a.profile.MinLeafLife))
	return v, nil
}

// Usable returns why the authority cannot issue a leaf at now, an [*IssuerError],
// or nil. It signs nothing.
func (a *Authority) Usable(now time.Time) error {
	_, err := a.validity(now, a.profile.MaxLeafLife)
	return err
}

// drawback returns by how much to shorten life: a random part of at most a
// twentieth, to the second, and never to below least. Without it a mesh that
// starts at once would renew at once, for ever.
func drawback(life, least time.Duration) time.Duration {
	most := min(life/20, life-least) / time.Second
	n, err := rand.Int(rand.Reader, big.NewInt(int64(most)+1))
	if err != nil {
		return 0 // crypto/rand never fails; a fleet in step is no reason not to sign
	}
	return time.Duration(n.Int64()) * time.Second
}

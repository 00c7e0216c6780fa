package authz

import "github.com/spiffe/go-spiffe/v2/spiffeid"

// A Grant is the permission to certify one identity to one caller. Only
// [Policy.Authorize] makes one: its zero value permits nothing, and
// certificates are signed for nothing else.
type Grant struct {
	id       spiffeid.ID
	caller   Caller
	evidence Evidence
}

// Evidence is what justified a [Grant], for the audit record.
type Evidence struct {
	Pods   int    // live pods of the identity on the caller's node; 0 for a caller without a pod
	PodUID string // the UID of one of them
}

// ID returns the identity that may be certified.
func (g Grant) ID() spiffeid.ID { return g.id }

// Caller returns to whom it may be certified.
func (g Grant) Caller() Caller { return g.caller }

// Evidence returns what justified the grant.
func (g Grant) Evidence() Evidence { return g.evidence }

// IsZero reports whether the grant permits nothing.
func (g Grant) IsZero() bool { return g.id.IsZero() }

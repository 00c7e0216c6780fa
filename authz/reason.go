package authz

import (
	"errors"
	"fmt"
)

// A Reason is one word for why a request was not answered with a certificate.
// The same word stands in the metric, the audit line, the explanation and the
// documentation (docs/troubleshooting.md has the command to run next), so the
// list below is an interface: words are added, never changed.
type Reason string

// Reasons of the node rule, in the order in which [Policy.Authorize] applies
// them. All of them mean "no".
const (
	BadIdentity   Reason = "bad-identity"     // not spiffe://<trust domain>/ns/<namespace>/sa/<service account>, or not in our trust domain
	NoNode        Reason = "no-node"          // the token names no node, or no node UID
	CallerGone    Reason = "caller-gone"      // the pod or service account in the token is gone, replaced or long deleted
	CallerDone    Reason = "caller-finished"  // the pod in the token has succeeded or failed
	NodeMismatch  Reason = "node-mismatch"    // token, pod and Node object do not name the same node, by name and UID
	Evicted       Reason = "evicted"          // nothing is issued to this node any more
	NotANodeAgent Reason = "not-a-node-agent" // asks for another identity than its own, and is not a node agent
	Protected     Reason = "protected"        // an identity that no node agent may have
	NotOnNode     Reason = "not-on-node"      // no live pod of that identity on the caller's node, or no such account
)

// Reasons of authentication: the caller is not who it says, or does not say
// who it is. All of them mean "no".
const (
	NoToken        Reason = "no-token"        // not exactly one authorization value with a bearer token
	BadToken       Reason = "bad-token"       // not a well-formed token with the claims of a service account token
	UnknownIssuer  Reason = "unknown-issuer"  // issued by an issuer that is not configured
	WrongAudience  Reason = "wrong-audience"  // meant for somebody else
	ExpiredToken   Reason = "expired-token"   // past its expiry
	EarlyToken     Reason = "early-token"     // issued, or valid, only in the future
	NotPodBound    Reason = "not-pod-bound"   // bound to nothing, or to something else than a pod
	UnknownKey     Reason = "unknown-key"     // signed with a key that the cluster does not know
	BadSignature   Reason = "bad-signature"   // the signature does not verify
	ReviewRefused  Reason = "review-refused"  // the API server reviewed the token and refused it
	UnknownCluster Reason = "unknown-cluster" // the clusterid header names a cluster that is not configured
)

// Reasons for "cannot tell now": the same request may be granted, or denied,
// a moment later.
const (
	NotSynced      Reason = "not-synced"      // the cluster has not been listed yet
	Stale          Reason = "stale"           // what we know of the cluster is older than allowed
	NoCapacity     Reason = "no-capacity"     // no slot or budget left to find out
	APITrouble     Reason = "api-trouble"     // the API server did not answer, or not usefully
	KeysTooOld     Reason = "keys-too-old"    // the cluster's token keys could not be refreshed for too long
	DeadlinePassed Reason = "deadline-passed" // time ran out before an answer was found
)

// A Denial is the error that says "no". It is never returned for something
// that could not be found out: see [Undecided].
type Denial struct {
	Reason Reason
	Detail string // for the operator, never for the caller; no secrets
}

func (d *Denial) Error() string { return fmt.Sprintf("denied (%s): %s", d.Reason, d.Detail) }

// Deny returns a [*Denial] whose detail is formatted like [fmt.Sprintf].
func Deny(r Reason, format string, args ...any) error {
	return &Denial{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// ErrUndecided is matched by every error that says "cannot tell now".
var ErrUndecided = errors.New("cannot decide now")

// An Undecided is the error that says "cannot tell now". It matches
// [ErrUndecided], and the error it wraps.
type Undecided struct {
	Reason Reason
	Err    error // for the operator, never for the caller; no secrets
}

func (u *Undecided) Error() string {
	return fmt.Sprintf("%v (%s): %v", ErrUndecided, u.Reason, u.Err)
}

// Unwrap returns [ErrUndecided] and the cause.
func (u *Undecided) Unwrap() []error { return []error{ErrUndecided, u.Err} }

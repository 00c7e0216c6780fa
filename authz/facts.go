package authz

import (
	"context"
	"time"
)

// A Query names what a decision needs to know: the caller as its token
// describes it, and the service account whose identity is wanted.
type Query struct {
	Caller Caller
	Target ServiceAccount
}

// Facts are what an inventory knows about a [Query] at one moment. The zero
// value says that nothing of it exists.
type Facts struct {
	CallerAccount Account // Query.Caller.ServiceAccount
	CallerPod     Pod     // the pod named Query.Caller.Pod in that account's namespace
	Node          Node    // the Node object named Query.Caller.Node
	TargetAccount Account // Query.Target

	// Live is how many live pods of Query.Target are on Query.Caller.Node, and
	// LiveUID the UID of one of them. A pod is live if its spec names the node,
	// it has not succeeded or failed, and it is not more than [Grace] past its
	// deletion timestamp. Mirror pods never are: their kubelet made them up.
	Live    int
	LiveUID string
}

// Grace is for how long a pod or service account still counts after its
// deletion timestamp, as in Kubernetes' own token authentication. A pod's
// deletion timestamp already includes its termination grace period.
const Grace = 60 * time.Second

// An Account is a service account as the API has it.
type Account struct {
	UID     string    // "" if there is none
	Deleted time.Time // its deletion timestamp; zero if it has none
}

// Exists reports whether the account still counts at now.
func (a Account) Exists(now time.Time) bool { return a.UID != "" && !pastGrace(a.Deleted, now) }

// A Pod is a pod as the API has it. Mirror pods are not known to it.
type Pod struct {
	UID      string // "" if there is none
	Account  ServiceAccount
	Node     string    // its spec.nodeName
	Finished bool      // phase Succeeded or Failed
	Deleted  time.Time // its deletion timestamp; zero if it has none
}

// Live reports whether the pod counts at now: it has not finished, and is not
// more than [Grace] past its deletion timestamp.
func (p Pod) Live(now time.Time) bool {
	return p.UID != "" && !p.Finished && !pastGrace(p.Deleted, now)
}

// A Node is a Node object as the API has it.
type Node struct {
	UID string // "" if there is none
}

func pastGrace(deleted, now time.Time) bool {
	return !deleted.IsZero() && now.Sub(deleted) > Grace
}

// An Inventory answers from what is known of the cluster. Errors match
// [ErrUndecided].
type Inventory interface {
	// Look returns what is known now, without waiting. It fails if nothing is
	// known yet, or if what is known is older than allowed.
	Look(now time.Time, q Query) (Facts, error)

	// Confirm is for facts that would lead to a denial and may only be late.
	// It returns as soon as the facts are enough, and otherwise facts which
	// hold for a moment after the call began: read from the API itself, or
	// from a view proven to be younger than the call.
	Confirm(ctx context.Context, q Query, enough func(Facts) bool) (Facts, error)
}

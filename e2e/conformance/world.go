package conformance

import (
	"context"
	"time"
)

// A World is the cluster that the authority watches, as far as the suite must
// change it. Names are as in Kubernetes. What a method makes it also remembers,
// and Close removes; a service account, node or namespace that was there before
// stays. Methods may be called concurrently.
type World interface {
	// Node makes a node and returns its UID.
	Node(ctx context.Context, name string) (uid string, err error)

	// Account makes a service account, and its namespace, and returns the
	// account's UID. If it is there already, that is the one.
	Account(ctx context.Context, namespace, name string) (uid string, err error)

	// Pod makes a pod and returns its UID.
	Pod(ctx context.Context, p PodSpec) (uid string, err error)

	// SetPhase does what a kubelet does when a pod goes on.
	SetPhase(ctx context.Context, namespace, pod, phase string) error

	// DeletePod deletes a pod. With a grace period of 0 it is gone at once; with
	// any other the object stays, as it does while a kubelet stops the
	// containers, until it is deleted with 0.
	DeletePod(ctx context.Context, namespace, name string, grace time.Duration) error

	DeleteNode(ctx context.Context, name string) error
	DeleteAccount(ctx context.Context, namespace, name string) error

	// Token asks the API server for a token.
	Token(ctx context.Context, r TokenRequest) (string, error)

	// Close removes what is left of all that was made.
	Close(ctx context.Context) error
}

// A PodSpec describes a pod.
type PodSpec struct {
	Namespace, Name, Account string
	Node                     string // "" for a pod that no scheduler has seen
	Phase                    string // "Running" if empty
	HostNetwork, Mirror      bool
}

// A TokenRequest is what a token is to be like.
type TokenRequest struct {
	Namespace, Account string

	// BoundKind is "Pod", "Node" or "Secret", and the rest names it; or "" for
	// a token that is bound to nothing. A Secret is made if it is missing.
	BoundKind, BoundName, BoundUID string

	Audiences []string      // nil for the API server's own
	Life      time.Duration // 0 for one hour
}

// A Sign function signs claims as the cluster's API server would. With another
// key it signs as somebody else. See [Config.Sign].
type Sign func(claims map[string]any) (string, error)

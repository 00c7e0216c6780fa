package authz

// A ServiceAccount names a Kubernetes service account.
type ServiceAccount struct {
	Namespace, Name string
}

// String returns the account as "namespace/name".
func (sa ServiceAccount) String() string { return sa.Namespace + "/" + sa.Name }

// A Caller is what a verified token proves: which service account calls, from
// which pod, on which node. Whether these still exist is not part of the proof;
// [Policy.Authorize] asks the [Inventory] for that on every request.
type Caller struct {
	ServiceAccount    ServiceAccount
	ServiceAccountUID string

	// Pod and PodUID are empty for a token that is bound to no pod, which is
	// accepted only where the configuration allows it, and only for the
	// caller's own identity. The pod's namespace is the service account's.
	Pod, PodUID string

	// Node and NodeUID are empty if the token does not name them.
	Node, NodeUID string

	// TokenID is the token's jti, which ties a certificate to the request for
	// the token in the API server's audit log. It may be empty.
	TokenID string
}

// Bound reports whether the caller's token is bound to a pod.
func (c Caller) Bound() bool { return c.Pod != "" }

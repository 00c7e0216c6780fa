package inventory

import (
	"time"
	"unique"

	"github.com/bailiwick-ca/bailiwick/authz"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod is all that is kept of a pod. It is never changed once made, so that it
// can be shared between the index, a newer index that is being built, and the
// reflector's list.
//
// The names of accounts and nodes are handles: one copy of each exists however
// many pods have it, comparing two is comparing pointers, and the garbage
// collector frees a name when the last pod that has it is gone.
type pod struct {
	name     string
	uid      string
	account  unique.Handle[authz.ServiceAccount] // its namespace is the pod's
	node     unique.Handle[string]
	deleted  int64 // deletion timestamp in seconds since 1970; 0 if it has none
	finished bool
	placed   bool // see [placed]; a pod that is not has only a name and namespace
}

// newPod returns what is kept of o.
func newPod(o *corev1.Pod) *pod {
	if !placed(o) {
		return &pod{name: o.Name, account: unique.Make(authz.ServiceAccount{Namespace: o.Namespace})}
	}
	return &pod{
		name:     o.Name,
		uid:      string(o.UID),
		account:  unique.Make(authz.ServiceAccount{Namespace: o.Namespace, Name: o.Spec.ServiceAccountName}),
		node:     unique.Make(o.Spec.NodeName),
		deleted:  seconds(o.DeletionTimestamp),
		finished: o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		placed:   true,
	}
}

// placed reports whether the pod is an account's on a node. A mirror pod is
// not: it shows a static pod, and its kubelet made it up (threat T7).
func placed(o *corev1.Pod) bool {
	_, mirror := o.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && o.UID != "" && o.Spec.NodeName != "" && o.Spec.ServiceAccountName != ""
}

func (p *pod) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.account.Value().Namespace, Name: p.name}
}

func (p *pod) facts() authz.Pod {
	return authz.Pod{
		UID:      p.uid,
		Account:  p.account.Value(),
		Node:     p.node.Value(),
		Finished: p.finished,
		Deleted:  instant(p.deleted),
	}
}

// live is authz's own rule, for which the names are not needed: each is a look at
// another place in memory.
func (p *pod) live(now time.Time) bool {
	return authz.Pod{UID: p.uid, Finished: p.finished, Deleted: instant(p.deleted)}.Live(now)
}

// A node is all that is kept of a node. It is never changed once made.
type node struct{ name, uid string }

func newNode(o *metav1.ObjectMeta) *node { return &node{o.Name, string(o.UID)} }

func (n *node) key() types.NamespacedName { return types.NamespacedName{Name: n.name} }

// An account is all that is kept of a service account. It is never changed once
// made.
type account struct {
	name    unique.Handle[authz.ServiceAccount]
	uid     string
	deleted int64 // as in pod
}

func newAccount(o *metav1.ObjectMeta) *account {
	return &account{
		name:    unique.Make(authz.ServiceAccount{Namespace: o.Namespace, Name: o.Name}),
		uid:     string(o.UID),
		deleted: seconds(o.DeletionTimestamp),
	}
}

func (a *account) key() types.NamespacedName { return types.NamespacedName(a.name.Value()) }

func (a *account) facts() authz.Account {
	return authz.Account{UID: a.uid, Deleted: instant(a.deleted)}
}

func seconds(t *metav1.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func instant(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Export is what is known of a cluster from objects that were exported from
// it. It is never too old, and nothing is late. It is safe for concurrent use.
type Export struct {
	index *index
	now   func() time.Time
}

var _ authz.Inventory = (*Export)(nil)

// FromObjects returns what is known from pods, and from the metadata of nodes
// and service accounts. The time says which deleted pods still count.
func FromObjects(pods []corev1.Pod, nodes, accounts []metav1.ObjectMeta, now func() time.Time) (*Export, error) {
	e := &Export{newIndex(), now}
	check := objectCheck{seen: make(map[string]bool)}
	for i := range pods {
		o := &pods[i]
		check.see("pod", &o.ObjectMeta)
		e.index.putPod(newPod(o))
	}
	for i := range nodes {
		check.see("node", &nodes[i])
		n := newNode(&nodes[i])
		e.index.nodes.put(n.key(), n)
	}
	for i := range accounts {
		check.see("service account", &accounts[i])
		a := newAccount(&accounts[i])
		e.index.accounts.put(a.key(), a)
	}
	if err := errors.Join(check.errs...); err != nil {
		return nil, fmt.Errorf("reading exported objects: %w", err)
	}
	return e, nil
}

// An objectCheck finds objects that no API server would return, so that a file
// which was cut or joined in the wrong place is not taken for a cluster.
type objectCheck struct {
	seen map[string]bool
	errs []error
}

func (c *objectCheck) see(kind string, o *metav1.ObjectMeta) {
	id := kind + " " + o.Name
	if kind != "node" {
		id = kind + " " + o.Namespace + "/" + o.Name
	}
	switch {
	case o.Name == "" || o.Namespace == "" && kind != "node":
		c.errs = append(c.errs, fmt.Errorf("%s lacks a name or a namespace", id))
	case o.UID == "":
		c.errs = append(c.errs, fmt.Errorf("%s has no UID; export it from a cluster, with -o yaml", id))
	case c.seen[id]:
		c.errs = append(c.errs, fmt.Errorf("%s is there twice", id))
	}
	c.seen[id] = true
}

// Look implements [authz.Inventory].
func (e *Export) Look(now time.Time, q authz.Query) (authz.Facts, error) {
	return e.index.facts(now, &q), nil
}

// Confirm implements [authz.Inventory]. There is nothing to wait for.
func (e *Export) Confirm(_ context.Context, q authz.Query, _ func(authz.Facts) bool) (authz.Facts, error) {
	return e.index.facts(e.now(), &q), nil
}

package inventory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A store is where a reflector writes what it lists and watches. It keeps
// nothing itself: every object becomes a record, and goes into the index before
// the call returns. So there is no second copy of anything, and no handler that
// could miss a deletion.
//
// Besides [cache.ReflectorStore] it is a [cache.TransformingStore], for the
// reflector to have records in its list and not objects, and a
// [cache.ResourceVersionUpdater], which is told the version of each event,
// bookmarks included, as soon as that can be relied on.
type store[R any] struct {
	*resource
	compact func(object any) (*R, error)
	put     func(*R)
	remove  func(types.NamespacedName)
	replace func([]*R)
}

var (
	_ cache.TransformingStore      = (*store[pod])(nil)
	_ cache.ResourceVersionUpdater = (*store[pod])(nil)
)

// Add and Update are the same: what is known under the name is replaced.
func (s *store[R]) Add(object any) error { return s.Update(object) }

// Update puts the object into the index.
func (s *store[R]) Update(object any) error {
	r, err := s.record(object)
	if err != nil {
		return err
	}
	s.put(r)
	return nil
}

// Delete removes what has the object's name. A tombstone is enough.
func (s *store[R]) Delete(object any) error {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.name, err)
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s.name, err)
	}
	s.remove(types.NamespacedName{Namespace: namespace, Name: name})
	return nil
}

// Replace makes objects the only ones. So what was deleted while there was no
// watch is gone now.
func (s *store[R]) Replace(objects []any, version string) error {
	records := make([]*R, 0, len(objects))
	for _, o := range objects {
		r, err := s.record(o)
		if err != nil {
			return err
		}
		records = append(records, r)
	}
	s.replace(records)
	s.age.listed(version)
	s.synced.Store(true)
	s.ended(opList, nil)
	return nil
}

// Resync has nothing to do.
func (s *store[R]) Resync() error { return nil }

// Transformer returns what makes a record of an object.
func (s *store[R]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.record(object) }
}

// UpdateResourceVersion notes that everything up to the version was seen.
func (s *store[R]) UpdateResourceVersion(version string) { s.age.reached(version) }

func (s *store[R]) record(object any) (*R, error) {
	switch o := object.(type) {
	case *R:
		return o, nil
	case listed[R]:
		return o.record, nil
	default:
		return s.compact(object)
	}
}

// A listed is a record that goes through a reflector as the item of a list,
// which must be an object of the API's kind. It has none of their methods.
type listed[R any] struct{ record *R }

// GetObjectKind returns no kind.
func (listed[R]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the same, since a record is never changed.
func (l listed[R]) DeepCopyObject() runtime.Object { return l }

// podStore returns the store for pods.
func podStore(r *resource, x *index, n *interest) *store[pod] {
	return &store[pod]{
		resource: r,
		compact: func(object any) (*pod, error) {
			o, ok := object.(*corev1.Pod)
			if !ok {
				return nil, fmt.Errorf("storing a pod: it is a %T", object)
			}
			p := newPod(o)
			// A list repeats what is known already. One record for both keeps
			// the heap small while the list is not complete.
			if known := x.pod(p.key()); known != nil && *known == *p {
				return known, nil
			}
			return p, nil
		},
		put: func(p *pod) {
			if old, changed := x.putPod(p); changed {
				tellOfPod(n, old)
				tellOfPod(n, p)
			}
		},
		remove: func(key types.NamespacedName) { tellOfPod(n, x.deletePod(key)) },
		replace: func(pods []*pod) {
			x.replacePods(pods)
			n.tellAll()
		},
	}
}

// tellOfPod tells that p came or went.
func tellOfPod(n *interest, p *pod) {
	if p != nil && p.placed {
		n.tell(subject{kind: aboutPod, name: p.key()}, p.placement())
	}
}

// nodeStore returns the store for the metadata of nodes.
func nodeStore(r *resource, x *index, n *interest) *store[node] {
	tell := func(name string) { n.tell(subject{kind: aboutNode, node: name}) }
	return &store[node]{
		resource: r,
		compact: func(object any) (*node, error) {
			o, ok := object.(*metav1.PartialObjectMetadata)
			if !ok {
				return nil, fmt.Errorf("storing a node: it is a %T", object)
			}
			return newNode(&o.ObjectMeta), nil
		},
		put: func(o *node) {
			if x.nodes.put(o.key(), o) {
				tell(o.name)
			}
		},
		remove: func(key types.NamespacedName) {
			x.nodes.remove(key)
			tell(key.Name)
		},
		replace: func(nodes []*node) {
			x.nodes.replace(nodes, (*node).key)
			n.tellAll()
		},
	}
}

// accountStore returns the store for the metadata of service accounts.
func accountStore(r *resource, x *index, n *interest) *store[account] {
	tell := func(name types.NamespacedName) { n.tell(subject{kind: aboutAccount, name: name}) }
	return &store[account]{
		resource: r,
		compact: func(object any) (*account, error) {
			o, ok := object.(*metav1.PartialObjectMetadata)
			if !ok {
				return nil, fmt.Errorf("storing a service account: it is a %T", object)
			}
			return newAccount(&o.ObjectMeta), nil
		},
		put: func(o *account) {
			if x.accounts.put(o.key(), o) {
				tell(o.key())
			}
		},
		remove: func(key types.NamespacedName) {
			x.accounts.remove(key)
			tell(key)
		},
		replace: func(accounts []*account) {
			x.accounts.replace(accounts, (*account).key)
			n.tellAll()
		},
	}
}

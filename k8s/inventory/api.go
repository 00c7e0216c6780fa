package inventory

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
)

// liveAPI returns an api that asks the API server. No request names a version,
// so that each answer is as new as the store's. That an object does not exist is
// an answer; every other failure is none.
func liveAPI(c kubernetes.Interface, m metadata.Interface) api {
	list := func(ctx context.Context, namespace string, field, value string) ([]*pod, error) {
		l, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(field, value).String(),
		})
		if err != nil {
			return nil, err
		}
		found := make([]*pod, len(l.Items))
		for i := range l.Items {
			found[i] = newPod(&l.Items[i])
		}
		return found, nil
	}
	get := func(ctx context.Context, resource string, name types.NamespacedName) (*metav1.ObjectMeta, error) {
		o, err := m.Resource(corev1.SchemeGroupVersion.WithResource(resource)).
			Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return &o.ObjectMeta, nil
	}
	return api{
		podsOn: func(ctx context.Context, node string) ([]*pod, error) {
			return list(ctx, metav1.NamespaceAll, "spec.nodeName", node)
		},
		pod: func(ctx context.Context, name types.NamespacedName) (*pod, error) {
			// A list of one, since to list is permitted already.
			found, err := list(ctx, name.Namespace, "metadata.name", name.Name)
			if len(found) == 0 {
				return nil, err
			}
			return found[0], nil
		},
		node: func(ctx context.Context, name string) (*node, error) {
			o, err := get(ctx, nodes, types.NamespacedName{Name: name})
			if o == nil {
				return nil, err
			}
			return newNode(o), nil
		},
		account: func(ctx context.Context, name types.NamespacedName) (*account, error) {
			o, err := get(ctx, serviceAccounts, name)
			if o == nil {
				return nil, err
			}
			return newAccount(o), nil
		},
	}
}

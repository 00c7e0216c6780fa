package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bailiwick-ca/bailiwick/e2e/conformance"
)

// A clusterWorld is a live cluster in which the conformance suite makes what it
// needs. Nodes that it makes are cordoned and tainted, so that nothing else is
// put on them; its pods name their node themselves, and nobody runs them.
type clusterWorld struct {
	api kubernetes.Interface

	mu   sync.Mutex
	made []madeObject // in the order in which they were made
}

var _ conformance.World = (*clusterWorld)(nil)

// A madeObject is what has to be removed.
type madeObject struct {
	kind, namespace, name string
	remove                func(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// madeBy is the label of everything that the suite makes.
const madeBy = "bailiwick-ca.github.io/conformance"

func (w *clusterWorld) meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{madeBy: "true"}}
}

func (w *clusterWorld) remember(o madeObject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, o)
}

func (w *clusterWorld) forget(kind, namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = slices.DeleteFunc(w.made, func(o madeObject) bool { return o.kind == kind && o.namespace == namespace && o.name == name })
}

// Node implements [conformance.World].
func (w *clusterWorld) Node(ctx context.Context, name string) (string, error) {
	nodes := w.api.CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: w.meta("", name), Spec: corev1.NodeSpec{
		Unschedulable: true,
		Taints:        []corev1.Taint{{Key: madeBy, Effect: corev1.TaintEffectNoSchedule}},
	}}
	made, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	w.remember(madeObject{"node", "", name, nodes.Delete})
	return string(made.UID), nil
}

func (w *clusterWorld) namespace(ctx context.Context, name string) error {
	namespaces := w.api.CoreV1().Namespaces()
	_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: w.meta("", name)}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	w.remember(madeObject{"namespace", "", name, namespaces.Delete})
	return nil
}

// Account implements [conformance.World].
func (w *clusterWorld) Account(ctx context.Context, namespace, name string) (string, error) {
	if err := w.namespace(ctx, namespace); err != nil {
		return "", err
	}
	accounts := w.api.CoreV1().ServiceAccounts(namespace)
	made, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: w.meta(namespace, name)}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = accounts.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(made.UID), nil
	}
	if err != nil {
		return "", err
	}
	w.remember(madeObject{"account", namespace, name, accounts.Delete})
	return string(made.UID), nil
}

// Pod implements [conformance.World].
func (w *clusterWorld) Pod(ctx context.Context, p conformance.PodSpec) (string, error) {
	pods := w.api.CoreV1().Pods(p.Namespace)
	meta := w.meta(p.Namespace, p.Name)
	if p.Mirror {
		meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "conformance"}
	}
	no := false
	made, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		ServiceAccountName: p.Account, NodeName: p.Node, HostNetwork: p.HostNetwork,
		AutomountServiceAccountToken: &no,
		Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:                   []corev1.Container{{Name: "none", Image: "none.invalid/none"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	w.remember(madeObject{"pod", p.Namespace, p.Name, pods.Delete})
	phase := p.Phase
	if phase == "" {
		phase = "Running"
	}
	return string(made.UID), w.SetPhase(ctx, p.Namespace, p.Name, phase)
}

// SetPhase implements [conformance.World].
func (w *clusterWorld) SetPhase(ctx context.Context, namespace, name, phase string) error {
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	_, err := w.api.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// DeletePod implements [conformance.World].
func (w *clusterWorld) DeletePod(ctx context.Context, namespace, name string, grace time.Duration) error {
	seconds := int64(grace / time.Second)
	err := w.api.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &seconds})
	if err == nil && seconds == 0 {
		w.forget("pod", namespace, name)
	}
	return err
}

// DeleteNode implements [conformance.World].
func (w *clusterWorld) DeleteNode(ctx context.Context, name string) error {
	err := w.api.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		w.forget("node", "", name)
	}
	return err
}

// DeleteAccount implements [conformance.World].
func (w *clusterWorld) DeleteAccount(ctx context.Context, namespace, name string) error {
	err := w.api.CoreV1().ServiceAccounts(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err == nil {
		w.forget("account", namespace, name)
	}
	return err
}

// Token implements [conformance.World].
func (w *clusterWorld) Token(ctx context.Context, r conformance.TokenRequest) (string, error) {
	spec := authenticationv1.TokenRequestSpec{Audiences: r.Audiences}
	if r.BoundKind != "" {
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: r.BoundKind, Name: r.BoundName, UID: types.UID(r.BoundUID)}
	}
	if r.BoundKind == "Secret" {
		if err := w.secret(ctx, r.Namespace, r.BoundName); err != nil {
			return "", err
		}
	}
	if r.Life > 0 {
		seconds := int64(r.Life / time.Second)
		spec.ExpirationSeconds = &seconds
	}
	made, err := w.api.CoreV1().ServiceAccounts(r.Namespace).CreateToken(ctx, r.Account, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

func (w *clusterWorld) secret(ctx context.Context, namespace, name string) error {
	secrets := w.api.CoreV1().Secrets(namespace)
	_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: w.meta(namespace, name)}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	w.remember(madeObject{"secret", namespace, name, secrets.Delete})
	return nil
}

// Close implements [conformance.World]. What was made last goes first; one
// object that cannot be removed keeps no other from it.
func (w *clusterWorld) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs error
	now := int64(0)
	for _, o := range slices.Backward(w.made) {
		if err := o.remove(ctx, o.name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
			errs = errors.Join(errs, fmt.Errorf("removing %s %s/%s: %w", o.kind, o.namespace, o.name, err))
		}
	}
	w.made = nil
	return errs
}

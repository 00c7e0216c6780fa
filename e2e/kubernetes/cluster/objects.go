package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Pod is what a test says of a pod. The rest is made up.
type Pod struct {
	Namespace, Name string
	ServiceAccount  string
	Node            string          // empty for a pod that is not scheduled
	Phase           corev1.PodPhase // empty for Pending
	HostNetwork     bool
	Annotations     map[string]string
	Finalizers      []string // keep the pod after it is deleted
}

// Namespace makes namespaces that do not exist yet.
func (s *APIServer) Namespace(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := s.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// Node makes a node.
func (s *APIServer) Node(t testing.TB, name string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made, err := s.client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// ServiceAccount makes a service account, and its namespace.
func (s *APIServer) ServiceAccount(t testing.TB, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	s.Namespace(t, namespace)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	made, err := s.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), sa, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Secret makes an empty Secret.
func (s *APIServer) Secret(t testing.TB, namespace, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	made, err := s.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Pod makes a pod, and its namespace. A node that it names need not exist.
func (s *APIServer) Pod(t testing.TB, p Pod) *corev1.Pod {
	t.Helper()
	s.Namespace(t, p.Namespace)
	made, err := s.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p.object(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Phase == "" {
		return made
	}
	return s.SetPhase(t, made, p.Phase)
}

func (p Pod) object() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name,
			Annotations: p.Annotations, Finalizers: p.Finalizers,
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: p.ServiceAccount,
			NodeName:           p.Node,
			HostNetwork:        p.HostNetwork,
			Containers:         []corev1.Container{{Name: "main", Image: "none.test/none"}},
		},
	}
}

// Bind schedules a pod as a scheduler does.
func (s *APIServer) Bind(t testing.TB, p *corev1.Pod, node string) {
	t.Helper()
	b := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := s.client.CoreV1().Pods(p.Namespace).Bind(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// SetPhase does what a kubelet does when a pod goes on.
func (s *APIServer) SetPhase(t testing.TB, p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	made, err := s.client.CoreV1().Pods(p.Namespace).Patch(
		t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Touch changes nothing that matters in a node, its pods and their accounts, so
// that whoever watches these hears of a new version.
func (s *APIServer) Touch(t testing.TB, node string, pods ...*corev1.Pod) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":"%d"}}}`, s.touched.Add(1))
	core, kind := s.client.CoreV1(), types.MergePatchType
	_, err := core.Nodes().Patch(t.Context(), node, kind, patch, metav1.PatchOptions{})
	for _, p := range pods {
		_, podErr := core.Pods(p.Namespace).Patch(t.Context(), p.Name, kind, patch, metav1.PatchOptions{})
		_, accountErr := core.ServiceAccounts(p.Namespace).Patch(t.Context(), p.Spec.ServiceAccountName, kind, patch, metav1.PatchOptions{})
		err = errors.Join(err, podErr, accountErr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// HasServiceAccount reports whether there is such an account.
func (s *APIServer) HasServiceAccount(t testing.TB, namespace, name string) bool {
	t.Helper()
	_, err := s.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// HasNode reports whether there is such a node.
func (s *APIServer) HasNode(t testing.TB, name string) bool {
	t.Helper()
	_, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// DeletePod deletes a pod. With a grace period of 0 it is gone at once; with
// any other, whole seconds, it is terminating until it is deleted again, since
// there is no kubelet to say that it has ended.
func (s *APIServer) DeletePod(t testing.TB, p *corev1.Pod, grace time.Duration) {
	t.Helper()
	seconds := int64(grace / time.Second)
	err := s.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &seconds,
		Preconditions:      &metav1.Preconditions{UID: &p.UID},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// DeleteNode deletes a node, and leaves its pods.
func (s *APIServer) DeleteNode(t testing.TB, name string) {
	t.Helper()
	if err := s.client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// DeleteServiceAccount deletes an account, and leaves its pods.
func (s *APIServer) DeleteServiceAccount(t testing.TB, namespace, name string) {
	t.Helper()
	err := s.client.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Clear deletes every pod, node, service account and Secret, so that the next
// test finds an empty cluster. Namespaces stay: nobody here could end them.
func (s *APIServer) Clear(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := errors.Join(s.clearNamespaces(ctx), s.clearNodes(ctx)); err != nil {
		t.Errorf("clearing the cluster: %v", err)
	}
}

func (s *APIServer) clearNodes(ctx context.Context) error {
	return s.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func (s *APIServer) clearNamespaces(ctx context.Context) error {
	all, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs error
	now := int64(0)
	for _, ns := range all.Items {
		core := s.client.CoreV1()
		errs = errors.Join(errs,
			s.dropFinalizers(ctx, ns.Name),
			core.Pods(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}),
			core.ServiceAccounts(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			core.Secrets(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
		)
	}
	return errs
}

func (s *APIServer) dropFinalizers(ctx context.Context, namespace string) error {
	pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if len(p.Finalizers) == 0 {
			continue
		}
		_, err := s.client.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

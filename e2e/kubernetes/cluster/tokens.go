package cluster

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A TokenOption says what a token is like.
type TokenOption func(*authenticationv1.TokenRequestSpec)

// BoundToPod binds the token to the pod, as kubelets do.
func BoundToPod(p *corev1.Pod) TokenOption { return bound("Pod", p.Name, p) }

// BoundToSecret binds the token to the Secret.
func BoundToSecret(s *corev1.Secret) TokenOption { return bound("Secret", s.Name, s) }

// BoundToNode binds the token to the node, and to no pod on it.
func BoundToNode(n *corev1.Node) TokenOption { return bound("Node", n.Name, n) }

func bound(kind, name string, o metav1.Object) TokenOption {
	return func(spec *authenticationv1.TokenRequestSpec) {
		spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: kind, Name: name, UID: o.GetUID(),
		}
	}
}

// Audience is whom the token is meant for: istio-ca if this option is absent,
// the API server if it names nobody.
func Audience(audiences ...string) TokenOption {
	return func(spec *authenticationv1.TokenRequestSpec) { spec.Audiences = audiences }
}

// Life is how long the token is valid: 12 hours, as for node proxies, if this
// option is absent.
func Life(d time.Duration) TokenOption {
	return func(spec *authenticationv1.TokenRequestSpec) {
		seconds := int64(d / time.Second)
		spec.ExpirationSeconds = &seconds
	}
}

// Token asks the API server for a token of the service account. It is bound to
// nothing unless an option says so.
func (s *APIServer) Token(t testing.TB, namespace, account string, options ...TokenOption) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{}
	for _, o := range append([]TokenOption{Audience("istio-ca"), Life(12 * time.Hour)}, options...) {
		o(&r.Spec)
	}
	made, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(
		t.Context(), account, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("asking for a token of %s/%s: %v", namespace, account, err)
	}
	return made.Status.Token
}

// PodToken asks for the token that the pod's node agent or application would
// find mounted.
func (s *APIServer) PodToken(t testing.TB, p *corev1.Pod) string {
	t.Helper()
	return s.Token(t, p.Namespace, p.Spec.ServiceAccountName, BoundToPod(p))
}

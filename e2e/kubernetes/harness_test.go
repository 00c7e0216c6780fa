package kubernetes_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// The tests in this file are about the cluster alone: that what the others rest
// on is as they believe.

// claims are the ones of a bound token, as decoded from JSON.
type claims = map[string]any

func TestTokenClaims(t *testing.T) {
	c := begin(t)
	node, account := c.Node(t, "n1"), c.ServiceAccount(t, "shop", "cart")
	pod := c.Pod(t, cluster.Pod{Namespace: "shop", Name: "cart-1", ServiceAccount: "cart", Node: "n1", Phase: corev1.PodRunning})
	secret := c.Secret(t, "shop", "s")

	object := func(name string, o metav1.Object) claims {
		return claims{"name": name, "uid": string(o.GetUID())}
	}
	for _, tt := range []struct {
		name    string
		options []cluster.TokenOption
		want    claims // under kubernetes.io, beside the account and namespace
	}{
		{"pod", []cluster.TokenOption{cluster.BoundToPod(pod)}, claims{"pod": object("cart-1", pod), "node": object("n1", node)}},
		{"nothing", nil, claims{}},
		{"Secret", []cluster.TokenOption{cluster.BoundToSecret(secret)}, claims{"secret": object("s", secret)}},
		{"node", []cluster.TokenOption{cluster.BoundToNode(node)}, claims{"node": object("n1", node)}},
	} {
		t.Run("bound to "+tt.name, func(t *testing.T) {
			got := cluster.Claims(t, c.Token(t, "shop", "cart", tt.options...))
			if got["iss"] != cluster.DefaultIssuer || got["sub"] != "system:serviceaccount:shop:cart" || got["jti"] == "" {
				t.Errorf("claims %v", got)
			}
			if aud := got["aud"].([]any); !slices.Equal(aud, []any{"istio-ca"}) {
				t.Errorf("audience %v", aud)
			}
			if life := got["exp"].(float64) - got["iat"].(float64); life != (12 * time.Hour).Seconds() {
				t.Errorf("life of %v s", life)
			}
			tt.want["namespace"], tt.want["serviceaccount"] = "shop", object("cart", account)
			if diff := cmp.Diff(tt.want, got["kubernetes.io"].(claims)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPhaseAndDeletion(t *testing.T) {
	c := begin(t)
	pod := c.Pod(t, cluster.Pod{Namespace: "shop", Name: "a", ServiceAccount: "cart", Node: "n1", Phase: corev1.PodSucceeded})
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %q", pod.Status.Phase)
	}
	pod = c.Pod(t, cluster.Pod{Namespace: "shop", Name: "b", ServiceAccount: "cart"})
	c.Bind(t, pod, "n1")
	c.DeletePod(t, pod, 20*time.Second)
	got, err := c.Client().CoreV1().Pods("shop").Get(t.Context(), "b", metav1.GetOptions{})
	switch {
	case err != nil:
		t.Error(err)
	case got.Spec.NodeName != "n1" || got.DeletionTimestamp == nil || *got.DeletionGracePeriodSeconds != 20:
		t.Errorf("on node %q, deleted %v", got.Spec.NodeName, got.DeletionTimestamp)
	}
	c.DeletePod(t, pod, 0)
	if _, err = c.Client().CoreV1().Pods("shop").Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted pod: %v", err)
	}
}

func TestAccountHasItsPermissionsOnly(t *testing.T) {
	c := begin(t)
	read := []string{"get", "list", "watch"}
	a := c.Account(t, "system", "reader", cluster.Permissions{
		Cluster:    []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read}},
		Namespaced: map[string][]rbacv1.PolicyRule{"system": {{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: read}}},
	})
	client := clientOf(t, a.Kubeconfig)
	list := func(what string, err error, allowed bool) {
		t.Helper()
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("listing %s: %v", what, err)
		}
	}
	_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	list("pods", err, true)
	_, err = client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{})
	list("Secrets in its namespace", err, true)
	_, err = client.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{})
	list("Secrets in another", err, false)
	_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	list("nodes", err, false)
	withheld := func() {
		t.Helper()
		for _, path := range []string{"/openid/v1/jwks", "/.well-known/openid-configuration"} {
			if _, err := client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context()); !apierrors.IsForbidden(err) {
				t.Errorf("reading %s: %v", path, err)
			}
		}
	}
	withheld()
	c.Restart(t, c.Tokens()) // a server that starts gives back what was taken from its own roles
	withheld()
}

func TestSigningKeysRotate(t *testing.T) {
	c := begin(t)
	c.ServiceAccount(t, "shop", "cart")
	first := c.Tokens()
	key, err := cluster.NewRSAKey()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Restart(t, first) })
	before := c.Token(t, "shop", "cart")
	if err := review(t, c.APIServer, before); err != nil {
		t.Fatal(err)
	}
	c.Restart(t, cluster.Tokens{Signing: key, Also: []cluster.TokenKey{first.Signing}, Issuers: []string{"https://new.test", cluster.DefaultIssuer}})
	between := c.Token(t, "shop", "cart")
	if iss, alg := cluster.Claims(t, between)["iss"], cluster.Header(t, between)["alg"]; iss != "https://new.test" || alg != "RS256" {
		t.Errorf("a token of issuer %v, signed with %v", iss, alg)
	}
	for _, token := range []string{before, between} {
		if err := review(t, c.APIServer, token); err != nil {
			t.Errorf("with both keys and issuers: %v", err)
		}
	}
	forged := cluster.Claims(t, between)
	forged["exp"] = forged["exp"].(float64) + 3600
	if err := review(t, c.APIServer, key.Sign(t, forged)); err != nil {
		t.Errorf("a token that the test signed: %v", err)
	}
	c.Restart(t, cluster.Tokens{Signing: key})
	if err := review(t, c.APIServer, before); err == nil {
		t.Error("a token of the key that is gone is accepted")
	}
	if err := review(t, c.APIServer, between); err == nil {
		t.Error("a token of the issuer that is gone is accepted")
	}
}

func TestFrozenEtcd(t *testing.T) {
	c := begin(t)
	pods := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	if err := pods(); err != nil {
		t.Fatal(err)
	}
	thaw := c.FreezeEtcd(t)
	if err := pods(); err == nil {
		t.Error("a consistent list is answered while etcd is frozen")
	}
	if err := c.Live(t.Context()); err != nil {
		t.Errorf("the API server does not live on: %v", err)
	}
	thaw()
	cluster.Eventually(t, 30*time.Second, "the API server is ready again", c.Ready)
	if err := pods(); err != nil {
		t.Error(err)
	}
}

func TestSecondAPIServer(t *testing.T) {
	c := begin(t)
	second, link := c.LinkedAPIServer(t)
	pod := c.Pod(t, cluster.Pod{Namespace: "shop", Name: "cart-1", ServiceAccount: "cart", Node: "n1"})
	c.ServiceAccount(t, "shop", "cart")
	if err := review(t, second, c.PodToken(t, pod)); err != nil {
		t.Errorf("the second server refuses a token of the first: %v", err)
	}
	seen := func(ctx context.Context) error {
		_, err := second.Client().CoreV1().Pods("shop").Get(ctx, "cart-1", metav1.GetOptions{})
		return err
	}
	if err := seen(t.Context()); err != nil {
		t.Errorf("the second server: %v", err)
	}
	link.Hold(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := seen(ctx); err == nil {
		t.Error("the second server reads from etcd, although it is cut off")
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Errorf("the first server is cut off as well: %v", err)
	}
	link.Release()
	cluster.Eventually(t, 30*time.Second, "the second server reads again", seen)
}

// review asks an API server whether it accepts a token for istio-ca.
func review(t *testing.T, s *cluster.APIServer, token string) error {
	t.Helper()
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{"istio-ca"}}}
	got, err := s.Client().AuthenticationV1().TokenReviews().Create(t.Context(), r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Status.Authenticated {
		return refused(got.Status.Error)
	}
	return nil
}

type refused string

func (r refused) Error() string { return "refused: " + string(r) }

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	if _, err := os.Stat(kubeconfig); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

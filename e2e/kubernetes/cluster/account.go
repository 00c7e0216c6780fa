package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Permissions are what an account may do: everywhere, and in single namespaces.
type Permissions struct {
	Cluster    []rbacv1.PolicyRule
	Namespaced map[string][]rbacv1.PolicyRule // by namespace
}

// An Account is a service account with exactly the permissions it was given,
// and a kubeconfig to act as it.
type Account struct {
	Namespace, Name string
	Kubeconfig      string // a file
	Token           string // a file, which Kubeconfig names

	server *APIServer
}

// Account makes a service account with permissions, and returns once the API
// server grants them.
func (s *APIServer) Account(t testing.TB, namespace, name string, may Permissions) *Account {
	t.Helper()
	dir := t.TempDir()
	a := &Account{
		Namespace: namespace, Name: name,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		server:     s,
		Token:      filepath.Join(dir, "token"),
	}
	s.ServiceAccount(t, namespace, name)
	a.Renew(t)
	if err := s.writeKubeconfig(a.Kubeconfig, &clientcmdapi.AuthInfo{TokenFile: a.Token}); err != nil {
		t.Fatal(err)
	}
	s.Allow(t, namespace, name, may)
	return a
}

// Renew writes a new token for the account where its kubeconfig expects it, as
// a kubelet would. The token is good for a day.
func (a *Account) Renew(t testing.TB) {
	t.Helper()
	token := a.server.Token(t, a.Namespace, a.Name, Audience(), Life(24*time.Hour))
	if err := os.WriteFile(a.Token+".new", []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(a.Token+".new", a.Token); err != nil {
		t.Fatal(err)
	}
}

// Kubeconfig writes a file for a client that presents the token, and returns
// its name.
func (s *APIServer) Kubeconfig(t testing.TB, token string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.writeKubeconfig(file, &clientcmdapi.AuthInfo{Token: token}); err != nil {
		t.Fatal(err)
	}
	return file
}

// AdminKubeconfig writes a file for a client that may do everything.
func (s *APIServer) AdminKubeconfig(t testing.TB) string {
	t.Helper()
	return s.Kubeconfig(t, adminToken)
}

func (s *APIServer) writeKubeconfig(file string, who *clientcmdapi.AuthInfo) error {
	const name = "tests"
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + s.addr,
		CertificateAuthorityData: s.cluster.ca.PEM(),
	}
	c.AuthInfos[name] = who
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return clientcmd.WriteToFile(*c, file)
}

// Allow gives an account these permissions until the test ends, and returns
// once the API server grants them. What it may do otherwise is what every user
// may, which is to ask what the API is like and what itself may do.
func (s *APIServer) Allow(t testing.TB, namespace, name string, may Permissions) {
	t.Helper()
	to := subject{namespace, name}
	if len(may.Cluster) > 0 {
		s.allowEverywhere(t, to, may.Cluster)
	}
	for _, in := range slices.Sorted(maps.Keys(may.Namespaced)) {
		s.Namespace(t, in)
		s.allowIn(t, to, in, may.Namespaced[in])
	}
	Eventually(t, 30*time.Second, "the permissions are in force", func(ctx context.Context) error {
		errs := s.mayAll(ctx, to, "", may.Cluster)
		for in, rules := range may.Namespaced {
			errs = errors.Join(errs, s.mayAll(ctx, to, in, rules))
		}
		return errs
	})
}

// withholdKeys takes from service accounts what Kubernetes lets all of them
// read, the token keys and the discovery document, so that none has a permission
// that a test has not given it. Servers that start later leave it so.
func (s *APIServer) withholdKeys(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"false"}},"subjects":null}`, rbacv1.AutoUpdateAnnotationKey)
	_, err := s.client.RbacV1().ClusterRoleBindings().Patch(
		ctx, "system:service-account-issuer-discovery", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("withholding the token keys from service accounts: %w", err)
	}
	return s.process.Until(ctx, 30*time.Second, "service accounts may not read the token keys", func(ctx context.Context) error {
		got, err := s.may(ctx, anybody(), "", rbacv1.PolicyRule{
			NonResourceURLs: []string{"/openid/v1/jwks"}, Verbs: []string{"get"},
		})
		if err == nil && got.Allowed {
			err = errors.New("they may: " + got.Reason)
		}
		return err
	})
}

// anybody is a service account to whom nobody has given anything.
func anybody() subject { return subject{"default", "anybody"} }

// A subject is a service account whom a role is bound to.
type subject struct{ namespace, name string }

func (to subject) user() string { return "system:serviceaccount:" + to.namespace + ":" + to.name }

func (to subject) role() string { return "tests:" + to.namespace + ":" + to.name }

func (to subject) rbac() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: to.namespace, Name: to.name}}
}

func (s *APIServer) allowEverywhere(t testing.TB, to subject, rules []rbacv1.PolicyRule) {
	t.Helper()
	rbac := s.client.RbacV1()
	meta := metav1.ObjectMeta{Name: to.role()}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.atEnd(t, func(ctx context.Context) error {
		return rbac.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   to.rbac(),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.atEnd(t, func(ctx context.Context) error {
		return rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
}

func (s *APIServer) allowIn(t testing.TB, to subject, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	rbac := s.client.RbacV1()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: to.role()}
	_, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.atEnd(t, func(ctx context.Context) error {
		return rbac.Roles(namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   to.rbac(),
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.atEnd(t, func(ctx context.Context) error {
		return rbac.RoleBindings(namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
}

// atEnd undoes something when the test ends. That it is gone already is fine.
func (s *APIServer) atEnd(t testing.TB, undo func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := undo(ctx); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// mayAll says which of the rules is not granted.
func (s *APIServer) mayAll(ctx context.Context, to subject, namespace string, rules []rbacv1.PolicyRule) error {
	var errs error
	for _, r := range rules {
		errs = errors.Join(errs, s.mayOne(ctx, to, namespace, r))
	}
	return errs
}

// mayOne says why the rule is not granted.
func (s *APIServer) mayOne(ctx context.Context, to subject, namespace string, r rbacv1.PolicyRule) error {
	got, err := s.may(ctx, to, namespace, r)
	if err == nil && !got.Allowed {
		err = fmt.Errorf("%s may not yet %v: %s", to.user(), r, got.Reason)
	}
	return err
}

// may asks about the first of everything that the rule lists.
func (s *APIServer) may(ctx context.Context, to subject, namespace string, r rbacv1.PolicyRule) (authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   to.user(),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + to.namespace, "system:authenticated"},
	}}
	if len(r.NonResourceURLs) > 0 {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Path: r.NonResourceURLs[0], Verb: r.Verbs[0],
		}
	} else {
		review.Spec.ResourceAttributes = attributes(namespace, r)
	}
	got, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return got.Status, nil
}

func attributes(namespace string, r rbacv1.PolicyRule) *authorizationv1.ResourceAttributes {
	resource, sub, _ := strings.Cut(r.Resources[0], "/")
	a := &authorizationv1.ResourceAttributes{
		Namespace: namespace,
		Verb:      r.Verbs[0],
		Group:     r.APIGroups[0], Resource: resource, Subresource: sub,
	}
	if len(r.ResourceNames) > 0 {
		a.Name = r.ResourceNames[0]
	}
	return a
}

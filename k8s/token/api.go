package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// What is read of an API server (kubernetes, pkg/serviceaccount,
// openidmetadata.go).
const (
	keysPath      = "/openid/v1/jwks"
	discoveryPath = "/.well-known/openid-configuration"
)

// Permissions returns what this package needs to be allowed, with or without
// reviews. Kubernetes lets every service account read the two paths, unless
// somebody took that away.
func Permissions(reviews bool) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{{
		NonResourceURLs: []string{discoveryPath, keysPath},
		Verbs:           []string{"get"},
	}}
	if reviews {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{authenticationv1.GroupName},
			Resources: []string{"tokenreviews"},
			Verbs:     []string{"create"},
		})
	}
	return rules
}

// KeysFrom returns a [Config].FetchKeys that reads the key set of the API server
// behind client, with the client's credentials and trust. Where a discovery
// document says that keys are is never looked at: it may be anywhere.
func KeysFrom(client rest.Interface) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		return get(ctx, client, keysPath, "application/jwk-set+json")
	}
}

// ReviewsFrom returns a [Config].Review that creates TokenReviews.
func ReviewsFrom(client authenticationclient.TokenReviewsGetter) func(context.Context, string, []string) (authenticationv1.TokenReviewStatus, error) {
	return func(ctx context.Context, token string, audiences []string) (authenticationv1.TokenReviewStatus, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences}}
		answer, err := client.TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.TokenReviewStatus{}, err
		}
		return answer.Status, nil
	}
}

// DiscoverIssuer returns the issuer in the discovery document of the API server
// behind client: the first of those that it accepts.
func DiscoverIssuer(ctx context.Context, client rest.Interface) (string, error) {
	data, err := get(ctx, client, discoveryPath, "application/json")
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", discoveryPath, err)
	}
	o := parseObject(data)
	issuer := o.text("issuer")
	if err := o.err(); err != nil {
		return "", fmt.Errorf("reading %s: %w", discoveryPath, err)
	}
	return issuer, nil
}

// IssuerOf returns the iss claim of a token that we were given ourselves, such
// as the one that is mounted in our pod. The token is not verified.
func IssuerOf(token string) (string, error) {
	issuer, err := claimOf(token, "iss")
	if err != nil {
		return "", fmt.Errorf("reading the issuer of a token: %w", err)
	}
	return issuer, nil
}

// SubjectOf returns the sub claim of a token that we were given ourselves, as
// [IssuerOf] does the issuer.
func SubjectOf(token string) (string, error) {
	subject, err := claimOf(token, "sub")
	if err != nil {
		return "", fmt.Errorf("reading the subject of a token: %w", err)
	}
	return subject, nil
}

// claimOf returns a claim that is a string, and there.
func claimOf(token, name string) (string, error) {
	_, payload, _, err := segments(token)
	if err != nil {
		return "", err
	}
	data, err := decode(payload)
	if err != nil {
		return "", err
	}
	o := parseObject(data)
	claim := o.text(name)
	return claim, o.err()
}

// next says what an operator can do about a key set that could not be read.
func next(err error) string {
	if !apierrors.IsForbidden(err) {
		return "it is tried again; if it lasts, check that the API server can be reached from here"
	}
	user := "USER"
	if _, rest, ok := strings.Cut(err.Error(), `User "`); ok {
		user, _, _ = strings.Cut(rest, `"`)
	}
	return "apply the ClusterRole and its binding in docs/running.md; whether it is allowed then says: kubectl auth can-i get " + keysPath + " --as=" + user
}

// get reads a path of bounded size. The API server answers only requests that
// accept the one type which the path has.
func get(ctx context.Context, client rest.Interface, path, accept string) ([]byte, error) {
	body, err := client.Get().AbsPath(path).SetHeader("Accept", accept).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(body, maxKeySet+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeySet {
		return nil, errors.New("the answer is too large")
	}
	return data, nil
}

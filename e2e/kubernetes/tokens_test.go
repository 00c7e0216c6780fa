package kubernetes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// Which tokens are worth nothing, whoever signed them. The API server signs
// some of them for everybody who may ask; the others the test signs with the
// API server's own key, which nobody has.
func TestTokensThatAreRefused(t *testing.T) {
	c := begin(t)
	a := serve(t, c.APIServer, nil)
	node := c.Node(t, "n1")
	c.Node(t, "n2")
	c.ServiceAccount(t, "istio-system", "ztunnel")
	pod := c.Pod(t, cluster.Pod{Namespace: "istio-system", Name: "zt-1", ServiceAccount: "ztunnel", Node: "n1", Phase: corev1.PodRunning})
	good := c.PodToken(t, pod)
	a.must(t, issued, good, "")

	stranger, err := cluster.NewECDSAKey()
	if err != nil {
		t.Fatal(err)
	}
	sign := c.Tokens().Signing
	of := func(options ...cluster.TokenOption) string { return c.Token(t, "istio-system", "ztunnel", options...) }
	bound := cluster.BoundToPod(pod)
	now := float64(time.Now().Unix())
	for _, tt := range []struct {
		name, token, want string
	}{
		{"bound to nothing", of(), "not-pod-bound"},
		{"bound to a Secret", of(cluster.BoundToSecret(c.Secret(t, "istio-system", "s"))), "not-pod-bound"},
		{"bound to a node", of(cluster.BoundToNode(node)), "not-pod-bound"},
		{"for the API server", of(bound, cluster.Audience()), "wrong-audience"},
		{"for somebody else", of(bound, cluster.Audience("vault")), "wrong-audience"},
		{"made to last", of(bound, cluster.Life(30*24*time.Hour)), "bad-token"},
		{"expired", sign.Sign(t, changed(t, good, claims{"iat": now - 7200, "nbf": now - 7200, "exp": now - 1})), "expired-token"},
		{"from the future", sign.Sign(t, changed(t, good, claims{"iat": now + 300, "nbf": now + 300, "exp": now + 7200})), "early-token"},
		{"of another issuer", sign.Sign(t, changed(t, good, claims{"iss": "https://kubernetes.example"})), "unknown-issuer"},
		{"without an expiry", sign.Sign(t, changed(t, good, claims{"exp": nil})), "bad-token"},
		{"of another account than it says", sign.Sign(t, changed(t, good, claims{"sub": "system:serviceaccount:shop:cart"})), "bad-token"},
		{"of another node", sign.Sign(t, onNode(t, good, claims{"name": "n2", "uid": string(node.UID)})), "node-mismatch"},
		{"of another node by UID", sign.Sign(t, onNode(t, good, claims{"name": "n1", "uid": string(pod.UID)})), "node-mismatch"},
		{"of a node without UID", sign.Sign(t, onNode(t, good, claims{"name": "n1"})), "no-node"},
		{"signed by somebody", stranger.Sign(t, changed(t, good, nil)), "review-refused"},
		{"signed by somebody in another's name", sign.Forge(t, stranger, changed(t, good, nil)), "bad-signature"},
		{"not a token", "abc", "bad-token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a.must(t, tt.want, tt.token, id("istio-system", "ztunnel"))
			a.must(t, tt.want, tt.token, "")
			a.nothingSecret(t, tt.token)
		})
	}
	t.Run("none", func(t *testing.T) {
		if got := a.ask(t, "", ""); got.Code != codes.Unauthenticated {
			t.Errorf("got %v: %s", got.Code, got.Message)
		}
	})
	a.must(t, issued, good, "")
	a.nothingSecret(t, good)
}

// changed returns the claims of a token with some of them replaced, and those
// that are nil removed.
func changed(t *testing.T, token string, by claims) claims {
	t.Helper()
	all := cluster.Claims(t, token)
	for name, v := range by {
		if all[name] = v; v == nil {
			delete(all, name)
		}
	}
	return all
}

// onNode returns the claims of a token with the node replaced.
func onNode(t *testing.T, token string, node claims) claims {
	t.Helper()
	all := cluster.Claims(t, token)
	all["kubernetes.io"].(claims)["node"] = node
	return all
}

// The API server's keys are changed as operators do it: first both keys are
// accepted and the new one signs, then, once everybody has a token of the new
// one, that is the only one left. Then it is given another issuer in the same
// manner.
func TestSigningKeyAndIssuerChange(t *testing.T) {
	const second = "https://second.test"
	c := begin(t)
	both := options{"issuers": []string{cluster.DefaultIssuer, second}}
	a := serve(t, c.APIServer, both)
	pod := agentOn(t, c.APIServer, "n1")
	first := c.Tokens()
	t.Cleanup(func() { c.Restart(t, first) })
	key, err := cluster.NewRSAKey()
	if err != nil {
		t.Fatal(err)
	}

	old := c.PodToken(t, pod)
	a.must(t, issued, old, "")
	c.Restart(t, cluster.Tokens{Signing: key, Also: []cluster.TokenKey{first.Signing}})
	between := c.PodToken(t, pod)
	a.must(t, issued, between, "") // at once: by a review, if the key is not known yet
	a.must(t, issued, old, "")

	// Bailiwick's own token has to be a new one too before the old key can go;
	// client-go would take up to a minute to read it, so another process does.
	a.account.Renew(t)
	a = serveAs(t, a.account, both)
	a.must(t, issued, old, "")
	c.Restart(t, cluster.Tokens{Signing: key})
	a.must(t, issued, between, "")
	forgets(t, a, old, between)

	c.Restart(t, cluster.Tokens{Signing: key, Issuers: []string{second, cluster.DefaultIssuer}})
	latest := c.PodToken(t, pod)
	if iss := cluster.Claims(t, latest)["iss"]; iss != second {
		t.Fatalf("a token of issuer %v", iss)
	}
	a.must(t, issued, latest, "")
	a.must(t, issued, between, "")

	// One that is not told of issuers accepts the one of its own token, which is
	// still the first, and the one that the API server names.
	b := serveAs(t, a.account, nil)
	b.must(t, issued, latest, "")
	b.must(t, issued, between, "")
	a.account.Renew(t)
	b = serveAs(t, a.account, nil)
	b.must(t, issued, latest, "")
	b.must(t, "unknown-issuer", between, "")
}

// forgets returns once a token of a key that the API server does not have any
// more is worth nothing. Bailiwick finds out when it reads the keys again, which
// a token with a key that it does not know makes it do.
func forgets(t *testing.T, a *authority, old, good string) {
	t.Helper()
	stranger, err := cluster.NewECDSAKey()
	if err != nil {
		t.Fatal(err)
	}
	unknown := stranger.Sign(t, cluster.Claims(t, good))
	cluster.Eventually(t, 30*time.Second, "the old key is worth nothing", func(context.Context) error {
		a.must(t, "review-refused", unknown, "")
		if a.must(t, issued, good, ""); t.Failed() {
			t.FailNow()
		}
		if got := a.ask(t, old, ""); got.word != "review-refused" {
			return fmt.Errorf("a token of the old key: %s", got.word)
		}
		return nil
	})
}

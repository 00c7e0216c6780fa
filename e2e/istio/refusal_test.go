package istio_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"istio.io/istio/pkg/security"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// once and retried are how often the agent's client sends a request before it
// gives up, which depends on the code of the answer alone.
const (
	once    = 1
	retried = 5
)

// What the client makes of our answers: a refusal is final, and costs one
// request; that we cannot tell is asked again soon.
func TestWhichAnswersAreRetried(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spoil  func(t *testing.T, m *mesh, o *security.Options)
		mend   func(t *testing.T, m *mesh, o *security.Options)
		answer bailiwick.Answer
		times  int
	}{
		{
			name:   "the pod is gone",
			spoil:  func(t *testing.T, m *mesh, _ *security.Options) { m.DeletePod(t, m.pod, 0); m.pod = nil },
			mend:   func(t *testing.T, m *mesh, _ *security.Options) { m.replacePod(t, "cart-2") },
			answer: bailiwick.Answer{Code: "Unauthenticated", Reason: "caller-gone"}, times: once,
		}, {
			name:   "the pod has finished",
			spoil:  func(t *testing.T, m *mesh, _ *security.Options) { m.SetPhase(t, m.pod, corev1.PodSucceeded) },
			mend:   func(t *testing.T, m *mesh, _ *security.Options) { m.replacePod(t, "cart-2") },
			answer: bailiwick.Answer{Code: "Unauthenticated", Reason: "caller-finished"}, times: once,
		}, {
			name: "the token is for somebody else",
			spoil: func(t *testing.T, m *mesh, _ *security.Options) {
				other := m.Token(t, namespace, account, cluster.BoundToPod(m.pod), cluster.Audience("vault"))
				write(t, m.token, []byte(other))
			},
			mend:   func(t *testing.T, m *mesh, _ *security.Options) { write(t, m.token, []byte(m.PodToken(t, m.pod))) },
			answer: bailiwick.Answer{Code: "Unauthenticated", Reason: "wrong-audience"}, times: once,
		}, {
			name:   "there is no token",
			spoil:  func(t *testing.T, m *mesh, _ *security.Options) { write(t, m.token, nil) },
			mend:   func(t *testing.T, m *mesh, _ *security.Options) { write(t, m.token, []byte(m.PodToken(t, m.pod))) },
			answer: bailiwick.Answer{Code: "Unauthenticated", Reason: "no-token"}, times: once,
		}, {
			name:   "the node was made anew",
			spoil:  func(t *testing.T, m *mesh, _ *security.Options) { m.DeleteNode(t, "n1"); m.Node(t, "n1") },
			mend:   func(t *testing.T, m *mesh, _ *security.Options) { m.replacePod(t, "cart-2") },
			answer: bailiwick.Answer{Code: "PermissionDenied", Reason: "node-mismatch"}, times: once,
		}, {
			name:   "the certificate is to live too short",
			spoil:  func(_ *testing.T, _ *mesh, o *security.Options) { o.SecretTTL = time.Second },
			mend:   func(_ *testing.T, _ *mesh, o *security.Options) { o.SecretTTL = time.Hour },
			answer: bailiwick.Answer{Code: "InvalidArgument", Reason: "bad-lifetime"}, times: once,
		}, {
			name:   "the trust domain is another",
			spoil:  func(_ *testing.T, _ *mesh, o *security.Options) { o.TrustDomain = "other.test" },
			mend:   func(_ *testing.T, _ *mesh, o *security.Options) { o.TrustDomain = trustDomain },
			answer: bailiwick.Answer{Code: "InvalidArgument", Reason: "csr-names-another"}, times: once,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := begin(t, quick)
			o := m.defaults(t)
			o.ECCSigAlg = "ECDSA"
			tt.spoil(t, m, o)
			a := m.refused(t, o, tt.answer, tt.times)
			tt.mend(t, m, o)
			a.fetch(t, m.roots)
		})
	}
}

// A request that is too large is refused by the transport, whose code for it is
// one that the client believes will pass. The agent never makes such a one.
func TestRequestThatIsTooLarge(t *testing.T) {
	m := begin(t, quick)
	a := m.agent(t, m.defaults(t))
	_, err := a.client.CSRSign(make([]byte, 100<<10), 3600)
	if err == nil || !strings.Contains(err.Error(), "ResourceExhausted") {
		t.Errorf("a CSR of 100 KiB: %v", err)
	}
	a.fetch(t, m.roots)
}

// While the API server cannot be reached for longer than what is known may be
// old, every answer is that we cannot tell. The agent keeps the certificate that
// it has, asks again and again, and has a new one as soon as we can tell.
func TestAPIServerInTrouble(t *testing.T) {
	m := begin(t, `{minLeafLife: 2s, maxStaleness: 8s, probeEvery: 1s, limits: {drainDelay: 1ms}}`)
	o := m.defaults(t)
	o.ECCSigAlg, o.SecretTTL = "ECDSA", time.Minute
	a := m.agent(t, o)
	held := a.fetch(t, m.roots)
	m.Touch(t, "n1", m.pod) // an idle watch would prove its age once in a minute or two
	thaw := m.FreezeEtcd(t)
	stale := bailiwick.Answer{Code: "Unavailable", Reason: "stale"}
	m.refused(t, o, stale, retried)
	a.pushed(t, time.Minute, security.WorkloadKeyCertResourceName)
	if _, err := a.GenerateSecret(security.WorkloadKeyCertResourceName); err == nil {
		t.Fatal("renewed, although nobody could tell")
	}
	thaw()
	cluster.Eventually(t, time.Minute, "the API server is ready again", m.Cluster.Ready)
	var renewed *security.SecretItem
	cluster.Eventually(t, time.Until(held.ExpireTime), "renewed before the certificate ends", func(context.Context) (err error) {
		m.Touch(t, "n1", m.pod)
		renewed, err = a.GenerateSecret(security.WorkloadKeyCertResourceName)
		return err
	})
	if !renewed.ExpireTime.After(held.ExpireTime) {
		t.Errorf("renewed until %v, after %v", renewed.ExpireTime, held.ExpireTime)
	}
}

// refused has agents ask until one is refused, which must be with this answer
// and this often, and returns that one. Until the server has heard of what was
// done to the cluster, agents have certificates.
func (m *mesh) refused(t *testing.T, o *security.Options, want bailiwick.Answer, times int) (a *agent) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the agent is refused", func(context.Context) error {
		a = m.agent(t, o)
		before := m.Answers(t)
		if _, err := a.GenerateSecret(security.WorkloadKeyCertResourceName); err == nil {
			a.close()
			return errors.New("it has a certificate")
		}
		got := m.Answers(t)
		maps.DeleteFunc(got, func(answer bailiwick.Answer, n int) bool { return n == before[answer] })
		for answer := range got {
			got[answer] -= before[answer]
		}
		if diff := cmp.Diff(map[bailiwick.Answer]int{want: times}, got); diff != "" {
			t.Fatalf("answers, and how often (-want +got):\n%s", diff)
		}
		return nil
	})
	return a
}

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/e2e/scenario"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestScenarios asks the server in process, over gRPC and TLS, with tokens that
// are verified.
func TestScenarios(t *testing.T) {
	all, err := scenario.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			w := newWorld(t, s)
			var token scenario.Token
			for _, step := range s.Steps {
				next, err := scenario.Play(w, step, token)
				if err != nil {
					t.Errorf("%s: %v", step.Case, err)
					continue
				}
				token = next
			}
		})
	}
}

// A world is a scenario's cluster in memory, with a server that listens.
type world struct {
	scenario.Memory
	signer  *signer
	client  *client
	metrics *prometheus.Registry

	mu  sync.Mutex
	inv authz.Inventory // of the objects as they are after the last step
}

func newWorld(t *testing.T, s scenario.Scenario) *world {
	t.Helper()
	w := &world{Memory: scenario.Memory{Now: time.Now()}, metrics: prometheus.NewRegistry()}
	var err error
	if w.signer, err = newSigner(); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{
		"nodeAgents": append([]string{}, s.Agents...), "protected": append([]string{}, s.Protected...), "evictedNodes": s.Evicted,
		"allowUnboundTokens": s.Unbound, "servingNames": []string{"localhost"}, "limits": map[string]string{"drainDelay": "1ns"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.serve(t, config)
	return w
}

// serve starts a server, and stops it when the test ends.
func (w *world) serve(t *testing.T, config []byte) {
	t.Helper()
	c, err := parseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := selfMade(time.Now(), c.profile())
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := token.New(token.Config{Issuers: []string{demoIssuer}, AllowUnbound: c.AllowUnboundTokens, FetchKeys: w.signer.keys})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	clock := func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.Now }
	s, err := newService(parts{
		config: c, policy: c.policy(w, authz.ServiceAccount{}, clock), authenticate: tokens.Verify, authority: authority,
		audit: slog.DiscardHandler, log: slog.New(slog.DiscardHandler),
		metrics: w.metrics, listener: listener, now: clock, ready: func() error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.run(ctx) }()
	roots := x509.NewCertPool()
	roots.AddCert(authority.Root())
	if w.client, err = dial(listener.Addr().String(), "localhost", roots); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.client.close() //nolint:errcheck // it is over
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Look and Confirm implement authz.Inventory, from the objects of the moment.
func (w *world) Look(now time.Time, q authz.Query) (authz.Facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inv.Look(now, q)
}

func (w *world) Confirm(ctx context.Context, q authz.Query, enough func(authz.Facts) bool) (authz.Facts, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inv.Confirm(ctx, q, enough)
}

func (w *world) Wait(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Memory.Wait(d)
}

func (w *world) Token(kind, name string) (scenario.Token, error) {
	t, err := w.Memory.Token(kind, name)
	if err != nil {
		return nil, err
	}
	namespace, account, _ := strings.Cut(t.Account, "/")
	text, err := w.signer.token(authz.Caller{
		ServiceAccount: authz.ServiceAccount{Namespace: namespace, Name: account}, ServiceAccountUID: t.AccountUID,
		Pod: t.Pod, PodUID: t.PodUID, Node: t.Node, NodeUID: t.NodeUID,
	}, token.DefaultAudience, time.Now(), time.Hour)
	return presented{text, "spiffe://cluster.local/ns/" + namespace + "/sa/" + account}, err
}

// A presented token is what the world's client sends.
type presented struct{ text, own string }

func (w *world) Ask(t scenario.Token, want string) (scenario.Answer, error) {
	if err := w.settle(); err != nil {
		return scenario.Answer{}, err
	}
	p := t.(presented)
	answer := scenario.Answer{Own: p.own}
	before, err := w.reasons()
	if err != nil {
		return answer, err
	}
	reply, err := w.client.request(context.Background(), ask{token: p.text, identity: want})
	if status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated {
		answer.Reason, err = w.newReason(before)
		return answer, err
	}
	if err != nil {
		return answer, err
	}
	answer.Granted = reply.identity()
	return answer, reply.verify(w.Now)
}

// reasons returns how often the server refused for each reason. Its audit log
// would not do: it leaves out repeats.
func (w *world) reasons() (map[string]float64, error) {
	families, err := w.metrics.Gather()
	if err != nil {
		return nil, err
	}
	count := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "bailiwick_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" {
					count[l.GetValue()] += m.GetCounter().GetValue()
				}
			}
		}
	}
	return count, nil
}

// newReason returns the reason that was counted since.
func (w *world) newReason(before map[string]float64) (string, error) {
	after, err := w.reasons()
	for reason, n := range after {
		if n > before[reason] {
			return reason, err
		}
	}
	return "", errors.Join(err, errors.New("no refusal was counted"))
}

// settle makes an inventory of the objects.
func (w *world) settle() error {
	var o objects
	for _, p := range w.Pods {
		o.pods = append(o.pods, podObject(p))
	}
	for _, n := range w.Nodes {
		o.nodes = append(o.nodes, metav1.ObjectMeta{Name: n.Name, UID: types.UID(n.UID)})
	}
	for _, a := range w.Accounts {
		namespace, name, _ := strings.Cut(a.Name, "/")
		o.accounts = append(o.accounts, metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(a.UID)})
	}
	inv, err := o.inventory(func() time.Time { return w.Now })
	if err != nil {
		return fmt.Errorf("making the inventory: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inv = inv
	return nil
}

func podObject(p scenario.MemoryPod) corev1.Pod {
	o := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: types.UID(p.UID)},
		Spec:       corev1.PodSpec{ServiceAccountName: p.Pod.Account, NodeName: p.Node, HostNetwork: p.HostNetwork},
		Status:     corev1.PodStatus{Phase: corev1.PodPhase(p.Phase)},
	}
	if p.Mirror {
		o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}
	if !p.Deleted.IsZero() {
		o.DeletionTimestamp = &metav1.Time{Time: p.Deleted}
	}
	return o
}

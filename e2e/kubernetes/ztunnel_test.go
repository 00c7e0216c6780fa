package kubernetes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

// A mesh is a node with an emulated ztunnel on it, and an authority that may be
// served anew at its address.
type mesh struct {
	*cluster.Cluster
	*bailiwick.Server

	options bailiwick.Options
	config  ztunnel.Config
}

// newMesh makes a mesh whose authority has this configuration.
func newMesh(t *testing.T, o options) *mesh {
	t.Helper()
	o["limits"] = map[string]any{"drainDelay": "1ms"} // nobody's endpoint is withdrawn here
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{Cluster: begin(t)}
	material, root := certs.Cacerts(t, time.Now())
	m.options = bailiwick.Options{
		Program: program(t), Config: string(config), Material: material,
		Kubeconfig: m.Account(t, "istio-system", "bailiwick", bailiwick.Permissions()).Kubeconfig,
	}
	m.Server = bailiwick.Serve(t, m.options)
	m.options.Listen = m.Addr // wherever it is served again
	m.config = ztunnel.Config{
		Address: m.Addr, AltHostname: "bailiwick.istio-system.svc", ClusterID: "Kubernetes", TTL: 24 * time.Hour,
		Roots:     pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}),
		TokenFile: filepath.Join(t.TempDir(), "istio-token"),
	}
	token := m.PodToken(t, agentOn(t, m.APIServer, "n1"))
	if err := os.WriteFile(m.config.TokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// A proxy is a running emulator of ztunnel. Every certificate that it gets is
// judged as peers do.
type proxy struct {
	*ztunnel.Manager

	prefetcher *ztunnel.Prefetcher
	stop       func()

	mu     sync.Mutex
	events []ztunnel.Event
}

// proxy starts a ztunnel, until the test ends or stops it.
func (m *mesh) proxy(t *testing.T, ttl time.Duration) *proxy {
	t.Helper()
	config := m.config
	config.TTL = ttl
	client, err := ztunnel.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &proxy{}
	p.Manager = ztunnel.NewManager(client.Fetch, func(e ztunnel.Event) { p.note(t, e) })
	p.prefetcher = ztunnel.NewPrefetcher(p.Manager)
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	running.Go(func() { p.prefetcher.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		client.Close() //nolint:errcheck // nobody uses it
	})
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) note(t *testing.T, e ztunnel.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	if e.Certificate == nil {
		return
	}
	if err := e.Certificate.Verify(e.Certificate.Roots, time.Now()); err != nil {
		t.Errorf("peers judge the certificate for %s: %v", e.Identity, err)
	}
}

// count returns how many fetches there were of the kind.
func (p *proxy) count(kind func(ztunnel.Event) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if kind(e) {
			n++
		}
	}
	return n
}

// until waits for so many fetches of the kind.
func (p *proxy) until(t *testing.T, within time.Duration, what string, n int, kind func(ztunnel.Event) bool) {
	t.Helper()
	cluster.Eventually(t, within, what, func(context.Context) error {
		if got := p.count(kind); got < n {
			return fmt.Errorf("there were %d, want %d", got, n)
		}
		return nil
	})
}

func succeeded(e ztunnel.Event) bool { return e.Failure == nil }
func failed(e ztunnel.Event) bool    { return e.Failure != nil }

// believed fails the test unless each two of the identities can talk to each
// other, with what the proxy has of them now.
func (p *proxy) believed(t *testing.T, ids []ztunnel.Identity) {
	t.Helper()
	have := p.Dump()
	for i, id := range ids {
		client, server := have[id].Certificate, have[ids[(i+1)%len(ids)]].Certificate
		if client == nil || server == nil {
			t.Fatalf("%s is %s: %v", id, have[id].State, have[id].Err)
		}
		if err := ztunnel.Handshake(t.Context(), client, server); err != nil {
			t.Errorf("%s connects to %s: %v", client.Identity, server.Identity, err)
		}
	}
}

// workloads makes so many pods on the node, and returns their identities.
func (m *mesh) workloads(t *testing.T, name string, n int) (ids []ztunnel.Identity) {
	t.Helper()
	for i := range n {
		account := fmt.Sprintf("%s-%d", name, i)
		workloadOn(t, m.APIServer, account, "n1")
		ids = append(ids, ofShop(account))
	}
	return ids
}

func ofShop(account string) ztunnel.Identity {
	return ztunnel.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: account}
}

func TestZtunnelPrefetchesAndConnects(t *testing.T) {
	m := newMesh(t, options{})
	ids := m.workloads(t, "app", 28)
	p := m.proxy(t, 24*time.Hour)
	for _, id := range ids[:20] {
		p.prefetcher.Prefetch(id)
	}
	var waiting sync.WaitGroup
	for _, id := range ids[20:] {
		waiting.Go(func() {
			if _, err := p.Get(t.Context(), id, ztunnel.RealTime); err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	p.until(t, 20*time.Second, "all are fetched", 28, succeeded)
	p.believed(t, ids)

	// What is forgotten is forgotten, and everything else is there.
	p.prefetcher.Forget(ids[0])
	cluster.Eventually(t, 5*time.Second, "an identity is forgotten", func(context.Context) error {
		if n := len(p.Dump()); n != 27 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	p.believed(t, ids[1:])

	// A ztunnel that starts anew knows nothing, and fetches all.
	p.stop()
	anew := m.proxy(t, 24*time.Hour)
	for _, id := range ids {
		anew.prefetcher.Prefetch(id)
	}
	anew.until(t, 20*time.Second, "all are fetched anew", 28, succeeded)
	anew.believed(t, ids)
	if n := p.count(failed) + anew.count(failed); n > 0 {
		t.Errorf("%d fetches have failed", n)
	}
}

// An identity that is not on the node is held for 3 s here, and is still held
// when all that were asked for after it are there.
func TestZtunnelDeniedIdentityDelaysNoOther(t *testing.T) {
	m := newMesh(t, options{"hold": "3s"})
	ids := m.workloads(t, "app", 20)
	p := m.proxy(t, 24*time.Hour)
	late := ofShop("late")
	denied := make(chan error, 1)
	go func() { _, err := p.Get(t.Context(), late, ztunnel.RealTime); denied <- err }()
	for _, id := range ids {
		if _, err := p.Get(t.Context(), id, ztunnel.RealTime); err != nil {
			t.Error(err)
		}
	}
	if state := p.Dump()[late].State; state != ztunnel.Initializing {
		t.Errorf("the others came after the one that is not there: it is %s", state)
	}
	if err := <-denied; status.Code(err) != codes.PermissionDenied {
		t.Errorf("what is not on the node: %v", err)
	}

	// The first attempt that begins once its pod is there succeeds.
	workloadOn(t, m.APIServer, "late", "n1")
	there := time.Now()
	p.until(t, 20*time.Second, "the pod's certificate is there", 1, func(e ztunnel.Event) bool { return e.Identity == late && succeeded(e) })
	if n := p.count(func(e ztunnel.Event) bool { return e.Identity == late && failed(e) && e.Began.After(there) }); n > 0 {
		t.Errorf("%d attempts failed that began after the pod was there", n)
	}
	p.believed(t, append(ids, late))
}

func TestZtunnelRenewsAtTheMidpoint(t *testing.T) {
	m := newMesh(t, options{"minLeafLife": "2s"})
	ids := m.workloads(t, "app", 20)
	p := m.proxy(t, 6*time.Second)
	for _, id := range ids {
		p.prefetcher.Prefetch(id)
	}
	renewed := func(e ztunnel.Event) bool { return e.Renewal && succeeded(e) }
	p.until(t, 20*time.Second, "each is fetched", len(ids), succeeded)
	for round := 1; round <= 2; round++ {
		p.until(t, 20*time.Second, "each is renewed", round*len(ids), renewed)
		p.believed(t, ids)
	}
	for _, id := range ids {
		if n := p.count(func(e ztunnel.Event) bool { return e.Identity == id && renewed(e) }); n < 1 {
			t.Errorf("%s was renewed %d times", id, n)
		}
	}
	if n := p.count(failed); n > 0 {
		t.Errorf("%d fetches have failed", n)
	}
	// A half of the life, and not the hot loop that a midpoint in the past is.
	if n := p.count(renewed); n > 4*len(ids) {
		t.Errorf("%d renewals in 2 rounds of %d", n, len(ids))
	}
}

func TestZtunnelOutlivesTheServer(t *testing.T) {
	m := newMesh(t, options{"minLeafLife": "2s"})
	ids := m.workloads(t, "app", 8)
	p := m.proxy(t, 14*time.Second)
	for _, id := range ids {
		p.prefetcher.Prefetch(id)
	}
	p.until(t, 10*time.Second, "each is fetched", len(ids), succeeded)
	m.Stop(t)
	kept := func(e ztunnel.Event) bool { return failed(e) && e.State == ztunnel.Available }
	p.until(t, 15*time.Second, "each could not be renewed and is kept", len(ids), kept)
	p.believed(t, ids)
	m.Server = bailiwick.Serve(t, m.options)
	p.until(t, 15*time.Second, "each is renewed", len(ids), func(e ztunnel.Event) bool { return e.Renewal && succeeded(e) })
	p.believed(t, ids)
	if n := p.count(func(e ztunnel.Event) bool { return e.State == ztunnel.Unavailable }); n > 0 {
		t.Errorf("%d times there was no certificate", n)
	}
}

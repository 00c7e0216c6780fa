package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/process"
)

// Tokens says how an API server signs service account tokens and which ones it
// accepts.
type Tokens struct {
	Signing TokenKey
	Also    []TokenKey // accepted as well
	Issuers []string   // all are accepted, the first one signs; none means [DefaultIssuer]
}

func (k Tokens) issuers() []string {
	if len(k.Issuers) == 0 {
		return []string{DefaultIssuer}
	}
	return k.Issuers
}

// An APIServer is a kube-apiserver that keeps its address when it is stopped
// and started again.
type APIServer struct {
	cluster *Cluster
	name    string
	etcd    string // address
	addr    string
	tokens  Tokens
	client  *kubernetes.Clientset
	process *process.Process // the running one, or the last one
	touched atomic.Int64
}

func (c *Cluster) newAPIServer(name, etcd string, tokens Tokens) (*APIServer, error) {
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	s := &APIServer{cluster: c, name: name, etcd: etcd, addr: process.Loopback(port), tokens: tokens}
	if s.client, err = kubernetes.NewForConfig(s.Admin()); err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", name, err)
	}
	if err := os.MkdirAll(s.dir(), 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for %s: %w", name, err)
	}
	c.servers = append(c.servers, s)
	return s, nil
}

func (s *APIServer) dir() string { return filepath.Join(s.cluster.dir, s.name) }

// Admin is the configuration of a client that may do everything, and as fast
// as it can.
func (s *APIServer) Admin() *rest.Config {
	return &rest.Config{
		Host:            "https://" + s.addr,
		BearerToken:     adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.cluster.caFile},
		QPS:             -1,
	}
}

// Client is a client that may do everything.
func (s *APIServer) Client() kubernetes.Interface { return s.client }

// Addr is the server's address.
func (s *APIServer) Addr() string { return s.addr }

// Tokens says how the server signs tokens.
func (s *APIServer) Tokens() Tokens { return s.tokens }

// Log is the file with the server's output.
func (s *APIServer) Log() string { return s.process.Log }

// start starts the server and returns once it is ready.
func (s *APIServer) start(ctx context.Context) error {
	args, err := s.args()
	if err != nil {
		return err
	}
	if s.process, err = process.Start(s.cluster.dir, s.name, s.cluster.binaries.APIServer, args...); err != nil {
		return err
	}
	return s.process.Until(ctx, 2*time.Minute, s.name+" is ready", s.Ready)
}

// Ready says why the server is not ready. One that says it is ready may not have
// read the roles and their bindings, and then grants nothing, not even what the
// role system:discovery gives to everybody.
func (s *APIServer) Ready(ctx context.Context) error {
	if _, err := s.client.RESTClient().Get().AbsPath("/readyz").Param("verbose", "true").DoRaw(ctx); err != nil {
		return err
	}
	return s.mayOne(ctx, anybody(), "", rbacv1.PolicyRule{
		NonResourceURLs: []string{"/api"}, Verbs: []string{"get"},
	})
}

// Live says why the server does not answer. It is asked for nothing that needs
// etcd.
func (s *APIServer) Live(ctx context.Context) error {
	_, err := s.client.RESTClient().Get().AbsPath("/livez/ping").DoRaw(ctx)
	return err
}

func (s *APIServer) args() ([]string, error) {
	_, port, _ := strings.Cut(s.addr, ":")
	args := []string{
		"--etcd-servers=http://" + s.etcd,
		"--secure-port=" + port,
		"--bind-address=127.0.0.1",
		"--cert-dir=" + s.dir(),
		"--tls-cert-file=" + filepath.Join(s.cluster.dir, "tls.crt"),
		"--tls-private-key-file=" + filepath.Join(s.cluster.dir, "tls.key"),
		"--token-auth-file=" + filepath.Join(s.cluster.dir, "tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--api-audiences=" + DefaultIssuer,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged",
		// There is no controller manager to make the default accounts, nobody
		// to use the endpoints of the API server, and no cloud.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
	}
	for _, issuer := range s.tokens.issuers() {
		args = append(args, "--service-account-issuer="+issuer)
	}
	return s.keyArgs(args)
}

// keyArgs writes the token keys to files and adds the arguments that name them.
func (s *APIServer) keyArgs(args []string) ([]string, error) {
	private, err := s.tokens.Signing.PrivatePEM()
	if err != nil {
		return nil, err
	}
	signing := filepath.Join(s.dir(), "token-signing.key")
	if err := os.WriteFile(signing, private, 0o600); err != nil {
		return nil, fmt.Errorf("writing a token key: %w", err)
	}
	args = append(args, "--service-account-signing-key-file="+signing)
	for i, k := range append([]TokenKey{s.tokens.Signing}, s.tokens.Also...) {
		public, err := k.publicPEM()
		if err != nil {
			return nil, err
		}
		file := filepath.Join(s.dir(), "token-"+strconv.Itoa(i)+".pub")
		if err := os.WriteFile(file, public, 0o600); err != nil {
			return nil, fmt.Errorf("writing a token key: %w", err)
		}
		args = append(args, "--service-account-key-file="+file)
	}
	return args, nil
}

// Stop ends the server. Its port stays unused.
func (s *APIServer) Stop(t testing.TB) {
	t.Helper()
	s.process.Kill()
}

// Start starts the server again, and returns once it is ready. It may be called
// when the test has ended, too.
func (s *APIServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// Restart ends the server and starts it with other token keys.
func (s *APIServer) Restart(t testing.TB, tokens Tokens) {
	t.Helper()
	s.Stop(t)
	s.tokens = tokens
	s.Start(t)
}

// Freeze stops the server in mid-air, until the test ends or thaws it.
func (s *APIServer) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	return freeze(t, s.process)
}

// Eventually asks again and again until there is no error, and fails the test
// if that takes too long.
func Eventually(t testing.TB, within time.Duration, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting %v until %s: %v", within, what, last)
		case <-tick.C:
		}
	}
}

// Package cluster runs a real Kubernetes control plane for tests: etcd and
// kube-apiserver, built from source, on free loopback ports, in one directory
// that is theirs. There is no controller manager, no scheduler and no kubelet:
// what exists, the tests have made, through the API.
//
//	c, err := cluster.Start(ctx, dir, os.Stderr)
//	defer c.Close()
//	node := c.Node(t, "n1")
//	pod := c.Pod(t, cluster.Pod{Namespace: "shop", Name: "cart-1", ServiceAccount: "cart", Node: "n1"})
//	token := c.Token(t, "shop", "cart", cluster.BoundToPod(pod))
//
// It knows nothing of the program under test.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/process"
)

// A Cluster is an etcd with one API server, and more of them on demand.
type Cluster struct {
	*APIServer // the first one

	dir      string
	binaries Binaries
	ca       *certs.Authority
	caFile   string
	etcd     *process.Process
	etcdAddr string
	servers  []*APIServer
	links    []*Link
}

// Start starts a cluster whose files and logs are in dir. Progress is written
// where it takes long, which is only when the programs are not built yet. A
// failed start leaves nothing running.
func Start(ctx context.Context, dir string, progress io.Writer) (*Cluster, error) {
	binaries, err := Build(ctx, progress)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, binaries: binaries, caFile: filepath.Join(dir, "ca.crt")}
	if err := c.start(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("starting a cluster: %w", err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.writeFiles(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	key, err := NewECDSAKey()
	if err != nil {
		return err
	}
	c.APIServer, err = c.newAPIServer("kube-apiserver", c.etcdAddr, Tokens{Signing: key})
	if err != nil {
		return err
	}
	if err := c.APIServer.start(ctx); err != nil {
		return err
	}
	return c.withholdKeys(ctx)
}

// Close ends everything at once.
func (c *Cluster) Close() {
	for _, s := range c.servers {
		if s.process != nil {
			s.process.Kill()
		}
	}
	if c.etcd != nil {
		c.etcd.Kill()
	}
	for _, l := range c.links {
		l.close()
	}
	c.binaries.Close()
}

// adminToken is the credential of a user who may do everything.
const adminToken = "token-of-the-admin-of-the-tests"

func (c *Cluster) writeFiles() error {
	now := time.Now() //nolint:forbidigo // what the certificates are for is now
	var err error
	if c.ca, err = certs.NewRoot(now, "cluster of the tests"); err != nil {
		return err
	}
	if err := c.ca.WriteServing(now, c.dir, []net.IP{net.IPv4(127, 0, 0, 1)}, "localhost"); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		c.caFile:                           c.ca.PEM(),
		filepath.Join(c.dir, "tokens.csv"): []byte(adminToken + ",admin,admin,system:masters\n"),
	} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return fmt.Errorf("writing a cluster's files: %w", err)
		}
	}
	return nil
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	client, err := process.FreePort()
	if err != nil {
		return err
	}
	peer, err := process.FreePort()
	if err != nil {
		return err
	}
	c.etcdAddr = process.Loopback(client)
	c.etcd, err = process.Start(c.dir, "etcd", c.binaries.Etcd,
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=http://"+c.etcdAddr,
		"--advertise-client-urls=http://"+c.etcdAddr,
		"--listen-peer-urls=http://"+process.Loopback(peer),
		"--initial-advertise-peer-urls=http://"+process.Loopback(peer),
		"--initial-cluster=default=http://"+process.Loopback(peer),
		"--unsafe-no-fsync",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	return c.etcd.Until(ctx, time.Minute, "etcd is healthy", func(ctx context.Context) error {
		return get(ctx, http.DefaultClient, "http://"+c.etcdAddr+"/health")
	})
}

// FreezeEtcd stops etcd in mid-air, until the test ends or thaws it: its
// connections stay open and nothing answers on them. The API server lives on.
func (c *Cluster) FreezeEtcd(t testing.TB) (thaw func()) {
	t.Helper()
	return freeze(t, c.etcd)
}

// EtcdPID is the number of etcd's process, for who freezes it with SIGSTOP. When
// the test ends it goes on.
func (c *Cluster) EtcdPID(t testing.TB) int {
	t.Helper()
	t.Cleanup(func() {
		if err := c.etcd.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	return c.etcd.PID()
}

// freeze stops a process until the test ends or thaws it.
func freeze(t testing.TB, p *process.Process) (thaw func()) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	frozen := true
	thaw = func() {
		if !frozen {
			return
		}
		frozen = false
		if err := p.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// SecondAPIServer starts another API server on the same etcd and with the same
// token keys, until the test ends.
func (c *Cluster) SecondAPIServer(t testing.TB) *APIServer {
	t.Helper()
	return c.anotherAPIServer(t, c.etcdAddr)
}

// LinkedAPIServer starts another API server whose way to etcd can be slow, or
// cut off from it, while everybody else's is not.
func (c *Cluster) LinkedAPIServer(t testing.TB) (*APIServer, *Link) {
	t.Helper()
	l, err := newLink(c.etcdAddr)
	if err != nil {
		t.Fatal(err)
	}
	c.links = append(c.links, l)
	t.Cleanup(l.close)
	return c.anotherAPIServer(t, l.addr), l
}

func (c *Cluster) anotherAPIServer(t testing.TB, etcd string) *APIServer {
	t.Helper()
	s, err := c.newAPIServer(fmt.Sprintf("kube-apiserver-%d", len(c.servers)+1), etcd, c.tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.process != nil {
			s.process.Kill()
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// get asks for a page that should be there.
func get(ctx context.Context, client *http.Client, url string) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	return errors.Join(fmt.Errorf("%s: %s\n%s", url, resp.Status, text), err)
}

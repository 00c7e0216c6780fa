// Package bailiwick builds the program under test and runs it, as a process of
// its own and with the command line that users have.
package bailiwick

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/process"
	"github.com/bailiwick-ca/bailiwick/k8s/inventory"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
)

// Build builds the program in dir, and returns its path. Tests build it once
// per process.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := cluster.Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bailiwick")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/bailiwick") //nolint:gosec // the path is ours
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building bailiwick: %w\n%s", err, out)
	}
	return path, nil
}

// Options say how to serve.
type Options struct {
	Program    string // as built
	Config     string // YAML
	Material   string // a directory, as Istio's cacerts
	Kubeconfig string // a file
	Listen     string // the address to serve on; if empty, a free one
}

// Permissions are what the code declares that it needs, with the review of
// tokens. An account that runs it in the tests has these and no others.
func Permissions() cluster.Permissions {
	return cluster.Permissions{Cluster: append(inventory.Permissions(), token.Permissions(true)...)}
}

// A Server is a running "bailiwick serve".
type Server struct {
	Addr string // of the certificate authority
	HTTP string // of health and metrics, as http://...

	process *process.Process
	stopped bool
}

// stopWithin is how long the program may take to end when it is asked to.
const stopWithin = 30 * time.Second

// Serve starts the server and returns once it is ready. When the test ends the
// server is asked to end, and must. If the test has failed, the end of the
// server's output is shown.
func Serve(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := launch(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Until(t.Context(), 30*time.Second, "bailiwick is ready", s.Ready); err != nil {
		t.Fatal(err)
	}
	return s
}

// Launch starts the server and does not wait.
func Launch(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := launch(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func launch(t testing.TB, o Options) (*Server, error) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(o.Config), 0o600); err != nil {
		return nil, fmt.Errorf("writing bailiwick's config: %w", err)
	}
	pages, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: o.Listen, HTTP: "http://" + process.Loopback(pages)}
	if s.Addr == "" {
		listen, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		s.Addr = process.Loopback(listen)
	}
	s.process, err = process.Start(dir, "bailiwick", o.Program, "serve",
		"--config", config,
		"--material", o.Material,
		"--kubeconfig", o.Kubeconfig,
		"--listen", s.Addr,
		"--http", process.Loopback(pages),
	)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { s.end(t) })
	return s, nil
}

// Stop asks the server to end, as the end of the test does, and returns once it
// has.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stopped = true
	select {
	case <-s.process.Done():
		t.Error("before the test was over", s.process.Err())
	default:
		if err := s.process.Terminate(stopWithin); err != nil {
			t.Error(err)
		} else if code := s.process.ExitCode(); code != 0 {
			t.Errorf("bailiwick, asked to end, ended with exit code %d", code)
		}
	}
}

func (s *Server) end(t testing.TB) {
	t.Helper()
	if !s.stopped {
		s.Stop(t)
	}
	if t.Failed() {
		t.Logf("the end of bailiwick's log:\n%s\nand of its audit record:\n%s", s.process.Tail(30), s.process.TailOut(10))
	}
}

// Ready says why the server is not ready.
func (s *Server) Ready(ctx context.Context) error {
	_, err := s.Page(ctx, "/readyz")
	return err
}

// Page returns one of the server's pages: /healthz, /readyz or /metrics.
func (s *Server) Page(ctx context.Context, path string) (text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s\n%s", path, resp.Status, body)
	}
	return string(body), err
}

// Output is everything that the server has written: its audit record and its
// log.
func (s *Server) Output(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, file := range []string{s.process.Out, s.process.Log} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

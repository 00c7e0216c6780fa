package istio_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/process"
)

// The suite judges Istio's own authority and ours on one cluster. What it finds
// about the other one is for those who run it to see, and is not kept here: the
// test is that the suite can be run against an authority that is not ours, and
// comes to a verdict.
func TestSuiteJudgesTwoAuthorities(t *testing.T) {
	c := shared
	t.Cleanup(func() { c.Clear(t) })
	for _, tt := range []struct {
		name  string
		serve func(*testing.T, *cluster.Cluster, string) (address, name string)
		exit  []int
	}{
		{"ours", serveOurs, []int{0}},
		{"Istio's", servePeer, []int{0, 1}}, // and not 3, which is no verdict
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, root := certs.Cacerts(t, time.Now())
			address, name := tt.serve(t, c, dir)
			roots := filepath.Join(t.TempDir(), "root-cert.pem")
			write(t, roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}))
			key, err := c.Tokens().Signing.PrivatePEM()
			if err != nil {
				t.Fatal(err)
			}
			keyFile := filepath.Join(t.TempDir(), "sa.key")
			write(t, keyFile, key)
			conformance(t, c, tt.exit, "--address", address, "--server-name", name, "--root", roots, "--token-key", keyFile,
				"--settle", "15s") // an API server keeps the verdicts of its reviews for 10 s
		})
	}
}

// conformance runs the suite as users do. It must end with one of these exit
// codes, after all cases.
func conformance(t *testing.T, c *cluster.Cluster, exits []int, args ...string) {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	args = append([]string{"conformance", "--kubeconfig", c.AdminKubeconfig(t), "--out", out}, args...)
	begun := time.Now()
	text, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(out, "conformance.json"))
	if err != nil {
		t.Fatalf("no report: %v\n%s", err, text)
	}
	var report struct {
		Results []struct{ ID, Outcome string }
	}
	if err := json.Unmarshal(raw, &report); err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]map[string]int) // by group and outcome
	for _, r := range report.Results {
		group, _, _ := strings.Cut(r.ID, "-")
		if counts[group] == nil {
			counts[group] = make(map[string]int)
		}
		counts[group][r.Outcome]++
	}
	t.Logf("exit code %d after %v: %v", code, time.Since(begun).Round(time.Second), counts)
	if len(report.Results) < 100 {
		t.Errorf("%d cases were run", len(report.Results))
	}
	if slices.Contains(exits, code) {
		return
	}
	t.Errorf("exit code %d, want one of %v", code, exits)
	if len(exits) == 1 { // ours, of which everything may be told
		t.Logf("%s", text)
	}
}

func serveOurs(t *testing.T, c *cluster.Cluster, material string) (address, name string) {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	s := bailiwick.Serve(t, bailiwick.Options{
		Program: program, Config: quick, Material: material,
		Kubeconfig: c.Account(t, "istio-system", "bailiwick", bailiwick.Permissions()).Kubeconfig,
	})
	return s.Addr, serverName
}

// servePeer runs Istio's authority until the test ends.
func servePeer(t *testing.T, c *cluster.Cluster, material string) (address, name string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "peer")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./peer").CombinedOutput(); err != nil {
		t.Fatalf("building Istio's authority: %v\n%s", err, out)
	}
	ports := make([]string, 2)
	for i := range ports {
		port, err := process.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = process.Loopback(port)
	}
	t.Setenv("CA_TRUSTED_NODE_ACCOUNTS", "istio-system/ztunnel")
	name = "istiod.istio-system.svc"
	p, err := process.Start(dir, "peer", program, "--kubeconfig", c.AdminKubeconfig(t),
		"--material", material, "--listen", ports[0], "--http", ports[1], "--server-name", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Terminate(10 * time.Second); err != nil {
			t.Log(err)
		}
	})
	if err := p.Until(t.Context(), time.Minute, "Istio's authority is ready", func(ctx context.Context) error { return ready(ctx, ports[1]) }); err != nil {
		t.Fatal(err)
	}
	return ports[0], name
}

func ready(ctx context.Context, address string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it has no body
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

package kubernetes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// forConformance are a server's options: on the page of the report it has two
// issuers on its path and two roots, so that no case has to be left out.
func forConformance(t *testing.T, c *cluster.Cluster, program string) (o bailiwick.Options, args []string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := c.Tokens().Signing.PrivatePEM()
	if err != nil {
		t.Fatal(err)
	}
	material, root := certs.DeepCacerts(t, time.Now())
	o = bailiwick.Options{
		Program: program, Config: `{limits: {drainDelay: 1ms}}`, Material: material,
		Kubeconfig: c.Account(t, "istio-system", "bailiwick", bailiwick.Permissions()).Kubeconfig,
	}
	return o, []string{
		"conformance", "--server-name", "bailiwick.istio-system.svc",
		"--root", file("root-cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})),
		"--kubeconfig", c.AdminKubeconfig(t), "--token-key", file("sa.key", key),
	}
}

// The suite, from the command line that users have, judges the server that users
// have: every case holds, but those that take minutes, which nobody asked for.
func TestConformance(t *testing.T) {
	const allowed = 2 * time.Minute
	c := begin(t)
	o, args := forConformance(t, c, program(t))
	server := bailiwick.Serve(t, o)
	o.Listen = server.Addr
	again, command := onDemand(t)
	suite := begun(t, append(args, "--address", server.Addr, "--drain", command)...)
	for running := true; running; {
		select {
		case done := <-again:
			server.Stop(t)
			server = bailiwick.Serve(t, o)
			close(done)
		case <-suite.ended:
			running = false
		}
	}
	if suite.err != nil || suite.took > allowed {
		t.Errorf("after %v, and %v are allowed: %v", suite.took, allowed, suite.err)
	}
	for id, r := range suite.results(t) {
		if id == "race-13" {
			continue // see TestConformanceCutOff
		}
		slow := r.Outcome == "not run" && strings.Contains(r.Evidence[0], "takes minutes")
		if r.Outcome != "passed" && !slow {
			t.Errorf("%s %s: %v", id, r.Outcome, r.Evidence)
		}
	}
	t.Logf("%d cases in %v", len(suite.results(t)), suite.took)
}

// The case for which the API server has to be stopped.
func TestConformanceCutOff(t *testing.T) {
	c := begin(t)
	suite := cutOff(t, c, program(t))
	if r := suite.results(t)["race-13"]; r.Outcome != "passed" {
		t.Errorf("%s: %v", r.Outcome, r.Evidence)
	}
}

// cutOff has the suite look at a server that is cut off from its cluster.
func cutOff(t *testing.T, c *cluster.Cluster, program string) *suite {
	t.Helper()
	o, args := forConformance(t, c, program)
	o.Config = `{maxStaleness: 8s, probeEvery: 1s, limits: {drainDelay: 1ms}}`
	etcd := strconv.Itoa(c.EtcdPID(t))
	s := begun(t, append(args, "--address", bailiwick.Serve(t, o).Addr,
		"--run", "race-13", "--staleness", "8s", "--freeze", "kill -STOP "+etcd, "--thaw", "kill -CONT "+etcd)...)
	<-s.ended
	return s
}

// Servers in which one thing is broken, and the cases that must notice it: what
// the suite would say of an authority that has that fault.
func TestConformanceNoticesFaults(t *testing.T) {
	group := func(name string) func(*testing.T, *cluster.Cluster, string) *suite {
		return func(t *testing.T, c *cluster.Cluster, program string) *suite {
			o, args := forConformance(t, c, program)
			s := begun(t, append(args, "--address", bailiwick.Serve(t, o).Addr, "--run", name+"-*")...)
			<-s.ended
			return s
		}
	}
	for _, tt := range []struct {
		name, file, old, broken string
		judge                   func(*testing.T, *cluster.Cluster, string) *suite
		cases                   []string // that fail, among others
	}{
		{
			"the last rule is off", "authz/rules.go",
			"case f.Live == 0:", "case false && f.Live == 0:",
			group("node"), []string{"node-01", "node-02", "node-08", "node-09", "node-10"},
		}, {
			"the trust domain is not looked at", "authz/identity.go",
			"if !id.MemberOf(td) {", "if false && !id.MemberOf(td) {",
			group("node"), []string{"node-06"},
		}, {
			"the roots are laid out like issuers", "ca/issue.go",
			"return append(all, i.bundlePEM)",
			`return append(all, strings.SplitAfterN(i.bundlePEM, "-----END CERTIFICATE-----\n", 2)...)`,
			group("wire"), []string{"wire-05", "wire-09", "wire-12"},
		}, {
			"what is known may have any age", "k8s/inventory/inventory.go",
			"elapsed(now, since) > v.config.MaxStaleness", "false && elapsed(now, since) > v.config.MaxStaleness",
			cutOff, []string{"race-13"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := tt.judge(t, begin(t), broken(t, tt.file, tt.old, tt.broken)).results(t)
			for _, id := range tt.cases {
				if r := found[id]; r.Outcome != "failed" {
					t.Errorf("%s %s: %v", id, r.Outcome, r.Evidence)
				}
			}
			var failed []string
			for id, r := range found {
				if r.Outcome == "failed" {
					failed = append(failed, id)
				}
			}
			slices.Sort(failed)
			t.Logf("failed: %v", failed)
		})
	}
}

// broken builds the program with one piece of its text replaced.
func broken(t *testing.T, file, old, by string) string {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, file)
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), old) != 1 {
		t.Fatalf("%s has %q %d times", file, old, strings.Count(string(text), old))
	}
	changed := strings.Replace(string(text), old, by, 1)
	if strings.Contains(by, "strings.") && !strings.Contains(changed, `"strings"`) {
		changed = strings.Replace(changed, "import (", "import (\n\t\"strings\"", 1)
	}
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: filepath.Join(dir, "broken.go")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"broken.go": []byte(changed), "overlay.json": overlay} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "bailiwick")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "./cmd/bailiwick")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building a broken bailiwick: %v\n%s", err, out)
	}
	return path
}

// A suite is a run of the suite as a process. All but dir may be read once it
// has ended.
type suite struct {
	dir   string // where its report is; go test -artifacts keeps it
	ended chan struct{}
	err   error
	took  time.Duration
	out   strings.Builder
}

// begun begins a run with these arguments.
func begun(t *testing.T, args ...string) *suite {
	t.Helper()
	s := &suite{dir: t.ArtifactDir(), ended: make(chan struct{})}
	cmd := exec.CommandContext(t.Context(), program(t), append(args, "--out", s.dir)...)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.err = cmd.Wait()
		s.took = time.Since(start)
	}()
	return s
}

// A result is what the report says of a case.
type result struct {
	ID, Outcome string
	Evidence    []string
}

// results returns them, by case.
func (s *suite) results(t *testing.T) map[string]result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "conformance.json"))
	if err != nil {
		t.Fatalf("there is no report: %v\n%s", err, s.out.String())
	}
	var report struct{ Results []result }
	if err := json.Unmarshal(data, &report); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]result)
	for _, r := range report.Results {
		all[r.ID] = r
	}
	return all
}

// onDemand returns a shell command, and what tells that somebody runs it. It
// ends when the channel that it sends is closed.
func onDemand(t *testing.T) (demands <-chan chan struct{}, command string) {
	t.Helper()
	dir := t.TempDir()
	ask, answer := filepath.Join(dir, "ask"), filepath.Join(dir, "answer")
	for _, pipe := range []string{ask, answer} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := make(chan chan struct{})
	go func() {
		for t.Context().Err() == nil {
			if _, err := os.ReadFile(ask); err != nil { // waits for a writer
				return
			}
			done := make(chan struct{})
			select {
			case c <- done:
			case <-t.Context().Done():
				return
			}
			<-done
			os.WriteFile(answer, []byte("done\n"), 0) //nolint:errcheck // waits for a reader, who sees that it is not there
		}
	}()
	t.Cleanup(func() { unblock(ask) })
	return c, "echo drain >" + ask + " && cat " + answer
}

// unblock lets whoever reads the pipe go on.
func unblock(pipe string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = exec.CommandContext(ctx, "sh", "-c", "echo end >"+pipe).Run() // nobody may read any more
}

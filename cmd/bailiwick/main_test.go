package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca/material"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestMessages runs command lines that cannot work, and reads whether the
// message says what to do.
func TestMessages(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := cacerts(t)
	noKey := cacerts(t)
	if err := os.Remove(filepath.Join(noKey, "ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	cluster := write("cluster.yaml", string(demoCluster))
	token := write("token", "a.b.c")
	root := filepath.Join(good, "root-cert.pem")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string // in what is printed
	}{
		{"no command", nil, 0, []string{"Start with: bailiwick demo"}},
		{"an unknown command", []string{"server"}, 2, []string{`unknown command "server"`, "Did you mean this?\n\tserve\n", "see: bailiwick --help"}},
		{"an unknown command with flags", []string{"nope", "--config", "x"}, 2, []string{`unknown command "nope"`, "see: bailiwick --help"}},
		{"an unknown flag of no command", []string{"--foo"}, 2, []string{"unknown flag: --foo", "see: bailiwick --help"}},
		{"an unknown flag", []string{"serve", "--foo"}, 2, []string{"unknown flag: --foo", "see: bailiwick serve --help"}},
		{"an argument", []string{"check", "x"}, 2, []string{`"x" is one word too many`, "see: bailiwick check --help"}},
		{"version", []string{"version"}, 0, []string{"bailiwick ", "go1."}},

		{"serve without material", []string{"serve"}, 2, []string{"--material names no directory", "root-cert.pem"}},
		{"serve with a configuration that is not there", []string{"serve", "--config", filepath.Join(dir, "no.yaml")}, 2, []string{"no.yaml", "no such file"}},
		{"serve with an unknown field", []string{"serve", "--config", write("bad.yaml", "trustdomain: x")}, 2, []string{"bad.yaml", `unknown field "trustdomain"`}},
		{"[CA-7] serve without a key", []string{"serve", "--material", noKey}, 1, []string{noKey, "ca-key.pem"}},
		{"serve outside a cluster", []string{"serve", "--material", good}, 1, []string{"--kubeconfig"}},
		{"serve with a kubeconfig that is none", []string{"serve", "--material", good, "--kubeconfig", token}, 1, []string{token}},

		{"check nothing", []string{"check"}, 2, []string{"--config", "--material"}},
		{"check what is good", []string{"check", "--config", write("good.yaml", "trustDomain: example.org\nminLeafLife: 1m"), "--material", good}, 0,
			[]string{"good.yaml: good", "example.org", "warning", "for tests only", "key material in " + good + ": good", "Bailiwick root"}},
		{"check two documents", []string{"check", "--config", write("documents.yaml", "hold: 1s\n---\nhold: 2s\n")}, 3, []string{"documents.yaml", "line 2 begins a second YAML document"}},
		{"check two mistakes", []string{"check", "--config", write("two.yaml", "tokenReview: never\nnodeAgents: [x]")}, 3, []string{"two.yaml", "tokenReview", "nodeAgents"}},
		{"check a text where a list should be", []string{"check", "--config", write("list.yaml", "nodeAgents: a/b")}, 3, []string{"list.yaml:\nnodeAgents: found string, and it must be a list such as [a, b]"}},
		{"check a number where a duration should be", []string{"check", "--config", write("duration.yaml", "limits: {deadline: 3}")}, 3, []string{"limits.deadline: found 3, and it must be a duration such as \"90s\""}},
		{"check a text where a mapping should be", []string{"check", "--config", write("mapping.yaml", "limits: x")}, 3, []string{"limits: found string, and it must be a mapping"}},
		{"check a fraction where a whole number should be", []string{"check", "--config", write("whole.yaml", "limits: {inFlight: 1.5}")}, 3, []string{"limits.inFlight: found number 1.5, and it must be a whole number"}},
		{"check a number where a text should be", []string{"check", "--config", write("text.yaml", "trustDomain: 1")}, 3, []string{"trustDomain: found number, and it must be a text; put it in quotes"}},
		{"check a text where yes or no should be", []string{"check", "--config", write("bool.yaml", "onlyTLS13: maybe")}, 3, []string{"onlyTLS13: found string, and it must be true or false"}},
		{"check a text where a number should be", []string{"check", "--config", write("number.yaml", "kubernetesQPS: many")}, 3, []string{"kubernetesQPS: found string, and it must be a number"}},
		{"check a directory as configuration", []string{"check", "--config", dir}, 3, []string{dir, "is a directory", "--config must name a YAML file"}},
		{"check a file as material", []string{"check", "--material", root}, 3, []string{"not a directory", "--material must name the directory", good}},
		{"check what is not a configuration", []string{"check", "--config", root}, 3, []string{"root-cert.pem:\nit is not a YAML mapping of fields; see docs/configuration.md"}},
		{"check a directory without key", []string{"check", "--material", noKey}, 3, []string{"ca-key.pem"}},

		{"explain nothing", []string{"explain"}, 2, []string{"--node", "--as"}},
		{"explain as what is no pod", []string{"explain", "--objects", cluster, "--as", "cart-1"}, 2, []string{`--as is "cart-1", which is not a pod written as namespace/name`, "kubectl get pods"}},
		{"explain as a pod with too many slashes", []string{"explain", "--objects", cluster, "--as", "a/b/c"}, 2, []string{`--as is "a/b/c"`}},
		{"explain as a pod of another node", []string{"explain", "--objects", cluster, "--as", "istio-system/ztunnel-a", "--node", "node-b"}, 2,
			[]string{"pod istio-system/ztunnel-a, which is on node node-a, and --node names node-b; leave out one"}},
		{"explain as a pod of the node", []string{"explain", "--objects", cluster, "--as", "istio-system/ztunnel-a", "--node", "node-a"}, 0, []string{"answer: granted"}},
		{"explain on a node without agent", []string{"explain", "--objects", cluster, "--node", "nope"}, 1, []string{`no pod of a node agent is on node "nope"`, "istio-system/ztunnel", "kubectl get pods"}},
		{"explain on a node that is not there", []string{"explain", "--objects", cluster, "--node", "nope"}, 1, []string{"there is no such node (see: kubectl get nodes)"}},
		{"explain with objects that are not there", []string{"explain", "--objects", filepath.Join(dir, "no.yaml"), "--node", "n"}, 1, []string{"no.yaml", "make such a file with: kubectl get"}},
		{"explain with a kubeconfig that is none", []string{"explain", "--kubeconfig", token, "--node", "n"}, 1, []string{token, "kubectl config view"}},
		{"explain as a pod that is not there", []string{"explain", "--objects", cluster, "--as", "a/b"}, 1, []string{"there is no pod a/b", "kubectl get pods"}},
		{"explain a grant", []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "spiffe://cluster.local/ns/shop/sa/cart"}, 0, []string{"\nrules: all defaults\n", "answer: granted"}},
		{"explain a denial", []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"}, 3,
			[]string{"NO     the identity runs on the caller's node", "answer: denied (not-on-node)",
				"what to do: see where the account runs: kubectl -n shop get pods -o wide --field-selector spec.serviceAccountName=pay\n",
				"kubectl get pods -A -o wide --field-selector spec.nodeName=node-a\n"}},
		{"explain a malformed identity", []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "cart"}, 3, []string{"answer: denied (bad-identity)"}},
		{"explain a finished pod", []string{"explain", "--objects", cluster, "--as", "shop/report-1"}, 3, []string{"answer: denied (caller-finished)"}},
		{"explain what the configuration protects", []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "spiffe://cluster.local/ns/mesh/sa/bailiwick", "--config", write("protected.yaml", "protected: [mesh/bailiwick]")}, 3, []string{"\nrules: " + filepath.Join(dir, "protected.yaml") + "\n", "answer: denied (protected)"}},
		{"explain what the server protects by default", []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "spiffe://cluster.local/ns/istio-system/sa/bailiwick"}, 3, []string{"answer: denied (protected)"}},
		{"explain with objects that have a key twice", []string{"explain", "--objects", write("twice.yaml", "apiVersion: v1\nkind: Pod\nkind: Node"), "--node", "x"}, 1, []string{"twice.yaml", "from line 1", `"kind" already set`}},
		{"explain with a file that is no cluster", []string{"explain", "--objects", token, "--node", "x"}, 1, []string{token, "from line 1: not an object of Kubernetes: found string", "kubectl get pods,nodes,serviceaccounts -A -o yaml"}},

		{"request without roots", []string{"request"}, 2, []string{"--root", "kubectl"}},
		{"request without token", []string{"request", "--root", root}, 2, []string{"--token", "kubectl"}},
		{"request for half a second", []string{"request", "--root", root, "--token", token, "--life", "500ms"}, 2, []string{"--life is 500ms", "whole seconds"}},
		{"request for a second and a half", []string{"request", "--root", root, "--token", token, "--life", "1500ms"}, 2, []string{"--life is 1.5s"}},
		{"request for no life", []string{"request", "--root", root, "--token", token, "--life", "0s"}, 2, []string{"--life is 0s"}},
		{"request for a second", []string{"request", "--root", root, "--token", token, "--life", "1s", "--address", "127.0.0.1:1"}, 4, []string{"connection refused"}},
		{"request of a URL", []string{"request", "--root", root, "--token", token, "--address", "https://localhost:15012"}, 2, []string{`--address is "https://localhost:15012", which is not host:port`}},
		{"request of a host without port", []string{"request", "--root", root, "--token", token, "--address", "localhost"}, 2, []string{"--address"}},
		{"request of a port without host", []string{"request", "--root", root, "--token", token, "--address", ":15012"}, 2, []string{"--address"}},
		{"request of a port with a path", []string{"request", "--root", root, "--token", token, "--address", "localhost:15012/x"}, 2, []string{"--address"}},
		{"request without time", []string{"request", "--root", root, "--token", token, "--timeout", "0s"}, 2, []string{"--timeout is 0s, which is not more than 0; for 15s, leave it out"}},
		{"request with less than no time", []string{"request", "--root", root, "--token", token, "--timeout", "-1s"}, 2, []string{"--timeout is -1s"}},
		{"request of an IPv6 address", []string{"request", "--root", root, "--token", token, "--address", "[::1]:1"}, 4, []string{"check --address"}},
		{"request with roots that are not there", []string{"request", "--root", filepath.Join(dir, "no.pem")}, 1, []string{"no.pem", "kubectl -n istio-system get configmap"}},
		{"request with a token that is not there", []string{"request", "--root", root, "--token", filepath.Join(dir, "no")}, 1, []string{"no such file", "create token"}},
		{"request with roots that are none", []string{"request", "--root", token}, 1, []string{"--root " + token + " has no PEM certificate", "kubectl"}},
		{"request with a token that is none", []string{"request", "--root", root, "--token", root}, 1, []string{"--token " + root + " does not hold a token", "kubectl"}},
		{"request where nobody listens", []string{"request", "--root", root, "--token", token, "--address", "127.0.0.1:1"}, 4, []string{"connection refused", "check --address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(t.Context(), tt.args, &out, &out); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in:\n%s", want, out.String())
				}
			}
		})
	}
}

// TestRequestHints wants a word on what to do for each code with which a server
// refuses.
func TestRequestHints(t *testing.T) {
	f := requestFlags{address: "ca.example:15012", token: "token", identity: "spiffe://x/ns/a/sa/b", timeout: 3 * time.Second}
	for code, want := range map[codes.Code]string{
		codes.PermissionDenied:  "bailiwick explain --config FILE --node NODE --identity spiffe://x/ns/a/sa/b",
		codes.Unauthenticated:   "the token in token was not accepted",
		codes.InvalidArgument:   "docs/troubleshooting.md",
		codes.ResourceExhausted: "ask again in some seconds",
		codes.DeadlineExceeded:  "within --timeout, 3s; check that nothing between here and --address ca.example:15012",
		codes.Unavailable:       "check --address, --root and --server-name",
	} {
		if hint := requestHint(status.Error(code, "x"), f); !strings.HasPrefix(hint, "\n") || !strings.Contains(hint, want) {
			t.Errorf("%v: hint %q, want %q", code, hint, want)
		}
	}
}

// TestExitCodes has the answers of an authority: no, cannot tell, and neither.
func TestExitCodes(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.Unauthenticated: 3, codes.PermissionDenied: 3, codes.InvalidArgument: 3,
		codes.Unavailable: 4, codes.ResourceExhausted: 4, codes.DeadlineExceeded: 4,
		codes.Internal: 1, codes.Unknown: 1, codes.Unimplemented: 1,
	} {
		if got := exitCode(status.Error(code, "x")); got != want {
			t.Errorf("%v: exit code %d, want %d", code, got, want)
		}
	}
}

// cacerts makes a directory with good key material.
func cacerts(t *testing.T) string {
	t.Helper()
	m, err := material.Make(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files, err := material.Files(m)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPortTaken(t *testing.T) {
	taken, err := listen("--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // a test
	address := taken.Addr().String()
	_, err = listenBoth("127.0.0.1:0", address)
	if err == nil || !strings.Contains(err.Error(), "--http "+address) || !strings.Contains(err.Error(), "ss -ltnp") {
		t.Errorf("listenBoth = %v", err)
	}
	if _, err = listenBoth(address, "127.0.0.1:0"); err == nil || !strings.Contains(err.Error(), "--listen "+address) {
		t.Errorf("listenBoth = %v", err)
	}
}

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestExplainPicksALiveAgent has several pods of the node agent on a node, as
// there are while one is being replaced, and wants the one that lives to ask.
func TestExplainPicksALiveAgent(t *testing.T) {
	pod := func(name, extra, phase string) string {
		return fmt.Sprintf("- {apiVersion: v1, kind: Pod, metadata: {namespace: istio-system, name: %s, uid: %s%s}, spec: {serviceAccountName: ztunnel, nodeName: n1}, status: {phase: %s}}\n", name, name, extra, phase)
	}
	deleted := func(ago time.Duration) string {
		return ", deletionTimestamp: '" + time.Now().Add(-ago).UTC().Format(time.RFC3339) + "'"
	}
	failed, succeeded := pod("zt-failed", "", "Failed"), pod("zt-succeeded", "", "Succeeded")
	gone, going := pod("zt-gone", deleted(time.Hour), "Running"), pod("zt-going", deleted(30*time.Second), "Running")
	running := pod("zt-running", "", "Running")
	for _, tt := range []struct {
		name, pods, want string
		code             int
	}{
		{"the one that runs, after finished ones", failed + succeeded + running, "zt-running", 0},
		{"the one that runs, after one that was deleted long ago", gone + running, "zt-running", 0},
		{"the one that runs, before others", running + gone + failed, "zt-running", 0},
		{"one that is being deleted, which counts", failed + going, "zt-going", 0},
		{"a finished one, if there is no other", failed, "zt-failed", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cluster.yaml")
			text := "apiVersion: v1\nkind: List\nitems:\n" + tt.pods +
				"- {apiVersion: v1, kind: Node, metadata: {name: n1, uid: u}}\n" +
				"- {apiVersion: v1, kind: ServiceAccount, metadata: {namespace: istio-system, name: ztunnel, uid: a}}\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			code := run(t.Context(), []string{"explain", "--objects", path, "--node", "n1"}, &out, &out)
			if code != tt.code || !strings.HasPrefix(out.String(), "pod istio-system/"+tt.want+" ") {
				t.Errorf("exit code %d, want %d, of %s:\n%s", code, tt.code, tt.want, out.String())
			}
		})
	}
}

// TestExplainReadsTheNodeOfThePod reads from a live cluster, and wants the pods
// of the node on which the pod is, whatever --node says.
func TestExplainReadsTheNodeOfThePod(t *testing.T) {
	for _, node := range []string{"", "n1", "n2"} {
		api := fake.NewClientset(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1"}, Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "cart"},
		})
		f := explainFlags{as: "shop/cart-1", node: node}
		if _, err := f.fetch(t.Context(), api, defaultConfig().policy(nil, authz.ServiceAccount{}, time.Now)); err != nil {
			t.Fatal(err)
		}
		var selectors []string
		for _, a := range api.Actions() {
			if l, ok := a.(clienttesting.ListAction); ok {
				selectors = append(selectors, l.GetListRestrictions().Fields.String())
			}
		}
		if fmt.Sprint(selectors) != "[spec.nodeName=n1]" {
			t.Errorf("with --node %q it lists %q", node, selectors)
		}
	}
}

// TestExplainAsksTheSameCluster wants every command that explain prints to ask
// the cluster of --kubeconfig, and to look where Istio is installed.
func TestExplainAsksTheSameCluster(t *testing.T) {
	api := newFakeAPI(t, mustSigner(t))
	dir := t.TempDir()
	kubeconfig, config, cluster := filepath.Join(dir, "other config"), filepath.Join(dir, "mesh.yaml"), filepath.Join(dir, "cluster.yaml")
	for path, text := range map[string]string{
		kubeconfig: readFile(t, api.kubeconfig), config: "istioNamespace: mesh\nnodeAgents: [istio-system/ztunnel]\n", cluster: string(demoCluster),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctl := "kubectl --kubeconfig " + shellWord(kubeconfig) + " "
	for _, tt := range []struct{ args, want string }{
		{"--as x", ctl + "get pods -A -o wide\n"},
		{"--as a/b", ctl + "get pods -A -o wide\n"},
		{"--node nope", ctl + "get nodes)"},
		{"--node nope", ctl + "get pods -A -o wide --field-selector spec.nodeName=nope\n"},
		{"--as a/b --objects " + cluster, ctl + "get pods,serviceaccounts -A\n"},
		{"--as shop/report-1 --objects " + cluster, ctl + "-n shop get pod report-1 -o wide\n"},
		{"--node node-a --objects " + cluster + " --identity spiffe://cluster.local/ns/shop/sa/pay", ctl + "-n shop get pods -o wide --field-selector spec.serviceAccountName=pay\n"},
		{"--node node-a --objects " + cluster + " --identity spiffe://cluster.local/ns/shop/sa/pay", ctl + "get pods -A -o wide --field-selector spec.nodeName=node-a\n"},
		{"--node node-a --objects " + cluster + " --identity spiffe://x.org/ns/shop/sa/pay --config " + config, ctl + "-n mesh get configmap istio -o yaml | grep trustDomain\n"},
	} {
		var out bytes.Buffer
		run(t.Context(), append([]string{"explain", "--kubeconfig", kubeconfig}, strings.Fields(tt.args)...), &out, &out)
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("explain %s prints no %q:\n%s", tt.args, tt.want, out.String())
		}
		if rest := strings.ReplaceAll(out.String(), ctl, ""); strings.Contains(rest, "kubectl ") {
			t.Errorf("explain %s prints a command for another cluster:\n%s", tt.args, rest)
		}
	}
}

// TestExplainTellsFormFromTrustDomain wants the advice about an identity to be
// about what is wrong with it.
func TestExplainTellsFormFromTrustDomain(t *testing.T) {
	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(cluster, demoCluster, 0o600); err != nil {
		t.Fatal(err)
	}
	const form, domain = "the form is wrong", "the trust domain is another one"
	for identity, want := range map[string]string{
		"spiffe://cluster.local/ns/shop/sa/Pay":   form,
		"spiffe://cluster.local/ns/shop/pay":      form,
		"spiffe://other.example/ns/shop/sa/Pay":   form,
		"spiffe://cluster.local/ns/shop/sa/pay/":  form,
		"https://cluster.local/ns/shop/sa/pay":    form,
		"pay":                                     form,
		"spiffe://other.example/ns/shop/sa/pay":   domain,
		"spiffe://cluster.local.x/ns/shop/sa/pay": domain,
	} {
		var out bytes.Buffer
		code := run(t.Context(), []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", identity}, &out, &out)
		if _, next, _ := strings.Cut(out.String(), "\nwhat to do: "); code != exitRefused || !strings.HasPrefix(next, want) {
			t.Errorf("%s: exit code %d and %q, want %q", identity, code, next, want)
		}
	}
}

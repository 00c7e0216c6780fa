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

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckLooksWhereIstioIs wants the command for the Secret to name the
// namespace of the configuration.
func TestCheckLooksWhereIstioIs(t *testing.T) {
	config, dir := filepath.Join(t.TempDir(), "c.yaml"), cacerts(t)
	if err := os.WriteFile(config, []byte("istioNamespace: mesh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "ca-key.pem")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"check", "--material", dir, "--config", config}, "kubectl -n mesh describe secret cacerts"},
		{[]string{"check", "--material", dir}, "kubectl -n istio-system describe secret cacerts"},
		{[]string{"serve", "--material", dir, "--config", config}, "kubectl -n mesh describe secret cacerts"},
		{[]string{"serve", "--material", dir, "--kubeconfig", "a b"}, "kubectl --kubeconfig 'a b' -n istio-system describe secret cacerts"},
	} {
		var out bytes.Buffer
		if run(t.Context(), tt.args, &out, &out); !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q prints no %q:\n%s", tt.args, tt.want, out.String())
		}
	}
}

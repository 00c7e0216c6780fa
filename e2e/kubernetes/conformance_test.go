package kubernetes_test

import (
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The suite, from the command line that users have, judges the server that
// users have.
func TestConformance(t *testing.T) {
	c := begin(t)
	a := serve(t, c.APIServer, nil)
	dir := t.TempDir()
	key, err := c.Tokens().Signing.PrivatePEM()
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root := file("root-cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.where.Root.Raw}))
	cmd := exec.CommandContext(t.Context(), program(t), "conformance", //nolint:gosec // ours
		"--address", a.Addr, "--server-name", a.where.Name, "--root", root,
		"--kubeconfig", c.AdminKubeconfig(t), "--token-key", file("sa.key", key), "--out", dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

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
	root := filepath.Join(dir, "root-cert.pem")
	if err := os.WriteFile(root, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.where.Root.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program(t), "conformance", //nolint:gosec // ours
		"--address", a.Addr, "--server-name", a.where.Name, "--root", root,
		"--kubeconfig", c.AdminKubeconfig(t), "--out", dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

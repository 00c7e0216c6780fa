package kubernetes_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/process"
	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

// TestRealZtunnel runs the ztunnel that the variable ZTUNNEL names, with its
// workloads from a file and without traffic. It needs Linux, root (ztunnel
// checks that it may change network namespaces), /etc/resolv.conf, and the ports
// 15000, 15020 and 15021.
func TestRealZtunnel(t *testing.T) {
	program := os.Getenv("ZTUNNEL")
	if program == "" {
		t.Skip("skipped: no ztunnel binary")
	}
	m := newMesh(t, options{"minLeafLife": "2s", "servingNames": []string{"localhost"}})
	workloadOn(t, m.APIServer, "a", "n1")
	m.ServiceAccount(t, "shop", "b") // b-1 is to come
	workloadOn(t, m.APIServer, "c", "n2")
	m.runZtunnel(t, program)

	a, b, c := ofShop("a").String(), ofShop("b").String(), ofShop("c").String()
	var first dumped
	eventually(t, 30*time.Second, "a is available and b is refused", func(have map[string]dumped) error {
		first = have[a]
		if first.State != "Available" || !strings.HasPrefix(have[b].State, "Unavailable") {
			return fmt.Errorf("a is %q, b is %q", first.State, have[b].State)
		}
		if _, ok := have[c]; ok {
			return errors.New("it has asked for c, which is on another node")
		}
		return nil
	})
	first.judge(t, a)

	// The pause is 2 min and a half at most, and much less after a few refusals.
	workloadPod(t, m, "b")
	eventually(t, time.Minute, "b is available, and a is renewed", func(have map[string]dumped) error {
		if have[b].State != "Available" || have[a].State != "Available" || have[a].serial() == first.serial() {
			return fmt.Errorf("a is %q with number %s, b is %q", have[a].State, have[a].serial(), have[b].State)
		}
		have[a].judge(t, a)
		have[b].judge(t, b)
		return nil
	})
}

// workloadPod makes the pod of an account that there is.
func workloadPod(t *testing.T, m *mesh, account string) {
	t.Helper()
	m.Pod(t, cluster.Pod{Namespace: "shop", Name: account + "-1", ServiceAccount: account, Node: "n1"})
}

// runZtunnel starts the program until the test ends. In its file are the
// accounts a and b on n1, and c on n2.
func (m *mesh) runZtunnel(t *testing.T, program string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var workloads strings.Builder
	workloads.WriteString("workloads:\n")
	for i, account := range []string{"a", "b", "c"} {
		node := map[string]string{"a": "n1", "b": "n1", "c": "n2"}[account]
		fmt.Fprintf(&workloads, "- {uid: Kubernetes//Pod/shop/%[1]s-1, name: %[1]s-1, namespace: shop, serviceAccount: %[1]s, trustDomain: cluster.local, "+
			"workloadIps: [10.99.0.%[2]d], protocol: HBONE, node: %[3]s, network: \"\", services: {}}\n", account, i+1, node)
	}
	_, port, _ := strings.Cut(m.Addr, ":")
	for name, value := range map[string]string{
		"PROXY_MODE": "shared", "NODE_NAME": "n1", "CLUSTER_ID": "Kubernetes", "SECRET_TTL": "10s",
		"CA_ADDRESS": "https://localhost:" + port, "CA_ROOT_CA": file("root.pem", string(m.config.Roots)), "AUTH_TOKEN": m.config.TokenFile,
		"XDS_ADDRESS": "", "LOCAL_XDS_PATH": file("local.yaml", workloads.String()), "INPOD_UDS": filepath.Join(dir, "none.sock"),
		"IPV6_ENABLED": "false", "RUST_LOG": "info",
	} {
		t.Setenv(name, value)
	}
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "POD_NAME", "POD_NAMESPACE", "SERVICE_ACCOUNT", "FAKE_CA"} {
		t.Setenv(name, "") // which puts it back afterwards
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	p, err := process.Start(dir, "ztunnel", program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of ztunnel's log:\n%s\n%s", p.Tail(30), p.TailOut(30))
		}
	})
}

// A dumped is an identity in ztunnel's config_dump.
type dumped struct {
	Identity  string       `json:"identity"`
	State     string       `json:"state"`
	CertChain []dumpedCert `json:"certChain"`
	RootCerts []dumpedCert `json:"rootCerts"`
}

type dumpedCert struct {
	PEM          string `json:"pem"` // in base64
	SerialNumber string `json:"serialNumber"`
}

func (d dumped) serial() string {
	if len(d.CertChain) == 0 {
		return ""
	}
	return d.CertChain[0].SerialNumber
}

// judge judges what ztunnel has as its peers do.
func (d dumped) judge(t *testing.T, want string) {
	t.Helper()
	var reply []string
	roots := ""
	for i, c := range slices.Concat(d.CertChain, d.RootCerts) {
		text, err := base64.StdEncoding.DecodeString(c.PEM)
		if err != nil {
			t.Fatal(err)
		}
		if i < len(d.CertChain) {
			reply = append(reply, string(text))
		} else {
			roots += string(text)
		}
	}
	id, err := ztunnel.ParseIdentity(want)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ztunnel.Read(id, append(reply, roots))
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.Verify(cert.Roots, time.Now()); err != nil {
		t.Errorf("the certificate for %s: %v", want, err)
	}
}

// eventually asks ztunnel for its state until it is as it should be.
func eventually(t *testing.T, within time.Duration, what string, ask func(map[string]dumped) error) {
	t.Helper()
	cluster.Eventually(t, within, what, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:15000/config_dump", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		var dump struct {
			Certificates []dumped `json:"certificates"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&dump); err != nil {
			return err
		}
		have := make(map[string]dumped)
		for _, d := range dump.Certificates {
			have[d.Identity] = d
		}
		return ask(have)
	})
}

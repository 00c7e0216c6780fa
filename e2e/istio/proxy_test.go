package istio_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"istio.io/istio/pkg/security"
	"istio.io/istio/security/pkg/credentialfetcher/plugin"
	"istio.io/istio/security/pkg/nodeagent/cache"
	"istio.io/istio/security/pkg/nodeagent/caclient/providers/citadel"
	pkiutil "istio.io/istio/security/pkg/pki/util"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// What these tests ask for, and as whom.
const (
	trustDomain = "cluster.local"
	namespace   = "shop"
	account     = "cart"
	identity    = "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
	serverName  = "bailiwick.istio-system.svc"
)

// A mesh is an authority of ours and the pod of one application with Istio's
// agent in it.
type mesh struct {
	*cluster.Cluster
	*bailiwick.Server

	options bailiwick.Options
	roots   string // the file with the roots that the agent trusts
	token   string // the file with the pod's token
	pod     *corev1.Pod
}

// begin makes a mesh, with a server that has this configuration.
func begin(t *testing.T, config string) *mesh {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	c := shared
	t.Cleanup(func() { c.Clear(t) })
	material, root := certs.Cacerts(t, time.Now())
	dir := t.TempDir()
	m := &mesh{
		Cluster: c,
		options: bailiwick.Options{
			Program: program, Config: config, Material: material,
			Kubeconfig: c.Account(t, "istio-system", "bailiwick", bailiwick.Permissions()).Kubeconfig,
		},
		roots: filepath.Join(dir, "root-cert.pem"),
		token: filepath.Join(dir, "istio-token"),
	}
	write(t, m.roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}))
	c.Node(t, "n1")
	c.ServiceAccount(t, namespace, account)
	m.replacePod(t, "cart-1")
	m.Server = bailiwick.Serve(t, m.options)
	m.options.Listen = m.Addr // wherever it is served again
	return m
}

// replacePod starts the pod that the agent lives in, in place of any before.
func (m *mesh) replacePod(t *testing.T, name string) {
	t.Helper()
	if m.pod != nil {
		m.DeletePod(t, m.pod, 0)
	}
	m.pod = m.Pod(t, cluster.Pod{Namespace: namespace, Name: name, ServiceAccount: account, Node: "n1", Phase: corev1.PodRunning})
	write(t, m.token, []byte(m.PodToken(t, m.pod)))
}

// serveAgain ends the server and starts one at its address with other key
// material.
func (m *mesh) serveAgain(t *testing.T, material string) {
	t.Helper()
	m.Stop(t)
	m.options.Material = material
	m.Server = bailiwick.Serve(t, m.options)
}

// An agent is Istio's, as far as certificates go: its client, and the cache
// above it that makes keys, renews, and tells Envoy.
type agent struct {
	*cache.SecretManagerClient

	client *citadel.CitadelClient
	pushes chan string // what Envoy is told to fetch again
	close  func()
}

// defaults are an agent's options in a pod where nobody set any.
func (m *mesh) defaults(t *testing.T) *security.Options {
	t.Helper()
	return &security.Options{
		CAEndpoint:                     m.Addr,
		CAEndpointSAN:                  serverName,
		CAProviderName:                 "Citadel",
		ClusterID:                      "Kubernetes",
		TrustDomain:                    trustDomain,
		WorkloadNamespace:              namespace,
		ServiceAccount:                 account,
		WorkloadRSAKeySize:             2048,
		SecretTTL:                      24 * time.Hour,
		SecretRotationGracePeriodRatio: 0.5,
		CredFetcher:                    plugin.CreateTokenPlugin(m.token),
	}
}

// agent starts an agent until the test ends.
func (m *mesh) agent(t *testing.T, o *security.Options) *agent {
	t.Helper()
	client, err := citadel.NewCitadelClient(o, &citadel.TLSOptions{RootCert: m.roots})
	if err != nil {
		t.Fatal(err)
	}
	manager, err := cache.NewSecretManagerClient(client, o)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{manager, client, make(chan string, 100), sync.OnceFunc(manager.Close)}
	manager.RegisterSecretHandler(func(name string) { a.pushes <- name })
	t.Cleanup(a.close)
	return a
}

// fetch does what Envoy's first request, or one that follows a push, sets off.
// The certificate is judged by Istio's own function and by go's.
func (a *agent) fetch(t *testing.T, roots string) *security.SecretItem {
	t.Helper()
	item, err := a.GenerateSecret(security.WorkloadKeyCertResourceName)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := os.ReadFile(roots)
	if err != nil {
		t.Fatal(err)
	}
	want := &pkiutil.VerifyFields{
		Host:        identity,
		KeyUsage:    keyUsage(t, item),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if err := pkiutil.VerifyCertificate(item.PrivateKey, item.CertificateChain, trusted, want); err != nil {
		t.Fatalf("Istio judges the certificate: %v", err)
	}
	return item
}

// keyUsage is what Istio's judge should expect: its own CA lets elliptic curve
// keys encipher keys, which they cannot (RFC 8813, Section 3).
func keyUsage(t *testing.T, item *security.SecretItem) x509.KeyUsage {
	t.Helper()
	if leaf(t, item).PublicKeyAlgorithm == x509.RSA {
		return x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	}
	return x509.KeyUsageDigitalSignature
}

func leaf(t *testing.T, item *security.SecretItem) *x509.Certificate {
	t.Helper()
	c, err := pkiutil.ParsePemEncodedCertificate(item.CertificateChain)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pushed waits until Envoy is told to fetch something again.
func (a *agent) pushed(t *testing.T, within time.Duration, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		select {
		case got := <-a.pushes:
			if got == want {
				return
			}
		case <-ctx.Done():
			t.Fatalf("Envoy was not told to fetch %s within %v", want, within)
		}
	}
}

// drain returns what Envoy was told to fetch since it was last looked at.
func (a *agent) drain() (names []string) {
	for {
		select {
		case name := <-a.pushes:
			names = append(names, name)
		default:
			return names
		}
	}
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

package istio_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	pb "istio.io/api/security/v1alpha1"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// Two authorities and one cluster, in which pods come, finish, and go, at
// random but the same each time: for every agent and every account both must
// decide alike, or differ in the one way that they differ on purpose.
func TestBothDecideAlike(t *testing.T) {
	const steps = 30
	c := shared
	t.Cleanup(func() { c.Clear(t) })
	material, root := certs.Cacerts(t, time.Now())
	ours, ourName := serveOurs(t, c, material)
	theirs, theirName := servePeer(t, c, material)
	w := newSmallCluster(t, c)
	clients := []pb.IstioCertificateServiceClient{dial(t, ours, ourName, root), dial(t, theirs, theirName, root)}
	random := mathrand.New(mathrand.NewPCG(1, 2))
	asked, differed := 0, 0
	for step := range steps {
		did := w.step(t, random)
		for node, token := range w.agents {
			for _, account := range w.accounts {
				deliberate := w.onlySucceeded(node, account)
				cluster.Eventually(t, 20*time.Second, fmt.Sprintf("step %d, %s: both decide on %s for %s", step, did, account, node), func(ctx context.Context) error {
					our, err := issues(ctx, t, clients[0], token, account)
					if err != nil {
						return err
					}
					their, err := issues(ctx, t, clients[1], token, account)
					if err != nil {
						return err
					}
					switch want := w.lives(node, account); {
					case our != want:
						return fmt.Errorf("ours issues: %v, and it lives there: %v", our, want)
					case their != our && (!deliberate || our):
						return fmt.Errorf("ours issues: %v, Istio's: %v", our, their)
					case their != our:
						differed++
					}
					return nil
				})
				asked++
			}
		}
	}
	t.Logf("%d questions after %d steps; %d answers differed on purpose", asked, steps, differed)
	if differed == 0 {
		t.Error("no pod that succeeded was asked about, so nothing was shown")
	}
}

// A smallCluster is what the test knows of the cluster, which it alone changes.
type smallCluster struct {
	*cluster.Cluster

	agents   map[string]string // token of the agent, by node
	nodes    []string
	accounts []string
	pods     []*corev1.Pod
	phases   map[string]corev1.PodPhase // by name of the pod
	made     int
}

func newSmallCluster(t *testing.T, c *cluster.Cluster) *smallCluster {
	t.Helper()
	w := &smallCluster{Cluster: c, agents: map[string]string{}, phases: map[string]corev1.PodPhase{}, nodes: []string{"d1", "d2"}, accounts: []string{"a", "b", "c"}}
	c.ServiceAccount(t, "istio-system", "ztunnel")
	for _, a := range w.accounts {
		c.ServiceAccount(t, namespace, a)
	}
	for _, n := range w.nodes {
		c.Node(t, n)
		w.agents[n] = c.PodToken(t, c.Pod(t, cluster.Pod{Namespace: "istio-system", Name: "zt-" + n, ServiceAccount: "ztunnel", Node: n, Phase: corev1.PodRunning}))
	}
	return w
}

// step changes something, and says what.
func (w *smallCluster) step(t *testing.T, random *mathrand.Rand) string {
	t.Helper()
	if len(w.pods) == 0 || random.IntN(3) == 0 {
		w.made++
		phase := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning}[random.IntN(2)]
		p := w.Pod(t, cluster.Pod{
			Namespace: namespace, Name: fmt.Sprintf("p%d", w.made), Phase: phase,
			ServiceAccount: w.accounts[random.IntN(3)], Node: w.nodes[random.IntN(2)],
		})
		w.pods, w.phases[p.Name] = append(w.pods, p), phase
		return "a pod came"
	}
	i := random.IntN(len(w.pods))
	p := w.pods[i]
	if w.phases[p.Name] != corev1.PodSucceeded && random.IntN(2) == 0 {
		phase := []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[random.IntN(3)]
		w.SetPhase(t, p, phase)
		w.phases[p.Name] = phase
		return "a pod is " + string(phase)
	}
	w.DeletePod(t, p, 0)
	w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
	return "a pod went"
}

// lives reports whether a pod of the account that has not finished is on the
// node.
func (w *smallCluster) lives(node, account string) bool {
	return w.has(node, account, corev1.PodPending, corev1.PodRunning)
}

// onlySucceeded reports whether of the account's pods on the node none lives,
// and one has succeeded.
func (w *smallCluster) onlySucceeded(node, account string) bool {
	return !w.lives(node, account) && w.has(node, account, corev1.PodSucceeded)
}

func (w *smallCluster) has(node, account string, phases ...corev1.PodPhase) bool {
	for _, p := range w.pods {
		for _, phase := range phases {
			if p.Spec.NodeName == node && p.Spec.ServiceAccountName == account && w.phases[p.Name] == phase {
				return true
			}
		}
	}
	return false
}

func dial(t *testing.T, address, name string, root *x509.Certificate) pb.IstioCertificateServiceClient {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(root)
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over
	return pb.NewIstioCertificateServiceClient(c)
}

// issues asks as an agent for an account's identity. An error is neither a
// certificate nor a refusal.
func issues(ctx context.Context, t *testing.T, client pb.IstioCertificateServiceClient, token, account string) (bool, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	id := "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token, "clusterid", "Kubernetes")
	_, err = client.CreateCertificate(ctx, &pb.IstioCertificateRequest{
		Csr:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(id)}},
	})
	switch code := status.Code(err); code {
	case codes.OK:
		return true, nil
	case codes.Unauthenticated, codes.PermissionDenied:
		return false, nil
	default:
		return false, fmt.Errorf("asking for %s: %w", id, err)
	}
}

// Peer serves certificates with Istio's own certificate authority, put together
// from its packages as istiod puts it together, so that one suite can judge it
// and ours on one cluster. Which accounts are node agents it reads from
// CA_TRUSTED_NODE_ACCOUNTS, as istiod does.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/tools/clientcmd"

	istiogrpc "istio.io/istio/pilot/pkg/grpc"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/keepalive"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/multicluster"
	"istio.io/istio/pkg/security"
	"istio.io/istio/pkg/spiffe"
	pkica "istio.io/istio/security/pkg/pki/ca"
	serverca "istio.io/istio/security/pkg/server/ca"
	"istio.io/istio/security/pkg/server/ca/authenticate"
	"istio.io/istio/security/pkg/server/ca/authenticate/kubeauth"
)

const (
	clusterID   = "Kubernetes"
	trustDomain = "cluster.local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1) //nolint:forbidigo,gocritic // a program, in which nothing is left to stop
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file`")
	material := flag.String("material", "", "`directory` in the layout of cacerts")
	listen := flag.String("listen", "127.0.0.1:15012", "`address` for certificate requests")
	pages := flag.String("http", "127.0.0.1:15014", "`address` for /readyz")
	name := flag.String("server-name", "istiod.istio-system.svc", "DNS name in the serving certificate")
	flag.Parse()

	authority, err := newAuthority(*material)
	if err != nil {
		return err
	}
	client, err := newClient(*kubeconfig)
	if err != nil {
		return err
	}
	server, err := newServer(ctx, authority, client)
	if err != nil {
		return err
	}
	config, err := serving(authority, *name)
	if err != nil {
		return err
	}
	g := grpc.NewServer(append(istiogrpc.ServerOptions(keepalive.DefaultOption(), func(int64) {}), grpc.Creds(credentials.NewTLS(config)))...)
	server.Register(g)

	var ready atomic.Bool
	go http.ListenAndServe(*pages, readiness(&ready)) //nolint:errcheck,gosec // the test sees that it is not there
	client.RunAndWait(ctx.Done())
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	ready.Store(true)
	go func() { <-ctx.Done(); g.Stop() }()
	return g.Serve(l)
}

// newAuthority loads plugged-in material, with the lifetimes that istiod has.
func newAuthority(dir string) (*pkica.IstioCA, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	o, err := pkica.NewPluggedCertIstioCAOptions(pkica.SigningCAFileBundle{
		RootCertFile: in("root-cert.pem"), CertChainFiles: []string{in("cert-chain.pem")},
		SigningCertFile: in("ca-cert.pem"), SigningKeyFile: in("ca-key.pem"),
	}, 24*time.Hour, 90*24*time.Hour, 2048)
	if err != nil {
		return nil, err
	}
	return pkica.NewIstioCA(o)
}

func newClient(kubeconfig string) (kube.Client, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	rc.QPS, rc.Burst = 80, 160 // as istiod's flags have it
	return kube.NewClient(kube.NewClientConfigForRestConfig(rc), clusterID)
}

func newServer(ctx context.Context, authority *pkica.IstioCA, client kube.Client) (*serverca.Server, error) {
	clusters := multicluster.NewFakeController()
	mesh := meshwatcher.NewTestWatcher(nil)
	s, err := serverca.New(authority, 24*time.Hour, []security.Authenticator{
		&authenticate.ClientCertAuthenticator{},
		kubeauth.NewKubeJWTAuthenticator(mesh, client.Kube(), clusterID, nil, nil),
	}, clusters)
	if err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	go func() { <-ctx.Done(); close(stop) }()
	clusters.Add(clusterID, client, stop)
	return s, nil
}

// serving is istiod's TLS configuration, with a certificate of its own CA.
func serving(authority *pkica.IstioCA, name string) (*tls.Config, error) {
	cert, key, err := authority.GenKeyCert([]string{name}, 24*time.Hour, false)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	verifier := spiffe.NewPeerCertVerifier()
	if err := verifier.AddMappingFromPEM(trustDomain, authority.GetCAKeyCertBundle().GetRootCertPem()); err != nil {
		return nil, fmt.Errorf("reading the roots: %w", err)
	}
	return &tls.Config{
		Certificates:          []tls.Certificate{pair},
		ClientAuth:            tls.VerifyClientCertIfGiven,
		ClientCAs:             verifier.GetGeneralCertPool(),
		VerifyPeerCertificate: verifier.VerifyPeerCert, //nolint:gosec // as istiod has it
		MinVersion:            tls.VersionTLS12,
	}, nil
}

func readiness(ready *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
}

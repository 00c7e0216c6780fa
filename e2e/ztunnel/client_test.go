package ztunnel

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A server signs whatever it is asked for, and shows what it was asked.
type server struct {
	pb.UnimplementedIstioCertificateServiceServer

	t           *testing.T
	addr        string
	root        *issuer
	connections atomic.Int64
	hold        func(context.Context) // before it answers

	mu      sync.Mutex
	hello   *tls.ClientHelloInfo
	headers metadata.MD
	request *pb.IstioCertificateRequest
	timed   bool // the client has said how long it waits
}

// serving is how the server of a test differs from the usual one.
type serving struct {
	leaf func(*x509.Certificate)
	tls  func(*tls.Config)
	hold func(context.Context)
	addr string
}

func (o serving) start(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, root: newIssuer(t, "root", nil), hold: o.hold}
	template := &x509.Certificate{
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: []string{"ca.test", "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if o.leaf != nil {
		o.leaf(template)
	}
	key := newKey(t)
	own := tls.Certificate{Certificate: [][]byte{s.root.sign(t, template, key).Raw}, PrivateKey: key}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"}}
	if o.tls != nil {
		o.tls(config)
	}
	inner := config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		s.connections.Add(1)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hello = hello
		return inner, nil
	}
	if o.addr == "" {
		o.addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = listener.Addr().String()
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	pb.RegisterIstioCertificateServiceServer(g, s)
	go g.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(g.Stop)
	return s
}

func (s *server) CreateCertificate(ctx context.Context, r *pb.IstioCertificateRequest) (*pb.IstioCertificateResponse, error) {
	s.mu.Lock()
	s.request = r
	s.headers, _ = metadata.FromIncomingContext(ctx)
	_, s.timed = ctx.Deadline()
	s.mu.Unlock()
	if s.hold != nil {
		s.hold(ctx)
	}
	block, _ := pem.Decode([]byte(r.GetCsr()))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{URIs: csr.URIs, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	return &pb.IstioCertificateResponse{CertChain: []string{encode(s.root.sign(s.t, leaf, &ecdsa.PrivateKey{PublicKey: *csr.PublicKey.(*ecdsa.PublicKey)})), encode(s.root.cert)}}, nil
}

// config reaches the server by the address that it listens on.
func (s *server) config() Config {
	return Config{Address: s.addr, Roots: []byte(encode(s.root.cert)), ClusterID: "Kubernetes", TTL: 24 * time.Hour}
}

func newTestClient(t *testing.T, c Config) *Client {
	t.Helper()
	client, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over
	return client
}

func writeToken(t *testing.T, file, token string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRequest(t *testing.T) {
	s := serving{}.start(t)
	c := s.config()
	c.TokenFile, c.TTL = filepath.Join(t.TempDir(), "token"), 90*time.Second+time.Millisecond
	writeToken(t, c.TokenFile, "t1")
	client := newTestClient(t, c)
	soon, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cert, err := client.Fetch(soon, named("cart"))
	if err != nil {
		t.Fatal(err)
	}
	// [1.1] What is sent, and nothing else of it.
	got := map[string][]string{}
	for _, name := range []string{"authorization", "clusterid", ":authority", "content-type", "grpc-timeout"} {
		got[name] = s.headers.Get(name)
	}
	want := map[string][]string{
		"authorization": {"Bearer t1"}, "clusterid": {"Kubernetes"}, ":authority": {s.addr},
		"content-type": {"application/grpc"}, "grpc-timeout": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" || s.timed {
		t.Errorf("deadline %v, headers:\n%s", s.timed, diff)
	}
	wanted := map[string]any{"ImpersonatedIdentity": "spiffe://cluster.local/ns/shop/sa/cart"}
	if diff := cmp.Diff(wanted, s.request.GetMetadata().AsMap()); diff != "" || s.request.GetValidityDuration() != 90 {
		t.Errorf("for %d s, metadata:\n%s", s.request.GetValidityDuration(), diff)
	}
	// [1.1] The token is read for each request, and each has a key of its own.
	writeToken(t, c.TokenFile, "t2")
	again, err := client.Fetch(t.Context(), named("cart"))
	if err != nil || s.headers.Get("authorization")[0] != "Bearer t2" || again.Key.Equal(cert.Key) {
		t.Errorf("the second time: %v, %v", err, s.headers.Get("authorization"))
	}
	// [1.3] Over one connection, on which the client shows no certificate.
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestDedicatedModeSendsNoMetadata(t *testing.T) { // [1.1]
	s := serving{}.start(t)
	c := s.config()
	c.Dedicated, c.TTL = true, 0
	if _, err := newTestClient(t, c).Fetch(t.Context(), named("cart")); err != nil {
		t.Fatal(err)
	}
	if s.request.Metadata != (*structpb.Struct)(nil) || s.request.GetValidityDuration() != 0 {
		t.Errorf("sent %v", s.request)
	}
	// [1.1] Without a token neither header.
	if a, b := s.headers.Get("authorization"), s.headers.Get("clusterid"); len(a)+len(b) > 0 {
		t.Errorf("sent %q and %q", a, b)
	}
}

func TestTokensThatAreNotSent(t *testing.T) { // [1.1]
	s := serving{}.start(t)
	for name, token := range map[string]string{"missing": "", "empty": "", "line end": "t\n"} {
		c := s.config()
		c.TokenFile = filepath.Join(t.TempDir(), "token")
		if name != "missing" {
			writeToken(t, c.TokenFile, token)
		}
		if _, err := newTestClient(t, c).Fetch(t.Context(), named("cart")); err == nil || !strings.Contains(err.Error(), "reading the token") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s.connections.Load() > 0 {
		t.Error("it has connected")
	}
}

func TestCSR(t *testing.T) { // [1.5]
	key, text, err := newRequest(Identity{"", "Not a", "name"})
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode([]byte(text))
	if block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 || len(block.Headers) > 0 {
		t.Errorf("sent %q", text)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil || csr.SignatureAlgorithm != x509.ECDSAWithSHA256 || key.Curve != elliptic.P256() || !key.PublicKey.Equal(csr.PublicKey) {
		t.Errorf("%v, %v, for %v", err, csr.SignatureAlgorithm, csr.PublicKey)
	}
	if len(csr.Subject.Names) > 0 || len(csr.Extensions) != 1 {
		t.Fatalf("subject %v, extensions %v", csr.Subject, csr.Extensions)
	}
	const uri = "spiffe:///ns/Not a/sa/name" // [2.6] what a workload without a trust domain gets
	e := csr.Extensions[0]
	value := append([]byte{0x30, byte(len(uri) + 2), 0x86, byte(len(uri))}, uri...)
	if !e.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) || !e.Critical || string(e.Value) != string(value) {
		t.Errorf("extension %v", e)
	}
}

func TestConnection(t *testing.T) {
	for _, tt := range []struct {
		name    string
		serving serving
		config  func(*Config)
		want    string // is in the error, if there should be one
	}{
		{"by IP address [1.3]", serving{}, nil, ""},
		{"by name [1.3]", serving{}, func(c *Config) { c.Address = strings.Replace(c.Address, "127.0.0.1", "localhost", 1) }, ""},
		{"a name that is not the server's [1.3]", serving{leaf: func(c *x509.Certificate) { c.IPAddresses = nil }}, nil, "127.0.0.1"},
		{"but the other one is [1.3]", serving{leaf: func(c *x509.Certificate) { c.IPAddresses = nil }}, func(c *Config) { c.AltHostname = "ca.test" }, ""},
		{"the other one is not the server's either [1.3]", serving{leaf: func(c *x509.Certificate) { c.IPAddresses = nil }}, func(c *Config) { c.AltHostname = "b.test" }, "b.test"},
		{"the other one is not the server's, and need not be [1.3]", serving{}, func(c *Config) { c.AltHostname = "b.test" }, ""},
		{"for clients only [1.3]", serving{leaf: func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }}, nil, "incompatible key usage"},
		{"without an EKU [1.3]", serving{leaf: func(c *x509.Certificate) { c.ExtKeyUsage = nil }}, nil, ""},
		{"a CA for a server [1.3]", serving{leaf: func(c *x509.Certificate) { c.IsCA = true }}, nil, "is a CA's"},
		{"roots that are none [1.2]", serving{}, func(c *Config) { c.Roots = []byte("/no/such/file") }, "unknown authority"},
		{"a server that wants a client's certificate [1.3]", serving{tls: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }}, nil, "certificate"},
		{"TLS 1.2 at most [1.4]", serving{tls: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }}, nil, "protocol version"},
		{"a classical server [1.4]", serving{tls: func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256} }}, nil, ""},
		{"with the post-quantum policy [1.4]", serving{}, pqc, ""},
		{"with it, and a classical server [1.4]", serving{tls: func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.CurveP256, tls.X25519} }}, pqc, "handshake failure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.serving.start(t)
			c := s.config()
			if tt.config != nil {
				tt.config(&c)
			}
			_, err := newTestClient(t, c).Fetch(t.Context(), named("cart"))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func pqc(c *Config) { c.Groups = []tls.CurveID{tls.X25519MLKEM768} }

func TestHello(t *testing.T) {
	s := serving{}.start(t)
	c := s.config()
	c.AltHostname = "ca.test"
	for address, want := range map[string]string{ // [1.3] SNI is the host, whatever else may be in the certificate
		s.addr: "",
		strings.Replace(s.addr, "127.0.0.1", "localhost", 1): "localhost",
	} {
		c.Address = address
		if _, err := newTestClient(t, c).Fetch(t.Context(), named("cart")); err != nil {
			t.Fatal(err)
		}
		if got := s.hello.ServerName; got != want {
			t.Errorf("the SNI for %s is %q, want %q", address, got, want)
		}
		if diff := cmp.Diff([]string{"h2"}, s.hello.SupportedProtos); diff != "" {
			t.Errorf("[1.3] ALPN: %s", diff)
		}
	}
}

func TestNoChaCha20(t *testing.T) { // [1.4]
	config, err := Config{Address: "ca.test:1"}.tls()
	if err != nil {
		t.Fatal(err)
	}
	err = config.VerifyConnection(tls.ConnectionState{CipherSuite: tls.TLS_CHACHA20_POLY1305_SHA256})
	if err == nil || !strings.Contains(err.Error(), "CHACHA20") {
		t.Errorf("%v", err)
	}
}

func TestManyFetchesOneConnection(t *testing.T) { // [1.3]
	var open sync.WaitGroup
	open.Add(8)
	s := serving{hold: func(context.Context) { open.Done(); open.Wait() }}.start(t) // none is answered before all are there
	client := newTestClient(t, s.config())
	var fetches sync.WaitGroup
	for range 8 {
		fetches.Go(func() {
			if _, err := client.Fetch(t.Context(), named("cart")); err != nil {
				t.Error(err)
			}
		})
	}
	fetches.Wait()
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

func TestServerThatHangs(t *testing.T) { // [1.3]
	begun := make(chan struct{})
	s := serving{hold: func(ctx context.Context) { close(begun); <-ctx.Done() }}.start(t)
	client := newTestClient(t, s.config())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := client.Fetch(ctx, named("cart")); done <- err }()
	<-begun
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
}

func TestServerThatIsNotThere(t *testing.T) { // [1.3]
	s := serving{}.start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := s.config()
	c.Address = listener.Addr().String()
	listener.Close() //nolint:errcheck // it was there for its number
	client := newTestClient(t, c)
	for range 3 {
		if _, err := client.Fetch(t.Context(), named("cart")); status.Code(err) != codes.Unavailable {
			t.Errorf("fetched from nobody: %v", err)
		}
	}
	// The next request connects, without a pause.
	late := serving{addr: c.Address}.start(t)
	client.tls.VerifyConnection = nil // its root is a new one
	if _, err := client.Fetch(t.Context(), named("cart")); err != nil || late.connections.Load() != 1 {
		t.Errorf("with a server: %v, %d connections", err, late.connections.Load())
	}
}

func TestLocalErrorsAreNotTheServers(t *testing.T) {
	if _, err := NewClient(Config{Address: "no-port"}); err == nil || !strings.Contains(err.Error(), "no-port") {
		t.Errorf("an address without a port: %v", err)
	}
}

package conformance

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A fake is a small authority that is as the suite wants it. Its steps are
// functions; a test breaks one, and sees which cases notice.
type fake struct {
	pb.UnimplementedIstioCertificateServiceServer

	cluster *cluster
	path    []*signer // who signs leaves, and who signed it, without the root
	roots   []*signer // the first is on the path

	most    int // bytes of a message
	request func(*pb.IstioCertificateRequest) error
	decide  func(token, wanted string) (identity string, err error)
	csr     func(text, identity string) (*x509.CertificateRequest, error)
	life    func(seconds int64) (time.Duration, error)
	leaf    func(*x509.Certificate, *x509.CertificateRequest)
	der     func([]byte) []byte // the leaf, signed
	reply   func([]string) []string

	issuer func(*x509.Certificate) // when it is made, as all below
	root   func(*x509.Certificate)
	layout func(*fake)

	patience time.Duration   // of who asks
	stopped  <-chan struct{} // closed when the test ends
}

// A fault breaks a fake.
type fault func(*fake)

// A signer is an authority's certificate and key.
type signer struct {
	*x509.Certificate

	key crypto.Signer
}

func (s *signer) pem() string { return armoured("CERTIFICATE", s.Raw) }

// newFake makes an authority with two issuers and two roots.
func newFake(t *testing.T, c *cluster, breaks ...fault) *fake {
	t.Helper()
	f := &fake{cluster: c, life: goodLife, csr: goodCSR, most: 1 << 16, patience: 20 * time.Second, stopped: t.Context().Done()}
	f.decide = c.decide
	f.request = func(*pb.IstioCertificateRequest) error { return nil }
	nothing := func(*x509.Certificate) {}
	f.leaf = func(*x509.Certificate, *x509.CertificateRequest) {}
	f.issuer, f.root, f.layout = nothing, nothing, func(*fake) {}
	f.der = func(der []byte) []byte { return der }
	f.reply = func(elements []string) []string { return elements }
	for _, b := range breaks {
		b(f)
	}
	for i := range 2 {
		f.roots = append(f.roots, newSigner(t, fmt.Sprint("root ", i), nil, f.root))
	}
	upper := newSigner(t, "upper", f.roots[0], f.issuer)
	f.path = []*signer{newSigner(t, "lower", upper, f.issuer), upper}
	f.layout(f)
	return f
}

func newSigner(t *testing.T, name string, parent *signer, change func(*x509.Certificate)) *signer {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	return newSignerOf(t, key, name, parent, change)
}

func newSignerOf(t *testing.T, key crypto.Signer, name string, parent *signer, change func(*x509.Certificate)) *signer {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: random128(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	change(template)
	if parent == nil {
		parent = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}

func random128() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	return new(big.Int).SetBytes(b)
}

// target serves the fake until the test ends.
func (f *fake) target(t *testing.T) Target {
	t.Helper()
	root := newSigner(t, "serving root", nil, func(*x509.Certificate) {})
	serving := newSigner(t, "serving", root, func(c *x509.Certificate) {
		c.IsCA, c.KeyUsage, c.DNSNames = false, x509.KeyUsageDigitalSignature, []string{"authority.test"}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair := tls.Certificate{Certificate: [][]byte{serving.Raw}, PrivateKey: serving.key}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})), grpc.MaxRecvMsgSize(f.most))
	pb.RegisterIstioCertificateServiceServer(s, f)
	go s.Serve(l) //nolint:errcheck // stopped below
	t.Cleanup(s.Stop)
	return Target{
		Address: l.Addr().String(), ServerName: "authority.test", Roots: []*x509.Certificate{root.Certificate},
		TrustDomain: "cluster.local", ClusterID: "Kubernetes", Audience: "istio-ca",
		NodeAgentNamespace: "istio-system", NodeAgentName: "ztunnel", Settle: 10 * time.Millisecond,
	}
}

// keys are slow to make, and all tests share them.
var keys keyring

// play runs cases against a fake, in a new cluster.
func play(t *testing.T, cases []Case, breaks ...fault) map[string]Result {
	t.Helper()
	c := newCluster()
	f := newFake(t, c, breaks...)
	stage, err := newStage(t.Context(), &Config{Target: f.target(t), World: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stage.conn.Close() }) //nolint:errcheck // all is over
	stage.keys, stage.patience = &keys, f.patience
	results := map[string]Result{}
	for _, one := range cases {
		results[one.ID] = stage.play(t.Context(), one)
	}
	return results
}

func (f *fake) CreateCertificate(ctx context.Context, in *pb.IstioCertificateRequest) (*pb.IstioCertificateResponse, error) {
	if err := f.request(in); err != nil {
		return nil, err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	token := strings.TrimPrefix(strings.Join(md["authorization"], " "), "Bearer ")
	wanted := in.GetMetadata().GetFields()["ImpersonatedIdentity"]
	if _, ok := wanted.GetKind().(*structpb.Value_StringValue); wanted != nil && !ok {
		return nil, status.Error(codes.InvalidArgument, "metadata")
	}
	id, err := f.decide(token, wanted.GetStringValue())
	if err != nil {
		return nil, err
	}
	csr, err := f.csr(in.GetCsr(), id)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	life, err := f.life(in.GetValidityDuration())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	leaf, err := f.sign(id, life, csr)
	if err != nil {
		return nil, err
	}
	return &pb.IstioCertificateResponse{CertChain: f.reply(f.elements(leaf))}, nil
}

func (f *fake) sign(id string, life time.Duration, csr *x509.CertificateRequest) ([]byte, error) {
	san, err := uriSAN(true, id)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: random128(), ExtraExtensions: []pkix.Extension{san},
		NotBefore: time.Now().Add(-min(life/5, 2*time.Minute)), NotAfter: time.Now().Add(life),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if _, ok := csr.PublicKey.(*rsa.PublicKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	f.leaf(template, csr)
	der, err := x509.CreateCertificate(rand.Reader, template, f.path[0].Certificate, csr.PublicKey, f.path[0].key)
	return f.der(der), err
}

func (f *fake) elements(leaf []byte) []string {
	all := []string{armoured("CERTIFICATE", leaf)}
	for _, s := range f.path {
		all = append(all, s.pem())
	}
	bundle := ""
	for _, r := range f.roots {
		bundle += r.pem()
	}
	return append(all, bundle)
}

// goodLife caps at a day, and draws back a little at random.
func goodLife(seconds int64) (time.Duration, error) {
	const most = 24 * time.Hour
	switch {
	case seconds == 0 || seconds >= 24*3600 && seconds < 1<<32:
		return most - mathrand.N(most/20), nil
	case seconds < 600 || seconds >= 1<<32:
		return 0, fmt.Errorf("a lifetime of %d seconds", seconds)
	}
	life := time.Duration(seconds) * time.Second
	return life - mathrand.N(life/20), nil
}

// A csrRule is what a fake wants of a CSR.
type csrRule struct {
	plain func(text string, block *pem.Block) bool
	key   func(crypto.PublicKey) bool
	names func(csr *x509.CertificateRequest, id string) bool
	proof func(*x509.CertificateRequest) error
}

func goodRule() csrRule {
	return csrRule{plain: plainCSR, key: goodKey, names: namesNone, proof: (*x509.CertificateRequest).CheckSignature}
}

func goodCSR(text, id string) (*x509.CertificateRequest, error) { return goodRule().read(text, id) }

func (r csrRule) read(text, id string) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || !r.plain(text, block) {
		return nil, fmt.Errorf("not one block: %d bytes", len(text))
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !r.key(csr.PublicKey) || !r.names(csr, id) {
		return nil, fmt.Errorf("a key of type %T, names %v", csr.PublicKey, csr.URIs)
	}
	return csr, r.proof(csr)
}

func plainCSR(text string, block *pem.Block) bool {
	return len(text) <= 16<<10 && armoured("CERTIFICATE REQUEST", block.Bytes) == text
}

func goodKey(k crypto.PublicKey) bool {
	switch k := k.(type) {
	case *ecdsa.PublicKey:
		return k.Curve != elliptic.P224()
	case *rsa.PublicKey:
		return k.E > 1 && k.N.BitLen() >= 2048 && k.N.BitLen() <= 4096
	}
	return false
}

// namesNone reports whether a CSR names no other identity.
func namesNone(csr *x509.CertificateRequest, id string) bool {
	for _, u := range csr.URIs {
		if u.Scheme == "spiffe" && u.String() != id {
			return false
		}
	}
	return true
}

// A cluster is a World in memory.
type cluster struct {
	mu     sync.Mutex
	last   int
	uids   map[string]string // of nodes and accounts
	pods   map[string]*clusterPod
	tokens map[string]TokenRequest
}

type clusterPod struct {
	PodSpec

	uid string
}

func newCluster() *cluster {
	return &cluster{uids: map[string]string{}, pods: map[string]*clusterPod{}, tokens: map[string]TokenRequest{}}
}

// made returns the UID of an object, a new one if there is none.
func (c *cluster) made(key string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uids[key] == "" {
		c.last++
		c.uids[key] = fmt.Sprint("uid-", c.last)
	}
	return c.uids[key], nil
}

func (c *cluster) Node(_ context.Context, name string) (string, error) { return c.made("node " + name) }

func (c *cluster) Account(_ context.Context, namespace, name string) (string, error) {
	return c.made("account " + namespace + "/" + name)
}

func (c *cluster) Pod(_ context.Context, p PodSpec) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	uid := fmt.Sprint("uid-", c.last)
	c.pods[p.Namespace+"/"+p.Name] = &clusterPod{p, uid}
	return uid, nil
}

func (c *cluster) SetPhase(_ context.Context, namespace, pod, phase string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[namespace+"/"+pod].Phase = phase
	return nil
}

func (c *cluster) DeletePod(_ context.Context, namespace, name string, grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if grace == 0 {
		delete(c.pods, namespace+"/"+name)
	}
	return nil
}

func (c *cluster) DeleteNode(_ context.Context, name string) error { return c.gone("node " + name) }

func (c *cluster) DeleteAccount(_ context.Context, namespace, name string) error {
	return c.gone("account " + namespace + "/" + name)
}

func (c *cluster) gone(key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.uids, key)
	return nil
}

func (c *cluster) Token(_ context.Context, r TokenRequest) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	token := fmt.Sprint("token-", c.last)
	c.tokens[token] = r
	return token, nil
}

func (c *cluster) Close(context.Context) error { return nil }

// decide is the node rule in a few lines.
func (c *cluster) decide(token, wanted string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.tokens[token]
	pod := c.pods[r.Namespace+"/"+r.BoundName]
	if !ok || pod == nil || pod.uid != r.BoundUID || pod.Account != r.Account || !slices.Equal(r.Audiences, []string{"istio-ca"}) {
		return "", status.Error(codes.Unauthenticated, "no such caller")
	}
	own := identity(pod.PodSpec)
	if wanted == "" || wanted == own {
		return own, nil
	}
	if own != "spiffe://cluster.local/ns/istio-system/sa/ztunnel" || !c.runs(wanted, pod.Node) {
		return "", status.Error(codes.PermissionDenied, "not on the node")
	}
	return wanted, nil
}

func identity(p PodSpec) string {
	return "spiffe://cluster.local/ns/" + p.Namespace + "/sa/" + p.Account
}

func (c *cluster) runs(id, node string) bool {
	for _, p := range c.pods {
		if p.Node == node && identity(p.PodSpec) == id && p.Phase != "Succeeded" && p.Phase != "Failed" && !p.Mirror {
			return true
		}
	}
	return false
}

package server_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

var (
	noon = time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)
	td   = spiffeid.RequireTrustDomainFromString("cluster.local")
	zt   = authz.Caller{
		ServiceAccount: authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"}, ServiceAccountUID: "ua",
		Pod: "zt-1", PodUID: "up", Node: "n1", NodeUID: "un", TokenID: "jti-1",
	}
)

const cartID = "spiffe://cluster.local/ns/shop/sa/cart"

// everything is an inventory in which whatever is asked for is so.
type everything struct{ live int }

func (e everything) Look(_ time.Time, q authz.Query) (authz.Facts, error) {
	c := q.Caller
	return authz.Facts{
		CallerAccount: authz.Account{UID: c.ServiceAccountUID},
		CallerPod:     authz.Pod{UID: c.PodUID, Account: c.ServiceAccount, Node: c.Node},
		Node:          authz.Node{UID: c.NodeUID},
		TargetAccount: authz.Account{UID: "ut"},
		Live:          e.live, LiveUID: "uc",
	}, nil
}

func (e everything) Confirm(_ context.Context, q authz.Query, _ func(authz.Facts) bool) (authz.Facts, error) {
	return e.Look(noon, q)
}

// A record is text that a server writes, and a test reads meanwhile.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements [io.Writer].
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// A rig is a server whose steps work, until a test breaks one.
type rig struct {
	cfg     server.Config
	audit   record
	log     record
	metrics *prometheus.Registry
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{metrics: prometheus.NewRegistry()}
	policy := &authz.Policy{TrustDomain: td, NodeAgents: []authz.ServiceAccount{zt.ServiceAccount}, Inventory: everything{live: 1}, Now: func() time.Time { return noon }}
	authority := newAuthority(t, noon)
	r.cfg = server.Config{
		Authenticate: func(context.Context, []string, []string) (authz.Caller, error) { return zt, nil },
		Authorize:    policy.Authorize,
		NodeAgent:    func(sa authz.ServiceAccount) bool { return sa == zt.ServiceAccount },
		Authority:    func() *ca.Authority { return authority },
		Audit:        slog.NewJSONHandler(&r.audit, nil),
		Log:          slog.New(slog.NewJSONHandler(&r.log, nil)),
		Metrics:      r.metrics,
		Now:          func() time.Time { return noon },
	}
	return r
}

func newAuthority(t testing.TB, now time.Time) *ca.Authority {
	t.Helper()
	m, err := material.Make(now)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ca.NewAuthority(now, m, ca.DefaultProfile(td))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask calls the server as gRPC would.
func (r *rig) ask(t testing.TB, req *authpb.IstioCertificateRequest) (*authpb.IstioCertificateResponse, error) {
	t.Helper()
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s.CreateCertificate(t.Context(), req)
}

// forCart asks for the identity of shop/cart.
func forCart(t testing.TB, uris ...string) *authpb.IstioCertificateRequest {
	t.Helper()
	return &authpb.IstioCertificateRequest{Csr: newCSR(t, uris...), Metadata: impersonate(structpb.NewStringValue(cartID))}
}

func impersonate(v *structpb.Value) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": v}}
}

func newEd25519CSR(t testing.TB) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return toCSR(t, &x509.CertificateRequest{}, key)
}

func newCSR(t testing.TB, uris ...string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	return toCSR(t, template, key)
}

func toCSR(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// TestAnswers breaks one step at a time, and compares what the client is told
// with what the audit log and the metric say.
func TestAnswers(t *testing.T) {
	secret := errors.New("dial tcp 10.0.0.1:443: refused")
	authenticate := func(err error) func(*server.Config) {
		return func(c *server.Config) {
			c.Authenticate = func(context.Context, []string, []string) (authz.Caller, error) { return authz.Caller{}, err }
		}
	}
	authorize := func(err error) func(*server.Config) {
		return func(c *server.Config) {
			c.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) { return authz.Grant{}, err }
		}
	}
	denied := func(r authz.Reason) func(*server.Config) { return authorize(authz.Deny(r, "%v", secret)) }
	stranger := func(c *server.Config) { c.NodeAgent = func(authz.ServiceAccount) bool { return false } }
	for _, tt := range []struct {
		name    string
		breaks  []func(*server.Config)
		change  func(*authpb.IstioCertificateRequest)
		code    codes.Code
		outward string
		reason  string
	}{
		{"[TOK-1] a token for another audience", []func(*server.Config){authenticate(authz.Deny(authz.WrongAudience, "%v", secret))}, nil, codes.Unauthenticated, "unauthenticated", "wrong-audience"},
		{"[TOK-4] a caller that has gone", []func(*server.Config){denied(authz.CallerGone)}, nil, codes.Unauthenticated, "unauthenticated", "caller-gone"},
		{"a caller that has finished", []func(*server.Config){denied(authz.CallerDone)}, nil, codes.Unauthenticated, "unauthenticated", "caller-finished"},
		{"a token that cannot be checked now", []func(*server.Config){authenticate(&authz.Undecided{Reason: authz.KeysTooOld, Err: secret})}, nil, codes.Unavailable, "cannot tell now, try again", "keys-too-old"},
		{"[NODE-1] an identity that is elsewhere", []func(*server.Config){denied(authz.NotOnNode)}, nil, codes.PermissionDenied, "not-on-node", "not-on-node"},
		{"...for a caller that is no node agent", []func(*server.Config){denied(authz.NotOnNode), stranger}, nil, codes.PermissionDenied, "denied", "not-on-node"},
		{"a node that is another", []func(*server.Config){denied(authz.NodeMismatch)}, nil, codes.PermissionDenied, "node-mismatch", "node-mismatch"},
		{"...for a caller that is no node agent", []func(*server.Config){denied(authz.NodeMismatch), stranger}, nil, codes.PermissionDenied, "denied", "node-mismatch"},
		{"any other denial, for a node agent too", []func(*server.Config){denied(authz.Protected)}, nil, codes.PermissionDenied, "denied", "protected"},
		{"an evicted node", []func(*server.Config){denied(authz.Evicted)}, nil, codes.PermissionDenied, "denied", "evicted"},
		{"a token without node", []func(*server.Config){denied(authz.NoNode)}, nil, codes.PermissionDenied, "denied", "no-node"},
		{"a caller that is no node agent", []func(*server.Config){denied(authz.NotANodeAgent), stranger}, nil, codes.PermissionDenied, "denied", "not-a-node-agent"},
		{"[CSR-7] an identity that does not parse", nil, func(r *authpb.IstioCertificateRequest) {
			r.Metadata = impersonate(structpb.NewStringValue("spiffe://cluster.local/ns/shop/sa/cart/"))
		}, codes.PermissionDenied, "denied", "bad-identity"},
		{"a view that is too old", []func(*server.Config){authorize(&authz.Undecided{Reason: authz.Stale, Err: secret})}, nil, codes.Unavailable, "cannot tell now, try again", "stale"},
		{"an error that matches undecided", []func(*server.Config){authorize(fmt.Errorf("%w: %w", authz.ErrUndecided, secret))}, nil, codes.Unavailable, "cannot tell now, try again", "api-trouble"},
		{"an error of no kind", []func(*server.Config){authorize(secret)}, nil, codes.Internal, "internal error", "internal"},
		{"[T29] a panic", []func(*server.Config){func(c *server.Config) { c.Authorize = nil }}, nil, codes.Internal, "internal error", "internal"},
		{"nothing to sign with", []func(*server.Config){func(c *server.Config) { c.Authority = func() *ca.Authority { return nil } }}, nil, codes.Unavailable, "cannot tell now, try again", "no-authority"},
		{"an issuer that ends too soon", []func(*server.Config){func(c *server.Config) {
			c.Now = func() time.Time { return noon.Add(365*24*time.Hour - time.Minute) }
		}}, nil, codes.Unavailable, "cannot tell now, try again", "issuer-expiring"},
		{"no CSR", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = "" }, codes.InvalidArgument, "bad-csr", "bad-csr"},
		{"[NODE-1] a CSR that names another", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = newCSR(t, "spiffe://cluster.local/ns/shop/sa/pay") }, codes.InvalidArgument, "csr-names-another", "csr-names-another"},
		{"[CSR-3] a CSR with a key of a kind that is not allowed", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = newEd25519CSR(t) }, codes.InvalidArgument, "bad-key", "bad-key"},
		{"[CSR-6] a CSR with an RSA key of 16384 bits", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = fixture(t, "rsa-16384.csr") }, codes.InvalidArgument, "bad-key", "bad-key"},
		{"[CSR-7] a CSR that spells its identity in another way", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = newCSR(t, cartID+"/") }, codes.InvalidArgument, "csr-names-another", "csr-names-another"},
		{"a negative life", nil, func(r *authpb.IstioCertificateRequest) { r.ValidityDuration = -1 }, codes.InvalidArgument, "bad-lifetime", "bad-lifetime"},
		{"an identity that is a number", nil, func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(structpb.NewNumberValue(1)) }, codes.InvalidArgument, "bad-metadata", "bad-metadata"},
		{"an identity that is a list", nil, func(r *authpb.IstioCertificateRequest) {
			r.Metadata = impersonate(structpb.NewListValue(&structpb.ListValue{}))
		}, codes.InvalidArgument, "bad-metadata", "bad-metadata"},
		{"an identity that is null", nil, func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(structpb.NewNullValue()) }, codes.InvalidArgument, "bad-metadata", "bad-metadata"},
		{"an identity that is nothing", nil, func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(nil) }, codes.InvalidArgument, "bad-metadata", "bad-metadata"},
		{"an identity that is empty", nil, func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(structpb.NewStringValue("")) }, codes.InvalidArgument, "bad-metadata", "bad-metadata"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			for _, b := range tt.breaks {
				b(&r.cfg)
			}
			req := forCart(t)
			if tt.change != nil {
				tt.change(req)
			}
			resp, err := r.ask(t, req)
			if resp != nil {
				t.Errorf("a reply of %d certificates along with %v", len(resp.GetCertChain()), err)
			}
			r.wantRefused(t, err, tt.code, tt.outward, tt.reason)
		})
	}
}

// wantRefused compares an error with the audit log and the metric, each of
// which must have it once, and in the same word.
func (r *rig) wantRefused(t *testing.T, err error, code codes.Code, outward, reason string) {
	t.Helper()
	st := status.Convert(err)
	var line struct{ RequestID, Reason, Code, Detail string }
	if err := json.Unmarshal([]byte(r.audit.String()), &line); err != nil {
		t.Fatalf("the audit log is not one line: %v\n%s", err, r.audit.String())
	}
	if want := fmt.Sprintf("%s (request %s)", outward, line.RequestID); st.Code() != code || st.Message() != want {
		t.Errorf("answered %v %q, want %v %q", st.Code(), st.Message(), code, want)
	}
	if line.Reason != reason || line.Code != code.String() || line.Detail == "" {
		t.Errorf("recorded %s (%s): %q; want %s (%s)", line.Reason, line.Code, line.Detail, reason, code)
	}
	info, _ := st.Details()[0].(*errdetails.ErrorInfo)
	if info.GetReason() != outward || info.GetDomain() != "bailiwick" || info.GetMetadata()["requestId"] != line.RequestID {
		t.Errorf("ErrorInfo is %v", info)
	}
	if strings.Contains(fmt.Sprint(st.Proto()), "10.0.0.1") {
		t.Errorf("the client was told %v", st.Proto())
	}
	want := fmt.Sprintf("# HELP bailiwick_requests_total Certificate requests, by gRPC code and the reason why there was no certificate (empty if there was).\n# TYPE bailiwick_requests_total counter\nbailiwick_requests_total{code=%q,reason=%q} 1\n", code, reason)
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(want), "bailiwick_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestIssued(t *testing.T) {
	r := newRig(t)
	resp, err := r.ask(t, forCart(t, cartID))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.GetCertChain()); n != 3 {
		t.Fatalf("%d elements, want leaf, issuer and roots", n)
	}
	leaf := parse(t, resp.GetCertChain()[0])
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != cartID {
		t.Errorf("the leaf names %v", leaf.URIs)
	}
	got := r.audit.String()
	want := fmt.Sprintf(`"msg":"issued","requestId":"ID","peer":"","caller":{"namespace":"istio-system","serviceAccount":"ztunnel","pod":"zt-1","podUid":"up","node":"n1","nodeUid":"un","tokenId":"jti-1"},"identity":"spiffe://cluster.local/ns/shop/sa/cart","serial":"%x","notAfter":"%s","evidence":{"pods":1,"podUid":"uc"}}`,
		leaf.SerialNumber, leaf.NotAfter.Format(time.RFC3339))
	if id := field(t, got, "requestId"); !strings.HasSuffix(strings.TrimSpace(strings.Replace(got, id, "ID", 1)), want) {
		t.Errorf("the audit line is\n%swant it to end with\n%s", got, want)
	}
}

func TestPeerIsOnRecord(t *testing.T) {
	r := newRig(t)
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.1:5000"))})
	if _, err := s.CreateCertificate(ctx, forCart(t)); err != nil {
		t.Fatal(err)
	}
	if got := field(t, r.audit.String(), "peer"); got != "10.0.0.1:5000" {
		t.Errorf("the peer on record is %q", got)
	}
}

func field(t *testing.T, line, name string) string {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatal(err)
	}
	s, _ := fields[name].(string)
	return s
}

func parse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one PEM block: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestOwnIdentity asks with metadata that names no identity.
func TestOwnIdentity(t *testing.T) {
	for _, tt := range []struct {
		name     string
		metadata *structpb.Struct
	}{
		{"no metadata", nil},
		{"empty metadata", &structpb.Struct{}},
		{"what istio-agent sends", &structpb.Struct{Fields: map[string]*structpb.Value{"CertSigner": structpb.NewStringValue("")}}},
		{"a key that nobody knows", &structpb.Struct{Fields: map[string]*structpb.Value{"impersonatedidentity": structpb.NewStringValue(cartID)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, err := newRig(t).ask(t, &authpb.IstioCertificateRequest{Csr: newCSR(t), Metadata: tt.metadata})
			if err != nil {
				t.Fatal(err)
			}
			if got := parse(t, resp.GetCertChain()[0]).URIs[0].String(); got != "spiffe://cluster.local/ns/istio-system/sa/ztunnel" {
				t.Errorf("the leaf names %s", got)
			}
		})
	}
}

// TestDeadline has an inventory that does not answer.
func TestDeadline(t *testing.T) {
	r := newRig(t)
	r.cfg.Limits.Deadline = time.Millisecond
	r.cfg.Authorize = func(ctx context.Context, _ authz.Caller, _ string) (authz.Grant, error) {
		<-ctx.Done()
		return authz.Grant{}, ctx.Err()
	}
	_, err := r.ask(t, forCart(t))
	r.wantRefused(t, err, codes.Unavailable, "cannot tell now, try again", "deadline-passed")
}

// [SRV-4] Nothing is signed for a client that has gone while it was authorized.
func TestNothingIsSignedForWhoHasGone(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	authorize := r.cfg.Authorize
	r.cfg.Authorize = func(ctx context.Context, c authz.Caller, want string) (authz.Grant, error) {
		cancel()
		return authorize(ctx, c, want)
	}
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateCertificate(ctx, forCart(t))
	r.wantRefused(t, err, codes.Canceled, "cannot tell now, try again", "cancelled")
}

// TestNothingSecretIsLogged panics with what the client sent.
func TestNothingSecretIsLogged(t *testing.T) {
	r := newRig(t)
	req := forCart(t)
	r.cfg.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) { panic(req.GetCsr()) }
	if _, err := r.ask(t, req); status.Code(err) != codes.Internal {
		t.Errorf("answered %v", err)
	}
	for _, text := range []string{r.log.String(), r.audit.String()} {
		if text == "" || strings.Contains(text, "BEGIN CERTIFICATE") || strings.Contains(text, req.GetCsr()[40:80]) {
			t.Errorf("logged %q", text)
		}
	}
}

// [ROT-1] An issuer that ends before the leaf would: counted each time, and said
// once.
func TestShortened(t *testing.T) {
	r := newRig(t)
	r.cfg.Now = func() time.Time { return noon.Add(365*24*time.Hour - 2*time.Hour) }
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.CreateCertificate(t.Context(), forCart(t)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(r.log.String(), "leaves are shortened"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	const want = "# HELP bailiwick_shortened_total Certificates that live less long than they would, because a certificate on their path ends before.\n# TYPE bailiwick_shortened_total counter\nbailiwick_shortened_total 3\n"
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(want), "bailiwick_shortened_total"); err != nil {
		t.Error(err)
	}
}

// TestPanicIsNeverCancelled panics for a client that has gone.
func TestPanicIsNeverCancelled(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.cfg.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) {
		cancel()
		panic("x")
	}
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.CreateCertificate(ctx, forCart(t))
	r.wantRefused(t, err, codes.Internal, "internal error", "internal")
}

// full is an audit log on a disk that is full.
type full struct{ slog.Handler }

func (full) Handle(context.Context, slog.Record) error { return errors.New("no space left on device") }

func TestNothingIsIssuedOffTheRecord(t *testing.T) {
	r := newRig(t)
	r.cfg.Audit = full{r.cfg.Audit}
	resp, err := r.ask(t, forCart(t))
	if resp != nil || status.Code(err) != codes.Internal {
		t.Errorf("[T23] answered %v with a certificate: %v", err, resp != nil)
	}
	if !strings.Contains(r.log.String(), "no space left") {
		t.Errorf("logged %q", r.log.String())
	}
}

// [CSR-6] 200 CSRs with an RSA key of 16384 bits at once, and 20 good ones beside
// them, which are all answered within the deadline of a request.
func TestManyHugeKeys(t *testing.T) {
	r := newRig(t)
	r.cfg.Audit = discard{}
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	huge, good := fixture(t, "rsa-16384.csr"), forCart(t)
	var wg sync.WaitGroup
	for i := range 220 {
		wg.Go(func() {
			req, want := good, codes.OK
			if i%11 != 0 {
				req, want = &authpb.IstioCertificateRequest{Csr: huge, Metadata: good.GetMetadata()}, codes.InvalidArgument
			}
			if _, err := s.CreateCertificate(t.Context(), req); status.Code(err) != want {
				t.Errorf("answered %v, want %v", err, want)
			}
		})
	}
	wg.Wait()
	const want = "# HELP bailiwick_requests_total Certificate requests, by gRPC code and the reason why there was no certificate (empty if there was).\n# TYPE bailiwick_requests_total counter\nbailiwick_requests_total{code=\"InvalidArgument\",reason=\"bad-key\"} 200\nbailiwick_requests_total{code=\"OK\",reason=\"\"} 20\n"
	if err := testutil.GatherAndCompare(r.metrics, strings.NewReader(want), "bailiwick_requests_total"); err != nil {
		t.Error(err)
	}
}

// discard is an audit log that nobody reads. It is safe for concurrent use.
type discard struct{ slog.Handler }

func (discard) Handle(context.Context, slog.Record) error { return nil }

// fixture returns a CSR of ca/testdata, whose README says how it was made.
func fixture(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// [CSR-4] What stands in a CSR beside the key is neither logged nor sent back.
func TestAttributesAreNotRepeated(t *testing.T) {
	for name, refuse := range map[string]bool{"issued": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if refuse {
				r.cfg.Authority = func() *ca.Authority { return nil }
			}
			req := forCart(t)
			req.Csr = fixture(t, "attributes.csr")
			resp, err := r.ask(t, req)
			if (err != nil) != refuse {
				t.Fatal(err)
			}
			said := r.audit.String() + r.log.String() + fmt.Sprint(status.Convert(err).Proto())
			for _, element := range resp.GetCertChain() {
				block, _ := pem.Decode([]byte(element))
				said += string(block.Bytes)
			}
			for _, word := range []string{"swordfish", "Example Company"} {
				if strings.Contains(said, word) || !strings.Contains(csrText(t, req.GetCsr()), word) {
					t.Errorf("%q was repeated, or is not in the CSR", word)
				}
			}
		})
	}
}

func csrText(t *testing.T, csr string) string {
	t.Helper()
	block, _ := pem.Decode([]byte(csr))
	return string(block.Bytes)
}

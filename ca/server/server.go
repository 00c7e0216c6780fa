// Package server is the gRPC face of the certificate authority.
//
// A request passes through it once, in one direction: authenticate the caller,
// queue, parse the CSR, authorize the identity, accept the key, issue, record.
// Each step is a function in [Config] or a call into ca; this package supplies
// their order, the limits, the audit record, and the translation of errors to
// gRPC codes. It knows neither tokens nor Kubernetes.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Config holds the steps of a request and its limits. Everything but Limits is
// required. The functions must be safe for concurrent use.
type Config struct {
	// Authenticate returns the caller that the values of the authorization and
	// clusterid metadata prove. Its errors are [*authz.Denial], or match
	// [authz.ErrUndecided].
	Authenticate func(ctx context.Context, authorization, clusterID []string) (authz.Caller, error)

	// Authorize returns the grant for a caller who asked for the identity want,
	// or for its own if want is empty: see [authz.Policy.Authorize].
	Authorize func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error)

	// NodeAgent reports whether the account may ask for others' identities, and
	// so is told a little more about why it was refused.
	NodeAgent func(authz.ServiceAccount) bool

	// Authority returns the authority of the moment. It is called once for
	// each request, so that leaf, issuers and roots are always of one.
	Authority func() *ca.Authority

	Limits Limits

	// Audit receives the audit record, and nothing else. If it fails, nothing
	// is issued.
	Audit slog.Handler

	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
}

// Server implements the IstioCertificateService. It is safe for concurrent use.
type Server struct {
	authpb.UnimplementedIstioCertificateServiceServer
	cfg     Config
	queue   *queue
	audit   *audit
	metrics *metrics
	stale   chan struct{} // has one if this replica could not tell because it is out of date

	shortened atomic.Pointer[ca.Authority] // the last one whose path was seen to end too soon
}

// New returns a Server.
func New(cfg Config) (*Server, error) {
	cfg.Limits = cfg.Limits.withDefaults()
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return &Server{
		cfg:     cfg,
		queue:   newQueue(cfg.Limits),
		audit:   newAudit(cfg.Audit, cfg.Limits),
		metrics: m,
		stale:   make(chan struct{}, 1),
	}, nil
}

// CreateCertificate handles one request. It is the only place where a request
// is recorded, and where an error becomes a status.
func (s *Server) CreateCertificate(ctx context.Context, req *authpb.IstioCertificateRequest) (*authpb.IstioCertificateResponse, error) {
	start := s.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.Deadline)
	defer cancel()
	r := &record{id: newRequestID(), peer: peerAddress(ctx)}
	resp, err := s.recovered(ctx, req, r)
	out := s.outcome(ctx, r, err)
	watch := s.stopwatch()
	unrecorded := s.record(ctx, r, out)
	end := watch.lap(stepRecord)
	if unrecorded != nil {
		s.metrics.auditFailures.Inc()
		s.cfg.Log.LogAttrs(ctx, slog.LevelError, "cannot write the audit record", slog.String("requestId", r.id), slog.Any("error", unrecorded))
		if err == nil {
			// What is not on record is not issued.
			err = errNoRecord
			out = s.outcome(ctx, r, err)
		}
	}
	s.metrics.observe(r, out, start, end)
	if out.stale() {
		select {
		case s.stale <- struct{}{}:
		default: // it has one
		}
	}
	if err != nil {
		return nil, out.status(r.id).Err()
	}
	return resp, nil
}

// recordWithin is how long the audit record of a request may take to write.
const recordWithin = time.Second

// record writes the audit record. A client that has gone, or whose time is up,
// is on record all the same.
func (s *Server) record(ctx context.Context, r *record, out outcome) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	return s.audit.write(ctx, s.cfg.Now(), r, out)
}

var errNoRecord = errors.New("the audit record could not be written")

// recovered turns a panic into an error, so that one request cannot end all.
func (s *Server) recovered(ctx context.Context, req *authpb.IstioCertificateRequest, r *record) (resp *authpb.IstioCertificateResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.metrics.panics.Inc()
			// The value may hold what the caller sent, so only its type is logged.
			s.cfg.Log.LogAttrs(ctx, slog.LevelError, "recovered from a panic",
				slog.String("requestId", r.id), slog.String("type", fmt.Sprintf("%T", p)), slog.String("stack", string(debug.Stack())))
			resp, err = nil, errPanic
		}
	}()
	if err := s.handle(ctx, req, r); err != nil {
		return nil, err
	}
	return &authpb.IstioCertificateResponse{CertChain: r.issued.Elements()}, nil
}

var errPanic = errors.New("recovered from a panic")

// handle is the way of a request, from text to certificate. What is learned on
// the way goes into the record.
func (s *Server) handle(ctx context.Context, req *authpb.IstioCertificateRequest, r *record) error {
	watch := s.stopwatch()
	md, _ := metadata.FromIncomingContext(ctx)
	caller, err := s.cfg.Authenticate(ctx, md.Get("authorization"), md.Get("clusterid"))
	watch.lap(stepAuthenticate)
	if err != nil {
		return err
	}
	r.caller = caller
	leave, err := s.queue.enter(ctx, s.party(caller))
	watch.lap(stepQueue)
	if err != nil {
		return err
	}
	defer leave()
	csr, err := parse(req, r)
	watch.lap(stepParse)
	if err != nil {
		return err
	}
	r.grant, err = s.cfg.Authorize(ctx, caller, r.want)
	watch.lap(stepAuthorize)
	if err != nil {
		return err
	}
	r.issued, err = s.issue(ctx, req, csr, r.grant)
	watch.lap(stepIssue)
	return err
}

// parse returns the CSR of req. What identity it asks for goes into the record.
func parse(req *authpb.IstioCertificateRequest, r *record) (*ca.CSR, error) {
	var err error
	if r.want, err = wantedIdentity(req); err != nil {
		return nil, err
	}
	return ca.ParseCSR(req.GetCsr())
}

// party returns whose turn a request takes. A node's agent and its other pods
// take turns of their own, so that no pod can keep its node's agent waiting.
func (s *Server) party(c authz.Caller) party {
	switch {
	case c.Node == "":
		return party{account: c.ServiceAccount}
	case s.cfg.NodeAgent(c.ServiceAccount):
		return party{node: c.Node, account: c.ServiceAccount}
	default:
		return party{node: c.Node}
	}
}

func (s *Server) issue(ctx context.Context, req *authpb.IstioCertificateRequest, csr *ca.CSR, grant authz.Grant) (*ca.Issued, error) {
	authority := s.cfg.Authority()
	if authority == nil {
		return nil, errNoAuthority
	}
	verified, err := csr.Verify(authority.Profile())
	if err != nil {
		return nil, err
	}
	// A caller that has gone does not need what is about to be signed.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	issued, err := authority.Issue(s.cfg.Now(), grant, verified, req.GetValidityDuration())
	if err == nil && issued.Shortened {
		s.noteShortened(ctx, authority)
	}
	return issued, err
}

// noteShortened counts a leaf that had to end with its issuers, and says so once
// for each authority.
func (s *Server) noteShortened(ctx context.Context, a *ca.Authority) {
	s.metrics.shortened.Inc()
	if s.shortened.Swap(a) != a {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "leaves are shortened, because the signing path ends before they would",
			slog.String("issuer", ca.Describe(a.Issuer())), slog.Time("pathNotAfter", a.NotAfter()), slog.Duration("leafLife", a.Profile().MaxLeafLife))
	}
}

var errNoAuthority = errors.New("there is no authority to sign with")

// newRequestID returns what ties a client's error to our record of it.
func newRequestID() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: see go doc crypto/rand.Read
	return hex.EncodeToString(b)
}

func peerAddress(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"github.com/prometheus/client_golang/prometheus"
)

// parts are what a running server is made of. serve takes them from a cluster,
// demo and the tests from memory; from here on there is no difference.
type parts struct {
	config       *Config
	policy       *authz.Policy
	authenticate func(ctx context.Context, authorization, clusterID []string) (authz.Caller, error)
	authority    *ca.Authority
	audit        slog.Handler
	log          *slog.Logger
	metrics      prometheus.Registerer
	listener     net.Listener
	ready        func() error
	now          func() time.Time
}

// A service is a server that is ready to run.
type service struct {
	front *server.Front
	own   *server.ServingCertificate
}

// newService assembles the parts.
func newService(p parts) (*service, error) {
	s, err := server.New(server.Config{
		Authenticate: p.authenticate,
		Authorize:    p.policy.Authorize,
		NodeAgent:    func(sa authz.ServiceAccount) bool { return slices.Contains(p.policy.NodeAgents, sa) },
		Authority:    func() *ca.Authority { return p.authority },
		Limits:       p.config.limits(),
		Audit:        p.audit,
		Log:          p.log,
		Metrics:      p.metrics,
		Now:          p.now,
	})
	if err != nil {
		return nil, err
	}
	own, err := server.NewServingCertificate(func(now time.Time) (*tls.Certificate, error) {
		return issueServing(now, p.authority, p.config.servingNames())
	}, p.now, p.log)
	if err != nil {
		return nil, err
	}
	return &service{front: server.NewFront(s, p.listener, own.TLS(p.config.OnlyTLS13), p.ready), own: own}, nil
}

// run serves until ctx is done and what was in flight has ended.
func (s *service) run(ctx context.Context) error {
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewal sync.WaitGroup
	renewal.Go(func() { s.own.Run(renewing) })
	defer renewal.Wait()
	defer stop()
	return s.front.Serve(ctx)
}

// issueServing makes a key, and has its certificate issued.
func issueServing(now time.Time, authority *ca.Authority, names ca.ServingNames) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	issued, err := authority.IssueServing(now, key.Public(), names)
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{PrivateKey: key, Leaf: issued.Leaf, Certificate: [][]byte{issued.Leaf.Raw}}
	for _, issuer := range issued.Issuers {
		cert.Certificate = append(cert.Certificate, issuer.Raw)
	}
	return cert, nil
}

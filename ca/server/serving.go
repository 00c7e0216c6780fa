package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// A ServingCertificate is the certificate by which clients know this server. It
// is renewed at two thirds of its life, for as long as Run runs.
type ServingCertificate struct {
	issue   func(now time.Time) (*tls.Certificate, error)
	now     func() time.Time
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// NewServingCertificate returns a certificate that issue makes, with Leaf set.
func NewServingCertificate(issue func(now time.Time) (*tls.Certificate, error), now func() time.Time, log *slog.Logger) (*ServingCertificate, error) {
	c := &ServingCertificate{issue: issue, now: now, log: log}
	return c, c.renew()
}

// Leaf returns the certificate of the moment.
func (c *ServingCertificate) Leaf() *x509.Certificate { return c.current.Load().Leaf }

// Run renews the certificate until ctx is done. A renewal that fails is tried
// again each minute, or sooner if less than three minutes are left.
func (c *ServingCertificate) Run(ctx context.Context) {
	wait := c.untilRenewal()
	for sleep(ctx, min(wait, time.Minute)) { // a timer stands still while the machine is suspended
		if wait = c.untilRenewal(); wait > time.Second {
			continue
		}
		if err := c.renew(); err != nil {
			left := c.Leaf().NotAfter.Sub(c.now())
			c.log.LogAttrs(ctx, slog.LevelError, "cannot renew the serving certificate", slog.Any("error", err), slog.Duration("left", left))
			wait = max(time.Second, min(time.Minute, left/3))
		}
	}
}

func (c *ServingCertificate) renew() error {
	cert, err := c.issue(c.now())
	if err != nil {
		return err
	}
	c.current.Store(cert)
	return nil
}

func (c *ServingCertificate) untilRenewal() time.Duration {
	leaf := c.Leaf()
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return max(time.Second, leaf.NotBefore.Add(life*2/3).Sub(c.now()))
}

// TLS returns the configuration to serve with: TLS 1.2 and up, or 1.3 only. The
// key exchanges are Go's own, X25519MLKEM768 among them, which clients under a
// post-quantum policy insist on. No client certificate is asked for, because a
// certificate that renews itself would bypass the node rule; and no session is
// resumed, because a ticket would outlive what was checked.
func (c *ServingCertificate) TLS(only13 bool) *tls.Config {
	config := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := c.current.Load(); cert != nil {
				return cert, nil
			}
			return nil, errors.New("no serving certificate")
		},
		NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS12,
		CipherSuites: []uint16{ // of TLS 1.2; those of 1.3 are all good
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		},
		ClientAuth:             tls.NoClientCert,
		SessionTicketsDisabled: true,
	}
	if only13 {
		config.MinVersion = tls.VersionTLS13
	}
	return config
}

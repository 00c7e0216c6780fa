package ztunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Verify judges the certificate as peers that believe in roots do, on both sides
// of a connection: the whole path in the order in which it is sent, both
// purposes, the identity, and whether the key is the leaf's. What it wants of
// the leaf is what webpki and RFC 5280 want, and it says so by its own means
// where crypto/x509 is more lenient.
func (c *Certificate) Verify(roots []*x509.Certificate, at time.Time) error {
	if c.Key != nil && !c.Key.PublicKey.Equal(c.Leaf.PublicKey) {
		return errors.New("the leaf is for another key")
	}
	return errors.Join(verifyLeaf(c.Leaf), verifyOrder(c.path(), roots), verifyPurposes(c.path(), roots, at),
		verifyIdentity(c.path(), roots, at, c.Identity))
}

// path is what a peer is shown.
func (c *Certificate) path() []*x509.Certificate {
	return append([]*x509.Certificate{c.Leaf}, c.Chain...)
}

func verifyLeaf(leaf *x509.Certificate) error {
	switch {
	case leaf.IsCA:
		return errors.New("the leaf is a CA")
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return errors.New("the leaf may not sign")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth), !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return errors.New("the leaf is not for both purposes") // webpki knows no anyExtendedKeyUsage
	case len(leaf.URIs) != 1:
		return fmt.Errorf("the leaf has %d URIs", len(leaf.URIs))
	}
	for _, e := range leaf.Extensions {
		// RFC 5280, Section 4.2.1.6: critical if the subject is empty.
		if e.Id.Equal(oidSAN()) && !e.Critical && bytes.Equal(leaf.RawSubject, []byte{0x30, 0}) {
			return errors.New("the leaf's only name is not critical")
		}
	}
	return nil
}

// verifyOrder wants each certificate signed by the next, and the last by a root.
func verifyOrder(path, roots []*x509.Certificate) error {
	for i, c := range path[1:] {
		if err := path[i].CheckSignatureFrom(c); err != nil {
			return fmt.Errorf("certificate %d of the path is not signed by the next one: %w", i, err)
		}
	}
	last := path[len(path)-1]
	if !slices.ContainsFunc(roots, func(r *x509.Certificate) bool { return last.CheckSignatureFrom(r) == nil }) {
		return errors.New("the path does not lead to a root")
	}
	return nil
}

func verifyPurposes(path, roots []*x509.Certificate, at time.Time) error {
	o := x509.VerifyOptions{Roots: pool(roots), Intermediates: pool(path[1:]), CurrentTime: at}
	for _, purpose := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		o.KeyUsages = []x509.ExtKeyUsage{purpose}
		if _, err := path[0].Verify(o); err != nil {
			return err
		}
	}
	return nil
}

func verifyIdentity(path, roots []*x509.Certificate, at time.Time, want Identity) error {
	domain, err := spiffeid.TrustDomainFromString(want.TrustDomain)
	if err != nil {
		return err
	}
	got, _, err := x509svid.Verify(path, x509bundle.FromX509Authorities(domain, roots), x509svid.WithTime(at))
	if err == nil && got.String() != want.String() {
		err = fmt.Errorf("the certificate is for %s, want %s", got, want)
	}
	return err
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// Handshake has two certificates meet as on a connection between two nodes: each
// side believes in the roots that came with its own.
func Handshake(ctx context.Context, client, server *Certificate) error {
	c, s, err := connected(ctx)
	if err != nil {
		return fmt.Errorf("connecting two peers: %w", err)
	}
	served := make(chan error, 1)
	go func() {
		defer s.Close() //nolint:errcheck // it is over
		conf := server.peer(client.Identity)
		conf.ClientAuth = tls.RequireAnyClientCert
		conn := tls.Server(s, conf)
		err := conn.HandshakeContext(ctx)
		if err == nil {
			_, err = conn.Write([]byte{1}) // by which the client knows that it was believed
		}
		served <- err
	}()
	conn := tls.Client(c, client.peer(server.Identity))
	err = conn.HandshakeContext(ctx)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	c.Close() //nolint:errcheck // the other side may wait for it
	return errors.Join(err, <-served)
}

// connected returns the two ends of a connection.
func connected(ctx context.Context) (client, server net.Conn, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close() //nolint:errcheck // it has had its only connection
	if client, err = (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if server, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, server, nil
}

// peer is how one side of a connection between nodes is set up.
func (c *Certificate) peer(other Identity) *tls.Config {
	own := tls.Certificate{PrivateKey: c.Key}
	for _, cert := range c.path() {
		own.Certificate = append(own.Certificate, cert.Raw)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		Certificates:           []tls.Certificate{own},
		SessionTicketsDisabled: true,
		InsecureSkipVerify:     true, //nolint:gosec // VerifyConnection does it: there is no name of a host
		VerifyConnection: func(s tls.ConnectionState) error {
			shown := &Certificate{Identity: other, Leaf: s.PeerCertificates[0], Chain: s.PeerCertificates[1:]}
			return shown.Verify(c.Roots, now())
		},
	}
}

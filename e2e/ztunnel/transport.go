package ztunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// tls returns what a connection is like: TLS 1.3, no client certificate, and a
// server with one of two names. Go offers ChaCha20 whatever it is told, which
// ztunnel does not; a connection that would use it is not made. The SNI is left
// to gRPC: the host, whatever the other name is, and none for an IP address.
func (c Config) tls() (*tls.Config, error) {
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Roots) // what is no root is ignored in silence
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: c.Groups,
		// VerifyConnection does it: crypto/tls knows of one name only.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.CipherSuite != tls.TLS_AES_128_GCM_SHA256 && s.CipherSuite != tls.TLS_AES_256_GCM_SHA384 {
				return fmt.Errorf("the server has chosen %s", tls.CipherSuiteName(s.CipherSuite))
			}
			return verifyServer(s.PeerCertificates, roots, host, c.AltHostname)
		},
	}, nil
}

// verifyServer judges the server's certificate as webpki does: names in the SAN,
// serverAuth if there is an EKU, and no CA at the end of the path.
func verifyServer(path []*x509.Certificate, roots *x509.CertPool, host, alt string) error {
	between := x509.NewCertPool()
	for _, c := range path[1:] {
		between.AddCert(c)
	}
	leaf := path[0]
	if leaf.IsCA {
		return errors.New("the server's certificate is a CA's")
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now()}); err != nil {
		return err
	}
	err := leaf.VerifyHostname(host)
	if err != nil && alt != "" {
		err = leaf.VerifyHostname(alt)
	}
	return err
}

// A link is a connection and who uses it. Where gRPC would go on trying to
// connect, by its own timetable and whether anybody asks or not, ztunnel tries
// once for each request: a link that could not connect is given up.
type link struct {
	conn  *grpc.ClientConn
	users int
}

// acquire returns the link that all requests share.
func (c *Client) acquire() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		conn, err := grpc.NewClient("passthrough:///"+c.config.Address, c.options()...)
		if err != nil {
			return nil, fmt.Errorf("connecting to %s: %w", c.config.Address, err)
		}
		c.link = &link{conn: conn}
	}
	c.link.users++
	return c.link, nil
}

// release ends one request's use of a link, and the link if the request failed
// without a connection.
func (c *Client) release(l *link, failure error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.users--
	if c.link == l && failure != nil && l.conn.GetState() != connectivity.Ready {
		c.link = nil
	}
	if c.link != l && l.users == 0 {
		l.conn.Close() //nolint:errcheck // nobody uses it
	}
}

// Close ends the connection. A request that is made after it makes a new one.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil
	}
	l := c.link
	c.link = nil
	return l.conn.Close()
}

const (
	connectTimeout = 5 * time.Second  // for TCP; the handshake has none
	idleTimeout    = 90 * time.Second // after which a request connects anew
	noTimeout      = 100 * 365 * 24 * time.Hour
)

func (c *Client) options() []grpc.DialOption {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 300 * time.Second, Interval: 75 * time.Second, Count: 9,
	}}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(c.tls)), // which offers h2 only
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: noTimeout}),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // what the server has not seen is sent again all the same
	}
}

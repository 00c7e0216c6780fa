package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A Target is the authority under test, and how it was set up.
type Target struct {
	Address    string // host:port
	ServerName string // a DNS name in its certificate; the host of Address if empty
	Roots      []*x509.Certificate

	TrustDomain string // of the mesh
	ClusterID   string // what clients send as clusterid
	Audience    string // of the tokens that it accepts

	// NodeAgent is the service account of the node proxies, which the authority
	// must know as such.
	NodeAgentNamespace, NodeAgentName string

	// Settle is how long it may take to hear of what changed in the cluster.
	Settle time.Duration

	// Staleness is how old its view of the cluster may be; 0 if nobody knows.
	Staleness time.Duration
}

// tls returns the configuration of a client that demands nothing special.
func (t *Target) tls() *tls.Config {
	roots := x509.NewCertPool()
	for _, r := range t.Roots {
		roots.AddCert(r)
	}
	name := t.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(t.Address)
	}
	return &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
}

// A connection is an HTTP/2 connection to the authority.
type connection struct {
	*grpc.ClientConn

	client pb.IstioCertificateServiceClient
}

// dial makes a connection, and handshakes at its first request.
func (t *Target) dial(config *tls.Config) (*connection, error) {
	c, err := grpc.NewClient("passthrough:///"+t.Address, grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	return &connection{c, pb.NewIstioCertificateServiceClient(c)}, nil
}

// handshake makes a TLS connection and nothing more.
func (t *Target) handshake(ctx context.Context, config *tls.Config) (*tls.ConnectionState, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, err
	}
	defer raw.Close() //nolint:errcheck // nothing was sent
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := c.ConnectionState()
	return &state, nil
}

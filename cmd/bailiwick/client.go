package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

// A client asks a certificate authority, as node proxies and agents do.
type client struct {
	conn *grpc.ClientConn
}

// dial returns a client of the authority at address, whose certificate must
// lead to one of roots and be for serverName, or for the host of address if
// that is empty. It does not connect yet.
func dial(address, serverName string, roots *x509.CertPool) (*client, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12,
	})))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return &client{conn}, nil
}

func (c *client) close() error { return c.conn.Close() }

// An ask is one request.
type ask struct {
	token    string
	identity string // "" for the caller's own
	life     time.Duration
}

// A reply is what came of it.
type reply struct {
	key   *ecdsa.PrivateKey
	chain []*x509.Certificate // leaf first, then the issuers
	roots []*x509.Certificate
}

// request makes a key and asks for a certificate for it. A refusal is an error
// with a gRPC status.
func (c *client) request(ctx context.Context, a ask) (*reply, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	req := &authpb.IstioCertificateRequest{ValidityDuration: int64(a.life / time.Second)}
	template := &x509.CertificateRequest{}
	if a.identity != "" {
		req.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"ImpersonatedIdentity": structpb.NewStringValue(a.identity)}}
		if u, err := url.Parse(a.identity); err == nil {
			template.URIs = []*url.URL{u}
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		// An identity that cannot stand in a CSR may be asked for all the same.
		if der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
			return nil, err
		}
	}
	req.Csr = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.token, "clusterid", "Kubernetes")
	resp, err := authpb.NewIstioCertificateServiceClient(c.conn).CreateCertificate(ctx, req)
	if err != nil {
		return nil, err
	}
	return parseReply(key, resp.GetCertChain())
}

// parseReply reads a reply as ztunnel does, and is stricter: every element but
// the last must be one certificate.
func parseReply(key *ecdsa.PrivateKey, elements []string) (*reply, error) {
	if len(elements) < 2 {
		return nil, fmt.Errorf("the reply has %d elements; it needs a leaf and the roots", len(elements))
	}
	r := &reply{key: key}
	for i, element := range elements {
		certs, err := parseElement(element)
		if err != nil {
			return nil, fmt.Errorf("element %d of the reply: %w", i, err)
		}
		if i == len(elements)-1 {
			r.roots = certs
			continue
		}
		if len(certs) != 1 {
			return nil, fmt.Errorf("element %d of the reply has %d certificates; clients read only the first", i, len(certs))
		}
		r.chain = append(r.chain, certs[0])
	}
	if !key.PublicKey.Equal(r.chain[0].PublicKey) {
		return nil, errors.New("the certificate is not for the key in the CSR")
	}
	return r, nil
}

func parseElement(text string) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := []byte(text); len(rest) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("it is not PEM")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("it is empty")
	}
	return certs, nil
}

// verify checks the certificate as a peer would, for both sides of a connection.
func (r *reply) verify(now time.Time) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, cert := range r.roots {
		roots.AddCert(cert)
	}
	for _, cert := range r.chain[1:] {
		intermediates.AddCert(cert)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := r.chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// identity returns what the certificate certifies.
func (r *reply) identity() string {
	if len(r.chain[0].URIs) != 1 {
		return ""
	}
	return r.chain[0].URIs[0].String()
}

// exitCode turns the answer of an authority into an exit code.
func exitCode(err error) int {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return exitRefused
	case codes.Unavailable, codes.ResourceExhausted, codes.DeadlineExceeded:
		return exitUnknown
	default:
		return exitFailed
	}
}

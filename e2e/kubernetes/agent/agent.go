// Package agent asks a certificate authority for certificates as node proxies
// and workloads do, and judges what it gets with other people's verifiers. It
// shares nothing with the server but the generated messages.
package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A Server is where to ask, and how to know that it is the right one.
type Server struct {
	Addr string
	Name string // DNS name in its certificate
	Root *x509.Certificate
}

// Dial connects to the server until the test ends.
func (s Server) Dial(t testing.TB) *Conn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.Root)
	c, err := grpc.NewClient("passthrough:///"+s.Addr, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: roots, ServerName: s.Name, MinVersion: tls.VersionTLS12})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over
	return &Conn{client: pb.NewIstioCertificateServiceClient(c), root: s.Root}
}

// A Conn is a connection to a server. Several goroutines may use it.
type Conn struct {
	client pb.IstioCertificateServiceClient
	root   *x509.Certificate
}

// A Request is what is asked for.
type Request struct {
	Token    string
	Identity string // "" asks for the caller's own
	Seconds  int64  // of validity; 0 leaves it to the server
}

// An Answer is what came back.
type Answer struct {
	Code    codes.Code
	Message string
	Chain   []string // PEM, as received

	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

// Ask makes a key and asks for a certificate for it.
func (c *Conn) Ask(ctx context.Context, r Request) (Answer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Answer{}, fmt.Errorf("making a key: %w", err)
	}
	csr, err := newCSR(key, r.Identity)
	if err != nil {
		return Answer{}, err
	}
	in := &pb.IstioCertificateRequest{Csr: csr, ValidityDuration: r.Seconds}
	if r.Identity != "" {
		in.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			"ImpersonatedIdentity": structpb.NewStringValue(r.Identity),
		}}
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+r.Token, "clusterid", "Kubernetes")
	out, err := c.client.CreateCertificate(ctx, in)
	s := status.Convert(err)
	return Answer{Code: s.Code(), Message: s.Message(), Chain: out.GetCertChain(), key: key, root: c.root}, nil
}

// newCSR makes a certification request with an empty subject, and the identity
// as the one URI of a critical SAN if there is one.
func newCSR(key *ecdsa.PrivateKey, identity string) (string, error) {
	t := &x509.CertificateRequest{}
	if identity != "" {
		// RFC 5280, Section 4.2.1.6: uniformResourceIdentifier [6] IA5String.
		names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(identity)}})
		if err != nil {
			return "", fmt.Errorf("encoding a SAN: %w", err)
		}
		t.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true, Value: names}}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, t, key)
	if err != nil {
		return "", fmt.Errorf("making a certification request: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

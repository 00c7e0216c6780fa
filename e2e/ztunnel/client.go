package ztunnel

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
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A Config says how to reach an authority. Each field names the environment
// variable that is its like.
type Config struct {
	Address     string        // CA_ADDRESS, as host:port
	Roots       []byte        // the content of CA_ROOT_CA, which is never read again
	AltHostname string        // ALT_CA_HOSTNAME: another name that the server may have
	TokenFile   string        // AUTH_TOKEN; without it there are no credentials
	ClusterID   string        // CLUSTER_ID
	TTL         time.Duration // SECRET_TTL
	Dedicated   bool          // PROXY_MODE=dedicated: certificates are one's own

	// Groups are the key exchanges to offer; nil is the default of the released
	// ztunnel. COMPLIANCE_POLICY=pqc is X25519MLKEM768 alone.
	Groups []tls.CurveID
}

// A Client asks an authority for certificates, over one connection that all
// requests share.
type Client struct {
	config Config
	tls    *tls.Config

	mu   sync.Mutex
	link *link // nil before the first request, and after one that could not connect
}

// NewClient returns a client. It connects with its first request.
func NewClient(c Config) (*Client, error) {
	t, err := c.tls()
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", c.Address, err)
	}
	return &Client{config: c, tls: t}, nil
}

// Fetch makes a key and asks for a certificate for it. It waits for as long as
// the authority takes, whatever deadline the context has: ztunnel has none, and
// tells the authority none. The error of a refusal has a gRPC status.
func (c *Client) Fetch(ctx context.Context, id Identity) (*Certificate, error) {
	key, csr, err := newRequest(id)
	if err != nil {
		return nil, fmt.Errorf("making a certification request: %w", err)
	}
	in := &pb.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(c.config.TTL / time.Second)}
	if !c.config.Dedicated {
		in.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{
			"ImpersonatedIdentity": structpb.NewStringValue(id.String()),
		}}
	}
	ctx, stop := withoutDeadline(ctx)
	defer stop()
	if ctx, err = c.authorize(ctx); err != nil {
		return nil, err
	}
	l, err := c.acquire()
	if err != nil {
		return nil, err
	}
	out, err := pb.NewIstioCertificateServiceClient(l.conn).CreateCertificate(ctx, in)
	c.release(l, err)
	if err != nil {
		return nil, fmt.Errorf("asking for a certificate: %w", err)
	}
	return c.parse(id, key, out.GetCertChain())
}

// parse reads a reply. Only in shared mode is it known what it should be for.
func (c *Client) parse(id Identity, key *ecdsa.PrivateKey, chain []string) (*Certificate, error) {
	cert, err := Read(id, chain)
	if err != nil {
		return nil, err
	}
	cert.Key = key
	if c.config.Dedicated {
		return cert, nil
	}
	if got, err := cert.names(); err != nil || got != id {
		return nil, fmt.Errorf("the certificate is for %v, want %s: %w", got, id, errors.Join(ErrOtherIdentity, err))
	}
	return cert, nil
}

// ErrOtherIdentity is the error for a certificate that somebody else asked for.
var ErrOtherIdentity = errors.New("another identity")

// withoutDeadline returns a context that ends with ctx and has no deadline, which
// gRPC would send to the server.
func withoutDeadline(ctx context.Context) (context.Context, func()) {
	free, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return free, func() { stop(); cancel() }
}

// authorize reads the token, for each request anew, and sets the headers. What is
// in the file is sent as it is: a line end makes it no header.
func (c *Client) authorize(ctx context.Context) (context.Context, error) {
	if c.config.TokenFile == "" {
		return ctx, nil
	}
	token, err := os.ReadFile(c.config.TokenFile)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the token: %w", err)
	case len(token) == 0:
		return nil, fmt.Errorf("reading the token: %s is empty", c.config.TokenFile)
	case !isHeader(token):
		return nil, fmt.Errorf("reading the token: %s has what no header may have, such as a line end", c.config.TokenFile)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+string(token), "clusterid", c.config.ClusterID), nil
}

func isHeader(value []byte) bool {
	for _, b := range value {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}

// newRequest makes a key on P-256 and a certification request for it, with an
// empty subject and one extension: a critical SAN that has the identity.
func newRequest(id Identity) (*ecdsa.PrivateKey, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, "", err
	}
	// RFC 5280, Section 4.2.1.6: uniformResourceIdentifier [6] IA5String.
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: tagURI, Bytes: []byte(id.String())}})
	if err != nil {
		return nil, "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		ExtraExtensions: []pkix.Extension{{Id: oidSAN(), Critical: true, Value: names}},
	}, key)
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), err
}

const tagURI = 6

func oidSAN() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, 17} }

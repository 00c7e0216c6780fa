package conformance

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	pb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
)

// A denier denies once it may.
type denier struct {
	pb.UnimplementedIstioCertificateServiceServer

	may chan struct{}
}

func (d denier) CreateCertificate(ctx context.Context, _ *pb.IstioCertificateRequest) (*pb.IstioCertificateResponse, error) {
	select {
	case <-d.may:
		return nil, status.Error(codes.PermissionDenied, "denied")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Draining is what no live authority can be made to do from outside.
func TestDrained(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drain func(*grpc.Server, denier) func(context.Context) error
		want  Outcome
	}{
		{"nobody can", nil, NotRun},
		{"gracefully", func(g *grpc.Server, d denier) func(context.Context) error {
			return func(context.Context) error {
				go g.GracefulStop()
				close(d.may)
				return nil
			}
		}, Passed},
		{"by pulling the plug", func(g *grpc.Server, _ denier) func(context.Context) error {
			return func(context.Context) error {
				g.Stop()
				return nil
			}
		}, Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cert := serving(t)
			d := denier{may: make(chan struct{})}
			g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}})))
			pb.RegisterIstioCertificateServiceServer(g, d)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go g.Serve(l) //nolint:errcheck // it ends with the test
			t.Cleanup(g.Stop)
			s := &stage{Target: &Target{Address: l.Addr().String(), ServerName: "ca.test", Roots: []*x509.Certificate{cert.Leaf}}, agent1: &caller{}}
			if tt.drain != nil {
				s.drain = tt.drain(g, d)
			}
			if s.conn, err = s.dial(s.tls()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.conn.Close() }) //nolint:errcheck // all is over
			if got := s.play(t.Context(), Case{ID: "connection-20", run: drained}); got.Outcome != tt.want {
				t.Errorf("%s, want %s: %q", got.Outcome, tt.want, got.Evidence)
			}
		})
	}
}

// serving is a serving certificate that is its own root.
func serving(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: []string{"ca.test"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), crypto.Signer(key))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

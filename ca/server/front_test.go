package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// A stage is a front that serves in memory, inside a synctest bubble, so that
// minutes take no time.
type stage struct {
	*rig
	front    *server.Front
	own      *server.ServingCertificate
	roots    *x509.CertPool
	listener *bufconn.Listener
	dials    atomic.Int32
	unready  atomic.Bool
	stop     context.CancelFunc // tells the front to stop
	done     chan error         // what Serve returned
}

func newStage(t *testing.T, change func(*server.Config)) *stage {
	t.Helper()
	st := &stage{rig: newRig(t), listener: bufconn.Listen(1 << 20), done: make(chan error, 1), roots: x509.NewCertPool()}
	st.cfg.Now = time.Now
	authority := newAuthority(t, time.Now())
	st.cfg.Authority = func() *ca.Authority { return authority }
	st.roots.AddCert(authority.Root())
	if change != nil {
		change(&st.cfg)
	}
	s, err := server.New(st.cfg)
	if err != nil {
		t.Fatal(err)
	}
	st.own, err = server.NewServingCertificate(serving(authority), time.Now, st.cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	st.front = server.NewFront(s, st.listener, st.own.TLS(false), st.ready)
	ctx, stop := context.WithCancel(context.Background())
	st.stop = stop
	go func() { st.done <- st.front.Serve(ctx) }()
	return st
}

func (st *stage) ready() error {
	if st.unready.Load() {
		return errors.New("not ready")
	}
	return nil
}

// serving issues serving certificates for localhost.
func serving(authority *ca.Authority) func(time.Time) (*tls.Certificate, error) {
	return func(now time.Time) (*tls.Certificate, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		issued, err := authority.IssueServing(now, key.Public(), ca.ServingNames{DNS: []string{"localhost"}})
		if err != nil {
			return nil, err
		}
		cert := &tls.Certificate{PrivateKey: key, Leaf: issued.Leaf, Certificate: [][]byte{issued.Leaf.Raw}}
		for _, issuer := range issued.Issuers {
			cert.Certificate = append(cert.Certificate, issuer.Raw)
		}
		return cert, nil
	}
}

func (st *stage) dial(t *testing.T, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost", append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			st.dials.Add(1)
			return st.listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: st.roots, ServerName: "localhost"})),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func ask(t *testing.T, conn *grpc.ClientConn) error {
	t.Helper()
	_, err := authpb.NewIstioCertificateServiceClient(conn).CreateCertificate(context.Background(), forCart(t))
	return err
}

// end stops the front and waits for it.
func (st *stage) end(t *testing.T) {
	t.Helper()
	st.stop()
	if err := <-st.done; err != nil {
		t.Errorf("Serve = %v", err)
	}
}

// [SRV-1] A client that pings every 10 s for 3 min, without and with a call open,
// keeps its connection.
func TestKeepalive(t *testing.T) {
	for _, open := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t, func(c *server.Config) { c.Limits.ConnectionIdle = time.Hour })
			conn := st.dial(t, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}))
			if err := ask(t, conn); err != nil {
				t.Fatal(err)
			}
			if open {
				watch(t, conn)
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if got := conn.GetState(); got != connectivity.Ready {
				t.Errorf("the connection is %v after 3 min of pings (call open: %v)", got, open)
			}
			if err := ask(t, conn); err != nil || st.dials.Load() != 1 {
				t.Errorf("then: %v, after %d dials", err, st.dials.Load())
			}
			conn.Close() //nolint:errcheck // it is over
			st.end(t)
		})
	}
}

// watch opens a stream that stays open.
func watch(t *testing.T, conn *grpc.ClientConn) grpc.ServerStreamingClient[healthpb.HealthCheckResponse] {
	t.Helper()
	stream, err := healthpb.NewHealthClient(conn).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health is %v, %v", resp.GetStatus(), err)
	}
	return stream
}

// TestHealthFollowsReadiness has a server that becomes ready, and unready.
func TestHealthFollowsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, nil)
		conn := st.dial(t)
		health := func() healthpb.HealthCheckResponse_ServingStatus {
			time.Sleep(1500 * time.Millisecond)
			resp, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
			if err != nil {
				t.Error(err)
			}
			return resp.GetStatus()
		}
		for _, want := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING, healthpb.HealthCheckResponse_SERVING} {
			st.unready.Store(want == healthpb.HealthCheckResponse_NOT_SERVING)
			if got := health(); got != want {
				t.Errorf("health is %v, want %v", got, want)
			}
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// TestRefusedConnectionsAreCounted has room for one connection, and a second.
func TestRefusedConnectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) { c.Limits.Connections = 1 })
		conn := st.dial(t)
		if err := ask(t, conn); err != nil {
			t.Fatal(err)
		}
		second, err := st.listener.Dial()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the second connection reads %d bytes, %v, want its end", n, err)
		}
		if n := values(t, st.metrics)["bailiwick_connections_refused_total"]; n != 1 {
			t.Errorf("%v refused connections are counted, want 1", n)
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// [SRV-3] A server that is told to stop while a call is held for 2 s is not ready
// at once, finishes the call, and ends with it.
func TestShutdownFinishesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) {
			c.Limits.DrainDelay = time.Second
			inner := c.Authorize
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				time.Sleep(2 * time.Second)
				return inner(ctx, caller, want)
			}
		})
		conn := st.dial(t)
		answered := make(chan error, 1)
		go func() { answered <- ask(t, conn) }()
		time.Sleep(time.Second) // the call is in the middle of it
		st.stop()
		synctest.Wait()
		if st.front.Ready() == nil {
			t.Error("still ready, though it was told to stop")
		}
		if err := <-answered; err != nil {
			t.Errorf("the call that was in flight got %v", err)
		}
		start := time.Now()
		if err := <-st.done; err != nil || time.Since(start) > time.Second {
			t.Errorf("Serve = %v, %v after the last call", err, time.Since(start))
		}
		conn.Close() //nolint:errcheck // it is over
	})
}

// TestDrainDelay still serves new connections while its endpoint is withdrawn.
func TestDrainDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) { c.Limits.DrainDelay = 5 * time.Second })
		st.stop()
		time.Sleep(4 * time.Second)
		conn := st.dial(t)
		if err := ask(t, conn); err != nil {
			t.Errorf("within the delay a new connection got %v", err)
		}
		if err := <-st.done; err != nil {
			t.Errorf("Serve = %v", err)
		}
		if err := ask(t, conn); status.Code(err) != codes.Unavailable {
			t.Errorf("after the end: %v", err)
		}
		conn.Close() //nolint:errcheck // it is over
	})
}

// TestDrainingRefusesNewClients holds the drain by a stream that stays open.
func TestDrainingRefusesNewClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) {
			c.Limits.DrainDelay, c.Limits.DrainTimeout = time.Second, time.Minute
		})
		open := st.dial(t)
		watch(t, open)
		st.stop()
		time.Sleep(2 * time.Second)
		start := time.Now()
		late := st.dial(t)
		if err := ask(t, late); status.Code(err) != codes.Unavailable || time.Since(start) > 0 {
			t.Errorf("a new client got %v after %v, want to be refused at once", err, time.Since(start))
		}
		open.Close() //nolint:errcheck // it is over
		late.Close() //nolint:errcheck // it is over
		if err := <-st.done; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// [SRV-3] A server that is told to stop with an idle connection and an open stream
// says so on the stream, and ends in time.
func TestShutdownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) {
			c.Limits.DrainDelay, c.Limits.DrainTimeout = time.Second, 10*time.Second
		})
		idle, open := st.dial(t), st.dial(t)
		if err := ask(t, idle); err != nil {
			t.Fatal(err)
		}
		stream := watch(t, open)
		start := time.Now()
		st.stop()
		if resp, err := stream.Recv(); resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING || time.Since(start) > 0 {
			t.Errorf("the stream heard %v, %v after %v; want NOT_SERVING at once", resp, err, time.Since(start))
		}
		if err := <-st.done; err != nil || time.Since(start) > 11*time.Second {
			t.Errorf("Serve = %v after %v, want it to end within delay and timeout", err, time.Since(start))
		}
		if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the stream that stayed open got %v", err)
		}
		idle.Close() //nolint:errcheck // it is over
		open.Close() //nolint:errcheck // it is over
	})
}

// stuck is an audit log whose reader has stopped reading.
type stuck struct {
	slog.Handler
	until chan struct{}
}

func (s stuck) Handle(context.Context, slog.Record) error { <-s.until; return nil }

// TestStuckAuditLog answers, and ends, though writing the record does not.
func TestStuckAuditLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		st := newStage(t, func(c *server.Config) {
			c.Audit = stuck{c.Audit, until}
			c.Limits.DrainDelay, c.Limits.DrainTimeout = time.Second, 2*time.Second
		})
		conn := st.dial(t)
		for range 3 {
			start := time.Now()
			if err := ask(t, conn); status.Code(err) != codes.Internal || time.Since(start) != time.Second {
				t.Errorf("answered %v after %v, want Internal after a second", err, time.Since(start))
			}
		}
		start := time.Now()
		st.stop()
		if err := <-st.done; time.Since(start) > 6*time.Second {
			t.Errorf("Serve = %v after %v", err, time.Since(start))
		}
		close(until)
		conn.Close() //nolint:errcheck // it is over
	})
}

// TestStaleReplicaSendsClientsElsewhere asks a replica that cannot tell, again
// and again for five minutes.
func TestStaleReplicaSendsClientsElsewhere(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		min, max int32 // dials
	}{
		{"stale", &authz.Undecided{Reason: authz.Stale, Err: errors.New("x")}, 4, 7},
		{"keys too old", &authz.Undecided{Reason: authz.KeysTooOld, Err: errors.New("x")}, 4, 7},
		{"a denial says nothing about the replica", authz.Deny(authz.NotOnNode, "x"), 1, 1},
		{"a missing pod neither", &authz.Undecided{Reason: authz.NoCapacity, Err: errors.New("x")}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t, func(c *server.Config) {
					c.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) {
						return authz.Grant{}, tt.err
					}
				})
				conn := st.dial(t)
				for range 300 {
					if err := ask(t, conn); !strings.Contains(err.Error(), "request") { // our own answers have a request ID
						t.Errorf("a call was lost: %v", err)
					}
					time.Sleep(time.Second)
				}
				if n := st.dials.Load(); n < tt.min || n > tt.max {
					t.Errorf("%d connections in five minutes, want %d to %d", n, tt.min, tt.max)
				}
				if sent := values(t, st.metrics)["bailiwick_sent_elsewhere_total"]; int32(sent) != st.dials.Load()-1 {
					t.Errorf("they were sent elsewhere %v times, and there were %d connections", sent, st.dials.Load())
				}
				conn.Close() //nolint:errcheck // it is over
				st.end(t)
			})
		})
	}
}

// TestNoCallIsLostByGOAWAY has eight clients that always have a call in flight,
// while a stale answer now and then sends everybody elsewhere.
func TestNoCallIsLostByGOAWAY(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stale atomic.Bool
		st := newStage(t, func(c *server.Config) {
			inner := c.Authorize
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				time.Sleep(700 * time.Millisecond)
				if stale.CompareAndSwap(true, false) {
					return authz.Grant{}, &authz.Undecided{Reason: authz.Stale, Err: errors.New("x")}
				}
				return inner(ctx, caller, want)
			}
		})
		over := time.Now().Add(5 * time.Minute)
		var wg sync.WaitGroup
		for i := range 8 {
			conn := st.dial(t)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 90 * time.Millisecond)
				for time.Now().Before(over) {
					if err := ask(t, conn); err != nil && !strings.Contains(err.Error(), "(request ") {
						t.Errorf("a call was lost: %v", err)
					}
				}
				conn.Close() //nolint:errcheck // it is over
			})
		}
		for range 4 {
			stale.Store(true)
			time.Sleep(70 * time.Second)
		}
		wg.Wait()
		if n := st.dials.Load(); n < 24 {
			t.Errorf("%d connections: nobody was sent elsewhere", n)
		}
		st.end(t)
	})
}

// TestRecoveredReplicaKeepsItsClients reports one stale answer more in the
// minute after a GOAWAY, and is well from then on.
func TestRecoveredReplicaKeepsItsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stale atomic.Bool
		st := newStage(t, func(c *server.Config) {
			inner := c.Authorize
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				if stale.Load() {
					return authz.Grant{}, &authz.Undecided{Reason: authz.Stale, Err: errors.New("x")}
				}
				return inner(ctx, caller, want)
			}
		})
		conn := st.dial(t)
		for second := range 240 {
			stale.Store(second < 20) // the GOAWAY is sent within the first 5 s
			if err := ask(t, conn); err != nil && !strings.Contains(err.Error(), "(request ") {
				t.Errorf("a call was lost: %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := st.dials.Load(); n != 2 {
			t.Errorf("%d connections, want the first and one after the GOAWAY", n)
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// TestConnectionIdle leaves a connection alone.
func TestConnectionIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) { c.Limits.ConnectionIdle = time.Minute })
		conn := st.dial(t)
		for i, tt := range []struct {
			pause time.Duration
			dials int32
		}{{0, 1}, {59 * time.Second, 1}, {61 * time.Second, 2}} {
			time.Sleep(tt.pause)
			synctest.Wait()
			if err := ask(t, conn); err != nil || st.dials.Load() != tt.dials {
				t.Errorf("call %d: %v, on connection %d, want %d", i, err, st.dials.Load(), tt.dials)
			}
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// TestStreamsPerConnection has three calls at once where two are allowed.
func TestStreamsPerConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		st := newStage(t, func(c *server.Config) {
			c.Limits.StreamsPerConnection = 2
			inner := c.Authorize
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				time.Sleep(time.Second)
				return inner(ctx, caller, want)
			}
		})
		conn := st.dial(t)
		if err := ask(t, conn); err != nil { // so that the client knows the bound
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		start := time.Now()
		for range 3 {
			wg.Go(func() {
				if err := ask(t, conn); err != nil {
					t.Errorf("a call that had to wait got %v", err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 2 || time.Since(start) != 2*time.Second {
			t.Errorf("%d at once, and %v for all three; want 2, and 2s", most.Load(), time.Since(start))
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// [SRV-2] A client that is busy past the age of its connection loses no call.
func TestConnectionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, func(c *server.Config) { c.Limits.ConnectionAge = time.Minute })
		conn := st.dial(t)
		for range 150 {
			if err := ask(t, conn); err != nil {
				t.Errorf("a call was lost: %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := st.dials.Load(); n < 2 || n > 4 {
			t.Errorf("%d connections in 150 s with an age of 60 s", n)
		}
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// [SRV-5] A serving certificate that lives for two minutes is good for handshakes
// in the third, and the fifth, under its name and no other.
func TestServingCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := material.Make(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		profile := ca.DefaultProfile(td)
		profile.MinLeafLife, profile.MaxLeafLife = time.Minute, 2*time.Minute
		authority, err := ca.NewAuthority(time.Now(), m, profile)
		if err != nil {
			t.Fatal(err)
		}
		own, err := server.NewServingCertificate(serving(authority), time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { own.Run(ctx) })
		roots := x509.NewCertPool()
		roots.AddCert(authority.Root())
		for range 5 {
			time.Sleep(time.Minute)
			state, err := handshake(&tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}}, own.TLS(false))
			if err != nil || state.NegotiatedProtocol != "h2" {
				t.Errorf("a handshake after minutes: %v, %q", err, state.NegotiatedProtocol)
			}
			if _, err := handshake(&tls.Config{RootCAs: roots, ServerName: "other", NextProtos: []string{"h2"}}, own.TLS(false)); err == nil {
				t.Error("a handshake with another name")
			}
		}
		stop()
		wg.Wait()
	})
}

// [SRV-5] A serving certificate is renewed at two thirds of its life, and later only
// if that fails.
func TestServingCertificateIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail atomic.Bool
		issue := func(now time.Time) (*tls.Certificate, error) {
			if fail.Load() {
				return nil, errors.New("no")
			}
			return &tls.Certificate{Leaf: &x509.Certificate{NotBefore: now, NotAfter: now.Add(2 * time.Minute)}}, nil
		}
		var log record
		c, err := server.NewServingCertificate(issue, time.Now, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		for second := range 600 {
			time.Sleep(time.Second)
			if left := time.Until(c.Leaf().NotAfter); left < 39*time.Second {
				t.Fatalf("after %d s, %v of the certificate are left", second, left)
			}
		}
		if log.String() != "" {
			t.Errorf("[SRV-5] logged, though all went well: %s", log.String())
		}
		fail.Store(true)
		time.Sleep(100 * time.Second)
		fail.Store(false) // just in time
		// Each wait is a third of what is left, but a second at least.
		if n := strings.Count(log.String(), "cannot renew"); n < 6 || n > 30 {
			t.Errorf("[SRV-5] logged %d times that it cannot be renewed", n)
		}
		time.Sleep(10 * time.Second)
		if left := time.Until(c.Leaf().NotAfter); left <= 0 {
			t.Errorf("the certificate expired %v ago, though it could be renewed again before", -left)
		}
		stop()
		wg.Wait()
	})
}

// TestHandshakes has the clients that there are.
func TestHandshakes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client *tls.Config
		only13 bool
		want   string // part of the error, "" if it must work
	}{
		{"ztunnel", &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}, false, ""},
		{"ztunnel under a post-quantum policy", &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}}, false, ""},
		{"an agent under FIPS 140-2", &tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.CurveP256}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}, false, ""},
		{"...where only TLS 1.3 is allowed", &tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}, true, "protocol version"},
		{"TLS 1.1", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, NextProtos: []string{"h2"}}, false, "protocol version"},
		{"TLS 1.2 without authenticated encryption", &tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}}, false, "handshake failure"},
		{"TLS 1.2 without forward secrecy", &tls.Config{MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}}, false, "handshake failure"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			authority := newAuthority(t, noon)
			own, err := server.NewServingCertificate(serving(authority), func() time.Time { return noon }, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"localhost", ""} { // with and without SNI
				c := tt.client.Clone()
				c.ServerName, c.InsecureSkipVerify = name, name == ""
				c.RootCAs, c.Time = x509.NewCertPool(), func() time.Time { return noon }
				c.RootCAs.AddCert(authority.Root())
				state, err := handshake(c, own.TLS(tt.only13))
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("handshake with name %q: %v, want %q", name, err, tt.want)
				}
				if err == nil && (state.NegotiatedProtocol != "h2" || state.DidResume) {
					t.Errorf("negotiated %q, resumed %v", state.NegotiatedProtocol, state.DidResume)
				}
			}
		})
	}
}

// [ROT-4] A self-signed CA and a second root in the bundle: clients that know the
// first, or both, know the server.
func TestHandshakeUnderOneOfTwoRoots(t *testing.T) {
	a, b := newRoot(t), newRoot(t)
	signing := []*x509.Certificate{a.Cert}
	authority, err := ca.NewAuthority(noon, ca.Material{Signer: a.Key, Chain: signing, Roots: []*x509.Certificate{a.Cert, b.Cert}}, ca.DefaultProfile(td))
	if err != nil {
		t.Fatal(err)
	}
	own, err := server.NewServingCertificate(serving(authority), func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		known []*x509.Certificate
		good  bool
	}{
		{"the signing root", signing, true},
		{"both", []*x509.Certificate{b.Cert, a.Cert}, true},
		{"the other root only", []*x509.Certificate{b.Cert}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := &tls.Config{ServerName: "localhost", NextProtos: []string{"h2"}, RootCAs: x509.NewCertPool(), Time: func() time.Time { return noon }}
			for _, root := range tt.known {
				client.RootCAs.AddCert(root)
			}
			if _, err := handshake(client, own.TLS(false)); (err == nil) != tt.good {
				t.Errorf("handshake: %v", err)
			}
		})
	}
}

func newRoot(t *testing.T) material.Pair {
	t.Helper()
	root, err := material.NewRoot(noon, 365*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// handshake returns the client's view of a handshake. It fails if either side
// does, or if the server asks for a client certificate.
func handshake(client, srv *tls.Config) (tls.ConnectionState, error) {
	// With a buffer, since both sides may write at once: one its flight, the other
	// that it has seen enough.
	l := bufconn.Listen(1 << 16)
	defer l.Close() //nolint:errcheck // it is over
	go func() {
		if b, err := l.Accept(); err == nil {
			tls.Server(b, srv).HandshakeContext(context.Background()) //nolint:errcheck // the client hears of it
			b.Close()                                                 //nolint:errcheck // it is over
		}
	}()
	a, err := l.Dial()
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer a.Close() //nolint:errcheck // it is over
	asked := false
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		return &tls.Certificate{}, nil
	}
	c := tls.Client(a, client)
	err = c.HandshakeContext(context.Background())
	if asked {
		err = errors.Join(err, errors.New("the server asked for a client certificate"))
	}
	return c.ConnectionState(), err
}

// [TOK-6] Metadata, like requests, are read up to a size.
func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		name string
		csr  int // bytes
		md   int
		code codes.Code
	}{
		{"a request of 60 KiB is read", 60 << 10, 0, codes.InvalidArgument},
		{"one of 70 KiB is not", 70 << 10, 0, codes.ResourceExhausted},
		{"metadata of 16 KiB are read", 0, 16 << 10, codes.OK},
		{"metadata of 1 MiB are not", 0, 1 << 20, codes.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t, nil)
				conn := st.dial(t)
				req := forCart(t)
				if tt.csr > 0 {
					req.Csr = strings.Repeat("x", tt.csr)
				}
				ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", strings.Repeat(".", tt.md))
				_, err := authpb.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, req)
				if status.Code(err) != tt.code {
					t.Errorf("answered %v, want %v", err, tt.code)
				}
				if err := ask(t, conn); err != nil {
					t.Errorf("then: %v", err)
				}
				conn.Close() //nolint:errcheck // it is over
				st.end(t)
			})
		})
	}
}

// TestRepeatsAreSummedUp has two refusals, and the minute after them; and then two
// more, when the audit log does not take any more.
// sometimes is an audit record that cannot be written while the disk is full.
type sometimes struct {
	slog.Handler
	full *atomic.Bool
}

func (s sometimes) Handle(ctx context.Context, r slog.Record) error {
	if s.full.Load() {
		return errors.New("no space left on device")
	}
	return s.Handler.Handle(ctx, r)
}

func TestRepeatsAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		st := newStage(t, func(c *server.Config) {
			c.Audit = sometimes{c.Audit, &broken}
			c.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) {
				return authz.Grant{}, authz.Deny(authz.NotOnNode, "x")
			}
		})
		conn := st.dial(t)
		refused := func() {
			if err := ask(t, conn); status.Code(err) != codes.PermissionDenied {
				t.Errorf("answered %v", err)
			}
		}
		after := func(pause time.Duration, lines, faults int) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			if n := strings.Count(st.audit.String(), "\n"); n != lines {
				t.Errorf("%d lines, want %d", n, lines)
			}
			if n := strings.Count(st.log.String(), "cannot write the audit record"); n != faults {
				t.Errorf("logged %d times that it cannot be written, want %d", n, faults)
			}
		}
		refused()
		refused()
		after(50*time.Second, 1, 0)
		after(15*time.Second, 2, 0)
		broken.Store(true)
		refused()
		after(65*time.Second, 2, 1)
		conn.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// TestTLS has what a handshake with one certificate and one client does not show.
func TestTLS(t *testing.T) {
	own, err := server.NewServingCertificate(serving(newAuthority(t, noon)), func() time.Time { return noon }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	config := own.TLS(false)
	want := []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	}
	if !slices.Equal(config.CipherSuites, want) || !config.SessionTicketsDisabled || config.ClientAuth != tls.NoClientCert || config.MinVersion != tls.VersionTLS12 {
		t.Errorf("the configuration is %+v", config)
	}
}

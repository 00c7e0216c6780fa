package server_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// byNode takes a request for one of the agent on the node that its token names.
func byNode(_ context.Context, authorization, _ []string) (authz.Caller, error) {
	caller := zt
	caller.Node, caller.NodeUID = authorization[0], "u-"+authorization[0]
	return caller, nil
}

// onNode is the context of a request of the agent on a node.
func onNode(ctx context.Context, node int) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", fmt.Sprint("n", node))
}

// A service is some replicas, and what spreads new connections over those that
// have started: one after the other.
type service struct {
	mu       sync.Mutex
	replicas []*stage
	next     int
}

func (s *service) start(st *stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = append(s.replicas, st)
}

func (s *service) pick() (int, *stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	i := s.next % len(s.replicas)
	return i, s.replicas[i]
}

// A resident is a client that stays. It is used by one goroutine and by gRPC.
type resident struct {
	mu      sync.Mutex
	replica int         // of its newest connection
	cuts    []time.Time // when its connections ended
	answers []time.Time // when its calls did
}

func (r *resident) dial(ctx context.Context, s *service) (net.Conn, error) {
	i, st := s.pick()
	conn, err := st.listener.DialContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replica = i
	return &watchedConn{Conn: conn, closed: sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cuts = append(r.cuts, time.Now())
	})}, err
}

// A watchedConn tells when its client has closed it, as a client does when it
// was told to go away and has no call open any more.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// [SRV-2] 60 clients that stay, and a second replica that starts 5 min after they
// have come. After two connection ages, at their default of 30 min, both have
// their share; no call was lost, though calls were open when connections were
// cut; and the cuts were spread.
func TestLateReplicaGetsItsShare(t *testing.T) {
	const clients, age, held = 60, 30 * time.Minute, 9 * time.Second
	synctest.Test(t, func(t *testing.T) {
		slow := func(c *server.Config) {
			inner := c.Authorize
			c.Authenticate = byNode
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				time.Sleep(held)
				return inner(ctx, caller, want)
			}
		}
		first, second := newStage(t, slow), newStage(t, slow)
		for _, root := range second.cfg.Authority().Roots() {
			first.roots.AddCert(root)
		}
		s := &service{replicas: []*stage{first}}
		begin, all := time.Now(), make([]*resident, clients)
		req := forCart(t)
		var staying sync.WaitGroup
		for i := range all {
			r := &resident{}
			all[i] = r
			conn := first.dial(t, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx, s) }))
			staying.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				for time.Since(begin) < 5*time.Minute+2*age {
					if _, err := authpb.NewIstioCertificateServiceClient(conn).CreateCertificate(onNode(context.Background(), i), req); err != nil {
						t.Errorf("client %d lost a call: %v", i, err)
					}
					r.answers = append(r.answers, time.Now())
					time.Sleep(90 * time.Second)
				}
				conn.Close() //nolint:errcheck // it is over
			})
		}
		time.Sleep(5 * time.Minute)
		s.start(second)
		staying.Wait()
		share, busy, soonest, latest := 0, 0, begin.Add(24*time.Hour), begin
		for i, r := range all {
			if len(r.cuts) < 2 {
				t.Errorf("client %d never changed its connection", i)
				continue
			}
			share += r.replica
			for _, cut := range r.cuts { // one that had to wait for a call ends with it
				if slices.ContainsFunc(r.answers, cut.Equal) {
					busy++
				}
			}
			soonest, latest = earlier(soonest, r.cuts[0]), later(latest, r.cuts[0])
		}
		if share < clients/4 || share > clients*3/4 {
			t.Errorf("the late replica has %d of %d clients", share, clients)
		}
		if spread := latest.Sub(soonest); soonest.Sub(begin) < age*9/10 || latest.Sub(begin) > age*11/10+time.Minute || spread < age/10 {
			t.Errorf("the first cuts came after %v to %v", soonest.Sub(begin), latest.Sub(begin))
		}
		if busy == 0 {
			t.Error("no call was open at a cut, so nothing was shown")
		}
		first.end(t)
		second.end(t)
	})
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A crowd is 60 nodes, each with a connection of its own.
type crowd struct {
	*stage
	conns []*grpc.ClientConn
	most  atomic.Int32 // requests that were worked on at once
}

// newCrowd returns one before a server with two processors, on which a request
// takes d. What a request costs here is not counted: the clock stands still.
func newCrowd(t *testing.T, d time.Duration, change func(*server.Config)) *crowd {
	t.Helper()
	c := &crowd{}
	processors, running := make(chan bool, 2), atomic.Int32{}
	c.stage = newStage(t, func(cfg *server.Config) {
		cfg.Limits.InFlight = 512 // the default on two processors
		cfg.Authenticate = byNode
		inner := cfg.Authorize
		cfg.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
			c.most.Store(max(c.most.Load(), running.Add(1)))
			defer running.Add(-1)
			processors <- true
			time.Sleep(d)
			<-processors
			return inner(ctx, caller, want)
		}
		if change != nil {
			change(cfg)
		}
	})
	if change != nil { // another authority
		for _, root := range c.cfg.Authority().Roots() {
			c.roots.AddCert(root)
		}
	}
	for range 60 {
		c.conns = append(c.conns, c.dial(t))
	}
	return c
}

// ask asks as one of the nodes, with the deadline of a client.
func (c *crowd) ask(node int, req *authpb.IstioCertificateRequest) (*authpb.IstioCertificateResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return authpb.NewIstioCertificateServiceClient(c.conns[node]).CreateCertificate(onNode(ctx, node), req)
}

func (c *crowd) leave(t *testing.T) {
	t.Helper()
	for _, conn := range c.conns {
		conn.Close() //nolint:errcheck // it is over
	}
	c.end(t)
}

// [SRV-4] 3 000 CSRs over 60 connections within 2 s, for an RSA-2048 CA that can
// sign 1 000 a second, and then 200 a second: nobody is refused, all of the burst
// have their certificate within 2 s, and the stragglers at once.
func TestBurst(t *testing.T) {
	authority := newRSAAuthority(t)
	req := forCart(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2*time.Millisecond, func(cfg *server.Config) {
			cfg.Authority = func() *ca.Authority { return authority }
			cfg.Now = func() time.Time { return noon }
		})
		ask := func(node int, within time.Duration) {
			start := time.Now()
			resp, err := c.ask(node, req)
			if took := time.Since(start); err != nil || took > within {
				t.Errorf("after %v: %v, want a certificate within %v", took, err, within)
				return
			}
			if leaf := parse(t, resp.GetCertChain()[0]); leaf.SignatureAlgorithm != x509.SHA256WithRSA {
				t.Errorf("it is signed with %v", leaf.SignatureAlgorithm)
			}
		}
		var asking sync.WaitGroup
		for i := range 3000 {
			asking.Go(func() { ask(i%60, 2*time.Second) })
			if i%60 == 59 {
				time.Sleep(40 * time.Millisecond)
			}
		}
		asking.Wait()
		for i := range 100 {
			asking.Go(func() { ask(i%60, 50*time.Millisecond) })
			time.Sleep(5 * time.Millisecond)
		}
		asking.Wait()
		c.leave(t)
	})
}

// newRSAAuthority returns a self-signed one with a key of 2048 bits.
func newRSAAuthority(t *testing.T) *ca.Authority {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: noon.Add(-time.Hour), NotAfter: noon.AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	certs := []*x509.Certificate{root}
	a, err := ca.NewAuthority(noon, ca.Material{Signer: key, Chain: certs, Roots: certs}, ca.DefaultProfile(td))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// [SRV-4] 1 200 CSRs at once, for a server that manages 200 a second: what is too
// much is told so within 2 s, and when to come again; never are more worked on
// than allowed; and whoever comes again when told has a certificate within 9 s,
// of which 6 s are work.
func TestOverload(t *testing.T) {
	req := forCart(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 10*time.Millisecond, nil)
		begin, refused := time.Now(), atomic.Int32{}
		var asking sync.WaitGroup
		for i := range 1200 {
			asking.Go(func() {
				for {
					start := time.Now()
					_, err := c.ask(i%60, req)
					if err == nil {
						return
					}
					wait := retryAfter(err)
					if took := time.Since(start); status.Code(err) != codes.ResourceExhausted || wait == 0 || took > 2*time.Second {
						t.Errorf("after %v: %v", took, err)
						return
					}
					refused.Add(1)
					time.Sleep(wait)
				}
			})
		}
		asking.Wait()
		if took := time.Since(begin); took > 9*time.Second {
			t.Errorf("the last one was served after %v", took)
		}
		if c.most.Load() > 512 || refused.Load() == 0 {
			t.Errorf("%d were worked on at once, and %d were told to come again", c.most.Load(), refused.Load())
		}
		c.leave(t)
	})
}

// retryAfter returns when an error says to try again, or 0.
func retryAfter(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

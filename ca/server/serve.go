package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// A Front serves a [Server] on a listener.
type Front struct {
	server   *Server
	tls      *tls.Config
	shared   *sharedListener
	ready    func() error
	health   *health.Server
	draining atomic.Bool
}

// NewFront returns a Front that serves s on l with the TLS configuration of
// [ServingCertificate.TLS]. Ready says why clients should not be sent here, or
// nil; it must not wait.
func NewFront(s *Server, l net.Listener, config *tls.Config, ready func() error) *Front {
	return &Front{
		server: s, tls: config, ready: ready, health: health.NewServer(),
		shared: shareListener(l, s.cfg.Limits, s.cfg.Log, s.metrics.refusedConnections),
	}
}

// Ready returns why clients should not be sent here, or nil. A server that has
// been told to stop is not ready.
func (f *Front) Ready() error {
	if f.draining.Load() {
		return errDraining
	}
	return f.ready()
}

var errDraining = errors.New("draining")

// Serve serves until ctx is done. It then goes on for Limits.DrainDelay, closes
// the socket, lets what is in flight finish for Limits.DrainTimeout, and returns
// nil.
func (f *Front) Serve(ctx context.Context) error {
	// What ends first, the listener or the generations, ends the other.
	group, running := errgroup.WithContext(context.WithoutCancel(ctx))
	group.Go(f.shared.accept)
	group.Go(func() error {
		defer f.shared.Close() //nolint:errcheck // nothing is left to lose
		f.generations(ctx, running)
		return errDone
	})
	group.Go(func() error { f.keepHouse(running); return nil })
	err := group.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	unrecorded := f.server.audit.flush(last, f.server.cfg.Now(), true)
	if !errors.Is(err, errDone) {
		return fmt.Errorf("accepting connections: %w", err)
	}
	return unrecorded
}

var errDone = errors.New("served until told to stop")

// generations runs one gRPC server after another on the shared listener, until
// ctx is done or accepting has failed. The next one takes the new connections
// while the last tells its own to go away, which is the only way to send a
// GOAWAY that gRPC offers.
func (f *Front) generations(ctx, running context.Context) {
	elsewhere := f.pacedElsewhere(running)
	var stopping sync.WaitGroup
	defer stopping.Wait()
	for {
		g, child, served := f.newGRPC(), f.shared.child(), make(chan struct{})
		go func() {
			defer close(served)
			g.Serve(child) //nolint:errcheck // it ends with its listener, whose error is reported
		}()
		select {
		case <-ctx.Done():
			f.drain(running, g)
			return
		case <-running.Done():
			g.Stop()
			return
		case <-elsewhere:
			f.server.metrics.sentElsewhere.Inc()
			child.Close() //nolint:errcheck // it never fails
			<-served      // no connection is on its way to a server that is stopping
			stopping.Go(func() { f.stopGracefully(g) })
		}
	}
}

// pacedElsewhere passes on that clients should go elsewhere: after a jitter that
// keeps replicas out of step, and at most once a minute. What is reported in
// that minute is no news.
func (f *Front) pacedElsewhere(running context.Context) <-chan struct{} {
	paced := make(chan struct{})
	go func() {
		for {
			select {
			case <-f.server.stale:
			case <-running.Done():
				return
			}
			if !sleep(running, rand.N(5*time.Second)) { //nolint:gosec // a jitter
				return
			}
			select {
			case paced <- struct{}{}:
			case <-running.Done():
				return
			}
			if !sleep(running, time.Minute) {
				return
			}
			select {
			case <-f.server.stale:
			default:
			}
		}
	}()
	return paced
}

// sleep reports whether it slept for d, because ctx was not done before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *Front) drain(running context.Context, g *grpc.Server) {
	f.draining.Store(true)
	f.health.Shutdown()
	f.server.cfg.Log.LogAttrs(running, slog.LevelInfo, "draining", slog.Duration("delay", f.server.cfg.Limits.DrainDelay))
	sleep(running, f.server.cfg.Limits.DrainDelay)
	// Who comes now is refused at once, and not left waiting for a handshake.
	f.shared.Close() //nolint:errcheck // it is going away
	f.stopGracefully(g)
}

// stopGracefully lets what is in flight finish, but not for ever: a stream that
// stays open would hold a graceful stop as long as it likes, and a handler that
// does not return would hold any stop.
func (f *Front) stopGracefully(g *grpc.Server) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.GracefulStop()
	}()
	select {
	case <-stopped:
		return
	case <-time.After(f.server.cfg.Limits.DrainTimeout):
	}
	go g.Stop()
	select {
	case <-stopped:
	case <-time.After(time.Second):
	}
}

// keepHouse does every second what no request does: it writes the repeats of
// refusals, and tells the health service whether we are ready.
func (f *Front) keepHouse(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		// Once shut down, the health service does not listen any more.
		if f.Ready() == nil {
			f.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		} else {
			f.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
		}
		select {
		case <-ticker.C:
			f.writeRepeats(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// writeRepeats writes the repeats of refusals that are due. It does not wait long
// for it, because the health service must go on.
func (f *Front) writeRepeats(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := f.server.audit.flush(ctx, f.server.cfg.Now(), false); err != nil {
		f.server.metrics.auditFailures.Inc()
		f.server.cfg.Log.LogAttrs(ctx, slog.LevelError, "cannot write the audit record", slog.Any("error", err))
	}
}

func (f *Front) newGRPC() *grpc.Server {
	l := f.server.cfg.Limits
	g := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(f.tls)),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.MaxRecvMsgSize(l.MessageSize),
		grpc.MaxHeaderListSize(l.HeaderSize),
		grpc.MaxConcurrentStreams(l.StreamsPerConnection),
		// ztunnel pings every 30 s; grpc-go alone would allow one in 5 min.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: l.ConnectionIdle,
			// grpc-go adds a jitter of 10 % to the age.
			MaxConnectionAge:      l.ConnectionAge,
			MaxConnectionAgeGrace: l.ConnectionGrace,
			Time:                  time.Minute,
			Timeout:               20 * time.Second,
		}),
	)
	authpb.RegisterIstioCertificateServiceServer(g, f.server)
	healthpb.RegisterHealthServer(g, f.health)
	return g
}

package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A sharedListener accepts connections for one gRPC server after another.
// Closing what it hands out does not close the socket, so that no connection
// is refused in between. It bounds how many are open, in all and from one
// address.
type sharedListener struct {
	net.Listener
	log   *slog.Logger
	over  prometheus.Counter // connections beyond a bound
	most  int
	each  int
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu     sync.Mutex
	all    int
	from   map[string]int
	warned time.Time // of connections beyond a bound
}

func shareListener(l net.Listener, limits Limits, log *slog.Logger, over prometheus.Counter) *sharedListener {
	return &sharedListener{
		Listener: l, log: log, over: over, most: limits.Connections, each: limits.ConnectionsPerHost,
		conns: make(chan net.Conn), done: make(chan struct{}), from: make(map[string]int),
	}
}

// accept accepts connections until the listener is closed.
func (s *sharedListener) accept() error {
	pause := time.Duration(0)
	for {
		c, err := s.Accept()
		if err != nil && s.closed() {
			return nil
		}
		if err != nil && passes(err) {
			pause = min(time.Second, max(5*time.Millisecond, 2*pause))
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "cannot accept a connection", slog.Any("error", err), slog.Duration("pause", pause))
			time.Sleep(pause)
			continue
		}
		if err != nil {
			return err
		}
		pause = 0
		counted, ok := s.count(c)
		if !ok {
			c.Close() //nolint:errcheck // it was not wanted
			continue
		}
		select {
		case s.conns <- counted:
		case <-s.done:
			return counted.Close()
		}
	}
}

// passes reports whether an error of Accept says nothing about the socket: too
// many files are open, or the client has gone again.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (s *sharedListener) closed() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// count counts a connection until it is closed. It reports false if it is one
// too many.
func (s *sharedListener) count(c net.Conn) (net.Conn, bool) {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		host = c.RemoteAddr().String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.most || s.from[host] >= s.each {
		s.refused(host)
		return nil, false
	}
	s.all++
	s.from[host]++
	return &countedConn{Conn: c, closed: func() { s.uncount(host) }}, true
}

// refused counts a connection beyond a bound, and says so once a minute.
func (s *sharedListener) refused(host string) {
	s.over.Inc()
	if now := time.Now(); now.Sub(s.warned) >= time.Minute { //nolint:forbidigo // only for how often to say it
		s.warned = now
		s.log.LogAttrs(context.Background(), slog.LevelWarn, "closed a connection, because there are too many",
			slog.String("host", host), slog.Int("fromHost", s.from[host]), slog.Int("all", s.all),
			slog.String("next", "raise limits.connections or limits.connectionsPerHost, or add replicas"))
	}
}

// open returns how many connections there are.
func (s *sharedListener) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *sharedListener) uncount(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[host]--; s.from[host] == 0 {
		delete(s.from, host)
	}
}

// A countedConn tells when it is closed.
type countedConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// Close closes the socket.
func (s *sharedListener) Close() error {
	var err error
	s.once.Do(func() {
		close(s.done)
		err = s.Listener.Close()
	})
	return err
}

// child returns a listener for one gRPC server.
func (s *sharedListener) child() *childListener {
	return &childListener{shared: s, done: make(chan struct{})}
}

type childListener struct {
	shared *sharedListener
	done   chan struct{}
	once   sync.Once
}

// Accept returns the next connection, until the child or the socket is closed.
func (c *childListener) Accept() (net.Conn, error) {
	select {
	case conn := <-c.shared.conns:
		return conn, nil
	case <-c.done:
	case <-c.shared.done:
	}
	return nil, net.ErrClosed
}

// Close closes the child, and nothing else.
func (c *childListener) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// Addr returns the address of the socket.
func (c *childListener) Addr() net.Addr { return c.shared.Addr() }

package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// script is a listener whose Accept does what it is told.
type script struct {
	net.Listener
	next chan any // an error, or the address of a client
}

func (s script) Accept() (net.Conn, error) {
	switch v := (<-s.next).(type) {
	case error:
		return nil, v
	case string:
		a, b := net.Pipe()
		return fromConn{a, b, v}, nil
	default:
		return nil, net.ErrClosed
	}
}

func (s script) Close() error { close(s.next); return nil }

// fromConn is a connection from an address.
type fromConn struct {
	net.Conn
	other net.Conn
	host  string
}

func (c fromConn) RemoteAddr() net.Addr { return addr(c.host) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

func newScript(l Limits) (script, *sharedListener, chan error) {
	s := script{next: make(chan any)}
	shared := shareListener(s, l, slog.New(slog.DiscardHandler), prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}))
	done := make(chan error, 1)
	go func() { done <- shared.accept() }()
	return s, shared, done
}

// TestAcceptErrors has those that pass, and one that does not.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shared, done := newScript(Limits{Connections: 10, ConnectionsPerHost: 10})
		start := time.Now()
		fail := func(errno error) { s.next <- &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", errno)} }
		for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
			fail(errno)
		}
		for range 4 {
			fail(syscall.EMFILE)
		}
		child := shared.child()
		s.next <- "10.0.0.1:1"
		if took := time.Since(start); took != 3275*time.Millisecond { // 5 ms, twice as long each time, and twice a second
			t.Errorf("it paused for %v in all after ten errors", took)
		}
		if c, err := child.Accept(); err != nil {
			t.Errorf("after errors that pass, a connection got %v", err)
		} else {
			c.Close() //nolint:errcheck // a test
		}
		start = time.Now()
		fail(syscall.EMFILE)
		s.next <- errors.New("the socket is gone")
		if took := time.Since(start); took != 5*time.Millisecond {
			t.Errorf("it paused for %v after one error", took)
		}
		if err := <-done; err == nil {
			t.Error("an error that does not pass was passed over")
		}
	})
}

// TestConnectionsAreBounded opens one more than allowed, from one address and
// in all, and then closes one.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shared, done := newScript(Limits{Connections: 3, ConnectionsPerHost: 2})
		child := shared.child()
		open := func(host string) net.Conn {
			t.Helper()
			s.next <- host
			c, err := child.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		first := open("a:1")
		rest := []net.Conn{open("a:2")}
		refused := func(host string) { // closed, and not handed out
			s.next <- host
			synctest.Wait()
		}
		refused("a:3") // the third from one address
		rest = append(rest, open("b:1"))
		refused("c:1") // the fourth in all
		first.Close()  //nolint:errcheck // a test
		first.Close()  //nolint:errcheck // twice counts once
		rest = append(rest, open("a:4"))
		refused("c:2")
		for _, c := range rest {
			c.Close() //nolint:errcheck // a test
		}
		synctest.Wait()
		if shared.all != 0 || len(shared.from) != 0 {
			t.Errorf("%d connections are counted after all were closed", shared.all)
		}
		if n := testutil.ToFloat64(shared.over); n != 3 {
			t.Errorf("%v refused connections are counted, want 3", n)
		}
		shared.Close() //nolint:errcheck // a test
		if err := <-done; err != nil {
			t.Errorf("accept = %v", err)
		}
	})
}

// TestAddressesWithoutPort are bounded like those with one.
func TestAddressesWithoutPort(t *testing.T) {
	_, shared, _ := newScript(Limits{Connections: 10, ConnectionsPerHost: 1})
	defer shared.Close() //nolint:errcheck // a test
	for _, tt := range []struct {
		address string
		want    bool
	}{{"@", true}, {"@", false}, {"other", true}} {
		if _, ok := shared.count(fromConn{host: tt.address}); ok != tt.want {
			t.Errorf("a connection from %s: %v, want %v", tt.address, ok, tt.want)
		}
	}
}

// TestTooManyConnectionsAreLogged once a minute.
func TestTooManyConnectionsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, shared, _ := newScript(Limits{})
		defer shared.Close() //nolint:errcheck // a test
		var log bytes.Buffer
		shared.log = slog.New(slog.NewTextHandler(&log, nil))
		for _, tt := range []struct {
			pause time.Duration
			lines int
		}{{0, 1}, {0, 1}, {59 * time.Second, 1}, {time.Second, 2}, {30 * time.Second, 2}, {30 * time.Second, 3}} {
			time.Sleep(tt.pause)
			shared.count(fromConn{host: "a:1"})
			if n := strings.Count(log.String(), "\n"); n != tt.lines {
				t.Errorf("%d lines after %v more, want %d", n, tt.pause, tt.lines)
			}
		}
	})
}

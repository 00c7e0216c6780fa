package server

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

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

func (c fromConn) RemoteAddr() net.Addr { return addr(c.host + ":1") }

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
		for _, errno := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED, syscall.ENOMEM} {
			s.next <- &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", errno)}
		}
		child := shared.child()
		s.next <- "10.0.0.1"
		if c, err := child.Accept(); err != nil {
			t.Errorf("after errors that pass, a connection got %v", err)
		} else {
			c.Close() //nolint:errcheck // a test
		}
		s.next <- errors.New("the socket is gone")
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
		first := open("a")
		rest := []net.Conn{open("a")}
		refused := func(host string) { // closed, and not handed out
			s.next <- host
			synctest.Wait()
		}
		refused("a") // the third from one address
		rest = append(rest, open("b"))
		refused("c")  // the fourth in all
		first.Close() //nolint:errcheck // a test
		first.Close() //nolint:errcheck // twice counts once
		rest = append(rest, open("a"))
		refused("c")
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

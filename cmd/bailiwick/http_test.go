package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A pipes is a listener without a network, whose time can be a test's.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A side is the server's side of a connection.
type side struct {
	net.Conn

	accepted, left chan struct{} // closed when it is
	once           sync.Once
}

func (s *side) Close() error {
	s.once.Do(func() { close(s.left) })
	return s.Conn.Close()
}

// dial returns both sides of a connection that is to be accepted.
func (p *pipes) dial() (net.Conn, *side) {
	ours, theirs := net.Pipe()
	s := &side{Conn: theirs, accepted: make(chan struct{}), left: make(chan struct{})}
	go func() {
		select {
		case p.accepted <- s:
			close(s.accepted)
		case <-p.closed:
		}
	}()
	return ours, s
}

// withAdmin serves the other port in a bubble.
func withAdmin(t *testing.T, f func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- serveHTTP(ctx, p, newAdmin(func() error { return nil }, prometheus.NewRegistry()))
		}()
		f(t, p)
		time.Sleep(time.Second) // of this bubble: net/http waits before it leaves a client that it has refused
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestSlowClientsAreLeft has clients of the other port that begin and do not go
// on, and wants each to be left at its bound, and not before.
func TestSlowClientsAreLeft(t *testing.T) {
	const get = "GET /healthz HTTP/1.1\r\nHost: x\r\n"
	for _, tt := range []struct {
		name, send string
		reads      bool
		after      time.Duration
	}{
		{"sends nothing", "", true, adminReadTimeout},
		{"sends half a header", get, true, adminReadTimeout},
		{"sends no body", "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", true, adminReadTimeout},
		{"sends half a body", get + "Content-Length: 10\r\n\r\nhalf", true, adminReadTimeout},
		{"does not ask again", get + "\r\n", true, adminIdleTimeout},
		{"does not read", get + "\r\n", false, adminWriteTimeout},
		{"asks on, and does not read", strings.Repeat(get+"\r\n", 1000), false, adminWriteTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withAdmin(t, func(t *testing.T, p *pipes) {
				conn, theirs := p.dial()
				start := time.Now()
				go io.WriteString(conn, tt.send) //nolint:errcheck // the server may leave before
				if tt.reads {
					go io.Copy(io.Discard, conn) //nolint:errcheck // until it leaves
				}
				<-theirs.left
				if got := time.Since(start); got < tt.after || got > tt.after+time.Second {
					t.Errorf("it is left after %v, want %v", got, tt.after)
				}
			})
		})
	}
}

// TestHeadersAreBounded sends headers around the bound.
func TestHeadersAreBounded(t *testing.T) {
	for size, want := range map[int]int{adminHeaderBytes: http.StatusOK, adminHeaderBytes + 5<<10: http.StatusRequestHeaderFieldsTooLarge} {
		withAdmin(t, func(t *testing.T, p *pipes) {
			conn, _ := p.dial()
			defer conn.Close()                                                                                      //nolint:errcheck // a test
			go io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n") //nolint:errcheck // refused before its end
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // a test
			if resp.StatusCode != want {
				t.Errorf("a header of %d bytes: %s, want %d", size, resp.Status, want)
			}
		})
	}
}

// TestConnectionsWaitAtTheBound opens as many connections as there may be, and
// one more, which waits until one of them ends.
func TestConnectionsWaitAtTheBound(t *testing.T) {
	withAdmin(t, func(t *testing.T, p *pipes) {
		var first net.Conn
		for i := range adminConnections {
			conn, theirs := p.dial()
			defer conn.Close() //nolint:errcheck // a test
			if synctest.Wait(); !isClosed(theirs.accepted) {
				t.Fatalf("connection %d is not accepted", i)
			}
			if first == nil {
				first = conn
			}
		}
		conn, theirs := p.dial()
		defer conn.Close() //nolint:errcheck // a test
		if synctest.Wait(); isClosed(theirs.accepted) {
			t.Errorf("there are %d connections, and another one is accepted", adminConnections)
		}
		first.Close() //nolint:errcheck // it has nothing more to say
		if synctest.Wait(); !isClosed(theirs.accepted) {
			t.Error("a connection has ended, and the next still waits")
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

package cluster

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Link is an API server's way to etcd. It can be slow, and it can be held:
// then connections stay open and nothing comes through, until it is let go.
type Link struct {
	addr     string
	to       string
	listener net.Listener

	mu    sync.Mutex
	moved *sync.Cond // delay or held has changed
	delay time.Duration
	held  bool
	ended bool
	conns []net.Conn
}

func newLink(to string) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("making a link to %s: %w", to, err)
	}
	l := &Link{addr: ln.Addr().String(), to: to, listener: ln}
	l.moved = sync.NewCond(&l.mu)
	go l.accept()
	return l, nil
}

// Delay has everything from etcd arrive later by d.
func (l *Link) Delay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Hold lets nothing through, until the test ends or releases it.
func (l *Link) Hold(t testing.TB) {
	t.Helper()
	l.set(func() { l.held = true })
	t.Cleanup(l.Release)
}

// Release lets through what was held, and all that follows.
func (l *Link) Release() { l.set(func() { l.held = false }) }

func (l *Link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.moved.Broadcast()
}

func (l *Link) close() {
	l.set(func() { l.ended = true })
	l.listener.Close() //nolint:errcheck // the test is over
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close() //nolint:errcheck // the test is over
	}
}

func (l *Link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		go l.join(from)
	}
}

// join copies both ways until either end is closed.
func (l *Link) join(from net.Conn) {
	to, err := net.Dial("tcp", l.to)
	if err != nil {
		from.Close() //nolint:errcheck // the API server sees it and dials again
		return
	}
	l.set(func() { l.conns = append(l.conns, from, to) })
	go l.copy(to, from, func() time.Duration { return 0 })
	l.copy(from, to, l.lag)
}

func (l *Link) lag() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// A parcel is a piece of a stream, and when it may arrive.
type parcel struct {
	bytes []byte
	due   <-chan time.Time
}

func (l *Link) copy(to io.WriteCloser, from io.ReadCloser, lag func() time.Duration) {
	queue := make(chan parcel, 1024)
	go func() {
		defer close(queue)
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				queue <- parcel{b[:n], time.After(lag())}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range queue {
		<-p.due
		if !l.pass() {
			break
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	to.Close()        //nolint:errcheck // nothing is lost
	from.Close()      //nolint:errcheck // nothing is lost
	for range queue { // lets the reader end
	}
}

// pass waits while the link is held. It reports whether to go on.
func (l *Link) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held && !l.ended {
		l.moved.Wait()
	}
	return !l.ended
}

package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A framed connection speaks HTTP/2 frame by frame, for what a client library
// does not let one do, or see.
type framed struct {
	*tls.Conn

	acks  atomic.Int32  // of pings
	ready chan struct{} // closed at the first settings
	ended chan string   // has the reason once the authority has ended it

	mu     sync.Mutex // framer's writing
	framer *http2.Framer
}

// framed connects, and returns once the authority has sent its settings.
func (t *T) framed(config *tls.Config) *framed {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	t.check("connecting", err)
	c := tls.Client(raw, config)
	f := &framed{Conn: c, ready: make(chan struct{}), ended: make(chan string, 1), framer: http2.NewFramer(c, c)}
	if err := f.begin(ctx); err != nil {
		raw.Close() //nolint:errcheck // it is of no use
		t.fatalf("a new connection: %v", err)
	}
	go func() { f.ended <- f.read() }()
	select {
	case <-f.ready:
	case why := <-f.ended:
		t.fatalf("a new connection was ended: %s", why)
	case <-ctx.Done():
		raw.Close() //nolint:errcheck // it is of no use
		t.fatalf("no settings within 10 s")
	}
	return f
}

func (f *framed) begin(ctx context.Context) error {
	if err := f.HandshakeContext(ctx); err != nil {
		return err
	}
	if _, err := f.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	return f.write(func(w *http2.Framer) error { return w.WriteSettings() })
}

func (f *framed) write(frame func(*http2.Framer) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return frame(f.framer)
}

// read reads until the end, and returns what it was.
func (f *framed) read() string {
	settled := sync.OnceFunc(func() { close(f.ready) })
	for {
		frame, err := f.framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if frame.IsAck() {
				continue
			}
			if err := f.write((*http2.Framer).WriteSettingsAck); err != nil {
				return err.Error()
			}
			settled()
		case *http2.PingFrame:
			if frame.IsAck() {
				f.acks.Add(1)
			} else if err := f.write(func(w *http2.Framer) error { return w.WritePing(true, frame.Data) }); err != nil {
				return err.Error()
			}
		case *http2.GoAwayFrame:
			return fmt.Sprintf("GOAWAY %v: %s", frame.ErrCode, frame.DebugData())
		}
	}
}

// open begins a request for a certificate, and sends nothing of it.
func (f *framed) open(authority string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "https"},
		{":authority", authority},
		{":path", "/istio.v1.auth.IstioCertificateService/CreateCertificate"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) //nolint:errcheck // a buffer takes it
	}
	return f.write(func(w *http2.Framer) error {
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	})
}

func (f *framed) ping() error {
	return f.write(func(w *http2.Framer) error { return w.WritePing(false, [8]byte{1}) })
}

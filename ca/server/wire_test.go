package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// A wire is a client of HTTP/2 that keeps no rule which a library would keep for
// it (RFC 9113).
type wire struct{ net.Conn }

// The frames that it sends and reads.
const (
	frameHeaders      = 1
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameContinuation = 9

	enhanceYourCalm = 11
)

func (st *stage) wire(t *testing.T) wire {
	t.Helper()
	raw, err := st.listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: st.roots, ServerName: "localhost", NextProtos: []string{"h2"}})
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := wire{conn}
	if _, err := io.WriteString(w, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.send(frameSettings, 0, 0, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// send sends a frame.
func (w wire) send(kind, flags byte, stream uint32, payload []byte) error {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	_, err := w.Write(append(head, payload...))
	return err
}

// A frame is one that was read.
type frame struct {
	kind    byte
	payload []byte
}

// read returns the frames that come until the server closes the connection.
func (w wire) read() (frames []frame) {
	r := bufio.NewReader(w)
	head := make([]byte, 9)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return frames
		}
		f := frame{head[3], make([]byte, binary.BigEndian.Uint32(head)>>8)}
		if _, err := io.ReadFull(r, f.payload); err != nil {
			return frames
		}
		frames = append(frames, f)
	}
}

// [SRV-1] A client that pings every 100 ms is cut off, with the words for why;
// one beside it, which pings every 10 s, does not notice.
func TestPingsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t, nil)
		calm := st.dial(t, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}))
		if err := ask(t, calm); err != nil {
			t.Fatal(err)
		}
		if err := st.ping(t, 100*time.Millisecond, time.Minute); !errors.Is(err, errTooManyPings) {
			t.Errorf("pings without end: %v", err)
		}
		time.Sleep(time.Minute)
		if err := ask(t, calm); err != nil || st.dials.Load() != 1 {
			t.Errorf("the other client got %v, after %d dials", err, st.dials.Load())
		}
		calm.Close() //nolint:errcheck // it is over
		st.end(t)
	})
}

// [SRV-1] 5 s between pings are enough, and a little less is not.
func TestPingsAtTheLimit(t *testing.T) {
	for every, want := range map[time.Duration]error{5 * time.Second: nil, 4900 * time.Millisecond: errTooManyPings} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t, nil)
				if err := st.ping(t, every, 3*time.Minute); !errors.Is(err, want) {
					t.Errorf("3 min of pings: %v, want %v", err, want)
				}
				st.end(t)
			})
		})
	}
}

var errTooManyPings = errors.New("too_many_pings")

// ping pings for so long. The error is why the server hung up before.
func (st *stage) ping(t *testing.T, every, long time.Duration) error {
	t.Helper()
	w := st.wire(t)
	var frames []frame
	var reading sync.WaitGroup
	reading.Go(func() { frames = w.read() })
	start, err := time.Now(), error(nil)
	for err == nil && time.Since(start) < long {
		time.Sleep(every)
		err = w.send(framePing, 0, 0, make([]byte, 8))
	}
	synctest.Wait()
	w.Close() //nolint:errcheck // it is over
	reading.Wait()
	last := frames[len(frames)-1]
	if last.kind == frameGoAway && binary.BigEndian.Uint32(last.payload[4:]) == enhanceYourCalm && string(last.payload[8:]) == errTooManyPings.Error() {
		return errTooManyPings
	}
	return err
}

// [TOK-6] Clients that send 1 MiB of metadata though they were told the limit, 20
// at once: each is cut off and never heard, and the server goes on.
func TestHeadersBeyondTheLimit(t *testing.T) {
	for name, value := range map[string]string{
		"dots": strings.Repeat(".", 1<<20), "one letter": strings.Repeat("a", 1<<20), "spaces": strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int32
				st := newStage(t, func(c *server.Config) {
					inner := c.Authenticate
					c.Authenticate = func(ctx context.Context, a, id []string) (authz.Caller, error) {
						asked.Add(1)
						return inner(ctx, a, id)
					}
				})
				var clients sync.WaitGroup
				for range 20 {
					w := st.wire(t)
					clients.Go(func() { _ = w.headers(value) }) // it is cut off on the way
					clients.Go(func() {
						start := time.Now()
						for _, f := range w.read() {
							if f.kind == frameHeaders {
								t.Errorf("answered with %q", f.payload)
							}
						}
						if took := time.Since(start); took > 0 {
							t.Errorf("it was cut off after %v, want at once", took)
						}
						w.Close() //nolint:errcheck // it is over
					})
				}
				clients.Wait()
				conn := st.dial(t)
				if err := ask(t, conn); err != nil || asked.Load() != 1 {
					t.Errorf("then: %v; %d were heard, want the last one only", err, asked.Load())
				}
				conn.Close() //nolint:errcheck // it is over
				st.end(t)
			})
		})
	}
}

// headers begins a request with this authorization value.
func (w wire) headers(value string) error {
	block := []byte{0x83, 0x87} // :method POST, :scheme https (RFC 7541, Appendix A)
	for _, field := range [][2]string{
		{":path", "/istio.v1.auth.IstioCertificateService/CreateCertificate"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", value},
	} {
		block = append(block, 0) // a literal that is not indexed: RFC 7541, Section 6.2.2
		for _, text := range field {
			block = append(hpackInt(block, len(text)), text...)
		}
	}
	const most = 16 << 10 // in one frame
	kind := byte(frameHeaders)
	for len(block) > most {
		if err := w.send(kind, 0, 1, block[:most]); err != nil {
			return err
		}
		block, kind = block[most:], frameContinuation
	}
	return w.send(kind, 0x4, 1, block) // END_HEADERS
}

// hpackInt appends n with a prefix of 7 bits (RFC 7541, Section 5.1).
func hpackInt(block []byte, n int) []byte {
	if n < 127 {
		return append(block, byte(n))
	}
	return binary.AppendUvarint(append(block, 127), uint64(n-127))
}

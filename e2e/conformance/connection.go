package conformance

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	alpn      = "RFC 9113, Section 3.2; istio, ztunnel offers h2 only"
	policies  = "istio, COMPLIANCE_POLICY of agents and ztunnel"
	pings     = "grpc/grpc-go#2202, #5063: ENHANCE_YOUR_CALM, too many pings"
	clientTLS = "istio, ztunnel and istio-agent: the credential is the token"
)

func connectionCases() []Case {
	return slices.Concat(tlsCases(), oldCases(), certificateOfClientCases(), http2Cases())
}

// served says that a client of this kind gets a certificate.
func (t *T) served(change func(*tls.Config)) {
	config := t.tls()
	change(config)
	c, err := t.dial(config)
	t.check("connecting", err)
	defer c.Close() //nolint:errcheck // all is answered
	t.holds(c.send(t.ctx, t.request(t.agent1, t.cart.id())), t.cart.id())
}

// turnedAway says that no handshake succeeds with a client of this kind, and
// that this is told in time.
func (t *T) turnedAway(change func(*tls.Config)) {
	config := t.tls()
	change(config)
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	state, err := t.handshake(ctx, config)
	switch {
	case err == nil:
		t.errorf("a handshake succeeded: %s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite))
	case ctx.Err() != nil:
		t.errorf("a handshake hung: %v", err)
	default:
		t.note("turned away: %v", err)
	}
}

func asDefault(*tls.Config) {}

// tlsCases are about the handshake.
func tlsCases() []Case {
	return []Case{
		{ID: "connection-01", Level: Must, Source: alpn, run: func(t *T) {
			for _, offer := range [][]string{{"h2"}, {"http/1.1", "h2"}} {
				config := t.tls()
				config.NextProtos = offer
				state, err := t.handshake(t.ctx, config)
				if err != nil || state.NegotiatedProtocol != "h2" {
					t.fatalf("offered %v: %v, %+v", offer, err, state)
				}
			}
		}, Says: "h2 is chosen by ALPN"},
		{ID: "connection-02", Level: Should, Source: alpn, run: func(t *T) {
			t.endsSoon()
			t.endsSoon("http/1.1")
			t.endsSoon("spdy/3")
			t.served(asDefault)
		}, Says: "a client that does not offer h2 is not left waiting"},
		{ID: "connection-03", Level: Must, Source: "istio, ztunnel speaks TLS 1.3 only", run: func(t *T) {
			t.served(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 })
		}, Says: "a client that speaks TLS 1.3 only is served"},
		{ID: "connection-04", Level: Should, Source: policies + ": pqc", run: func(t *T) {
			t.served(func(c *tls.Config) {
				c.MinVersion, c.CurvePreferences = tls.VersionTLS13, []tls.CurveID{tls.X25519MLKEM768}
			})
		}, Says: "a client that offers X25519MLKEM768 and nothing else is served"},
		{ID: "connection-05", Level: Should, Source: policies + ": fips-140-2", run: func(t *T) {
			t.served(func(c *tls.Config) {
				c.MaxVersion, c.CurvePreferences = tls.VersionTLS12, []tls.CurveID{tls.CurveP256}
				c.CipherSuites = []uint16{
					tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
					tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
				}
			})
		}, Says: "a client that speaks TLS 1.2 with P-256 and AES-GCM only, as FIPS 140-2 has it, is served"},
		{ID: "connection-06", Level: Should, Source: policies + ": fips-140-3", run: func(t *T) {
			for _, curve := range []tls.CurveID{tls.CurveP256, tls.CurveP384} {
				t.served(func(c *tls.Config) { c.MinVersion, c.CurvePreferences = tls.VersionTLS13, []tls.CurveID{curve} })
			}
		}, Says: "a client that speaks TLS 1.3 with P-256 only, or P-384 only, is served"},
		{ID: "connection-07", Level: Should, Source: "RFC 6066, Section 3: an address is no server name", run: func(t *T) {
			t.served(func(c *tls.Config) {
				c.ServerName, c.InsecureSkipVerify, c.VerifyConnection = "127.0.0.1", true, hasName(c)
			})
		}, Says: "a client that sends no server name is served, with the same name"},
	}
}

// oldCases are about what is not to be spoken any more.
func oldCases() []Case {
	return []Case{
		{ID: "connection-08", Level: Should, Source: "RFC 8996", run: func(t *T) {
			for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
				t.turnedAway(func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version })
			}
			t.served(asDefault)
		}, Says: "TLS 1.0 and 1.1 are not spoken"},
		{ID: "connection-09", Level: Should, Source: "RFC 9113, Appendix A: suites that HTTP/2 is not to be used with", run: func(t *T) {
			for _, suites := range [][]uint16{
				{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA},
				{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256},
				{tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384},
			} {
				t.turnedAway(func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, suites })
			}
			t.served(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
		}, Says: "no cipher suite of TLS 1.2 is accepted that is CBC or has no forward secrecy"},
		{ID: "connection-10", Level: Profile, Source: "docs/wire.md", run: notResumed,
			Says: "no session is resumed"},
	}
}

// endsSoon says that a connection that offers these protocols is ended, whether
// in the handshake or after it.
func (t *T) endsSoon(offer ...string) {
	config := t.tls()
	config.NextProtos = offer
	raw, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.ctx, "tcp", t.Address)
	t.check("connecting", err)
	defer raw.Close()                                                              //nolint:errcheck // it is ended
	t.check("setting a deadline", raw.SetDeadline(time.Now().Add(10*time.Second))) //nolint:forbidigo // an authority outside this process has no other clock
	c := tls.Client(raw, config)
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: none\r\n\r\n"))
	for answer := make([]byte, 1024); err == nil; {
		_, err = c.Read(answer)
	}
	t.note("offered %q: %v", offer, err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.errorf("a client that offers %q is left waiting", offer)
	}
}

// hasName verifies as a client does, for the name that it does not send.
func hasName(c *tls.Config) func(tls.ConnectionState) error {
	roots, name := c.RootCAs, c.ServerName
	return func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, i := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(i)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
}

func notResumed(t *T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := t.tls()
		config.MaxVersion, config.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
		for range 3 {
			f := t.framed(config) // it has read something, and with it a ticket
			if f.ConnectionState().DidResume {
				t.errorf("a session of %s was resumed", tls.VersionName(version))
			}
			f.Close() //nolint:errcheck // nothing is under way
		}
	}
}

// certificateOfClientCases are about certificates that clients bring.
func certificateOfClientCases() []Case {
	return []Case{
		{ID: "connection-11", Level: Must, Source: clientTLS, run: func(t *T) {
			t.served(func(c *tls.Config) {
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
			})
		}, Says: "a client without a certificate is served"},
		{ID: "connection-12", Level: Profile, Source: "docs/wire.md", run: func(t *T) {
			asked := false
			config := t.tls()
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked = true
				return &tls.Certificate{}, nil
			}
			_, err := t.handshake(t.ctx, config)
			t.check("connecting", err)
			if asked {
				t.errorf("the client is asked for a certificate")
			}
		}, Says: "no certificate is asked for"},
		{ID: "connection-13", Level: Must, Source: ambient, run: func(t *T) {
			c := t.bringing(t.foreign(t.pay.id()))
			defer c.Close() //nolint:errcheck // all is answered
			t.nothing(c, t.request(t.agent1, t.pay.id(), withHeader("authorization")))
			t.nothing(c, t.request(t.agent2, t.pay.id(), withHeader("authorization")))
			t.nothing(c, t.request(&caller{own: t.pay.id()}, "", withHeader("authorization")))
			t.nothing(c, t.request(t.caller(t.cartPod), t.pay.id()))
			t.served(asDefault)
		}, Says: "a certificate that somebody made for himself gives no identity"},
		{ID: "connection-14", Level: Profile, Source: "docs/wire.md", run: func(t *T) {
			c := t.bringing(t.foreign(t.pay.id()))
			defer c.Close() //nolint:errcheck // all is answered
			t.holds(c.send(t.ctx, t.request(t.caller(t.cartPod), "")), t.cart.id())
		}, Says: "a client that brings any certificate is who its token says"},
		{ID: "connection-15", Level: Must, Source: ambient, run: func(t *T) {
			for _, one := range []*certificate{t.issued(t.agent1, ""), t.issued(t.agent1, t.both.id())} {
				c := t.bringing(one.forTLS())
				t.nothing(c, t.request(t.agent1, t.cart.id(), withHeader("authorization")))
				t.nothing(c, t.request(t.agent1, t.pay.id(), withHeader("authorization")))
				c.Close() //nolint:errcheck // all is answered
			}
			t.served(asDefault)
		}, Says: "an issued certificate, an agent's included, does not get another's identity without a token"},
		{ID: "connection-16", Level: Profile, Source: "docs/wire.md: a certificate that renews itself would bypass the node rule", run: func(t *T) {
			c := t.bringing(t.issued(t.agent1, t.both.id()).forTLS())
			defer c.Close() //nolint:errcheck // all is answered
			t.nothing(c, t.request(&caller{own: t.both.id()}, "", withHeader("authorization")))
			t.nothing(c, t.request(&caller{own: t.both.id()}, t.both.id(), withHeader("authorization")))
			t.served(asDefault)
		}, Says: "an issued certificate does not renew itself without a token"},
	}
}

// bringing is a connection of a client that brings a certificate, whomever the
// authority trusts.
func (t *T) bringing(cert *tls.Certificate) *connection {
	config := t.tls()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	c, err := t.dial(config)
	t.check("connecting", err)
	return c
}

// nothing says that the request gets no certificate. That the handshake fails
// is as good a way as any.
func (t *T) nothing(c *connection, r *request) {
	if a := c.send(t.ctx, r); a.issued() {
		t.fatalf("a certificate was issued")
	} else {
		t.note("%v: %s", a.code, a.message)
	}
}

// foreign is a certificate for an identity that its holder made.
func (t *T) foreign(id string) *tls.Certificate {
	key, err := newKey()
	t.check("making a key", err)
	der, err := selfSigned(key, id)
	t.check("making a certificate", err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// selfSigned is a certificate for the identities, signed by its own key.
func selfSigned(key crypto.Signer, ids ...string) ([]byte, error) {
	now := time.Now() //nolint:forbidigo // a certificate has to be valid
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, id := range ids {
		u, err := url.Parse(id)
		if err != nil {
			return nil, err
		}
		c.URIs = append(c.URIs, u)
	}
	return x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
}

// forTLS is the certificate as its holder presents it.
func (c *certificate) forTLS() *tls.Certificate {
	chain := [][]byte{c.leaf.der}
	for _, issuer := range c.path {
		chain = append(chain, issuer.der)
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: c.key}
}

// http2Cases are about what goes on after the handshake.
func http2Cases() []Case {
	return []Case{
		{ID: "connection-17", Level: Should, Source: pings + "; istio, ztunnel pings every 30 s while a request is open", run: func(t *T) {
			t.pinged(30*time.Second, 4, true)
		}, Slow: true, Says: "pings 30 s apart on a connection with a request are not punished"},
		{ID: "connection-18", Level: Should, Source: pings, run: func(t *T) {
			t.pinged(10*time.Second, 5, true, false)
		}, Slow: true, Says: "pings 10 s apart, with and without a request, are not punished"},
		{ID: "connection-19", Level: Profile, Source: "docs/wire.md", run: func(t *T) {
			// grpc-go, in which most authorities are written, ends it at the fourth.
			t.pinged(5200*time.Millisecond, 4, true, false)
		}, Says: "pings just over 5 s apart, with and without a request, are not punished"},
		{ID: "connection-20", Level: Profile, Source: "docs/decisions: a draining server lets what is in flight finish", run: drained,
			Says: "an authority that is drained answers what it has begun, and sends its clients away"},
		{ID: "connection-21", Level: Should, Source: "gRPC health checking protocol; Kubernetes, gRPC probes", run: func(t *T) {
			var r *healthpb.HealthCheckResponse
			var err error
			for more := t.settling(); more(); {
				r, err = healthpb.NewHealthClient(t.conn).Check(t.ctx, &healthpb.HealthCheckRequest{})
				if err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING {
					return
				}
			}
			t.fatalf("%v, %v", r.GetStatus(), err)
		}, Says: "the gRPC health service says that the authority serves"},
		{ID: "connection-22", Level: Profile, Source: "docs/wire.md: there are two services", run: func(t *T) {
			for _, version := range []string{"v1", "v1alpha"} {
				t.unimplemented("/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo")
			}
		}, Says: "there is no gRPC reflection"},
		{ID: "connection-23", Level: Should, Source: "gRPC, status codes", run: func(t *T) {
			t.unimplemented("/istio.v1.auth.IstioCertificateService/None")
			t.unimplemented("/none/None")
			t.issued(t.agent1, t.cart.id())
		}, Says: "an unknown method is Unimplemented, and the connection goes on"},
		{ID: "connection-24", Level: Should, Source: "a client that hangs is not to hang others", run: silent,
			Says: "requests that send nothing, and connections that say nothing, keep nobody waiting"},
	}
}

// pinged pings connections on which a request is open, or none, and says that
// all pings are answered and no connection is ended.
func (t *T) pinged(every time.Duration, n int, open ...bool) {
	all := make(map[*framed]bool)
	for _, o := range open {
		f := t.framed(t.tls())
		defer f.Close() //nolint:errcheck // nothing is under way
		if o {
			t.check("opening a request", f.open(t.Address))
		}
		all[f] = o
	}
	for i := range n {
		if i > 0 {
			t.pause(every)
		}
		for f, o := range all {
			if err := f.ping(); err != nil {
				t.fatalf("request open %v: ping %d of %d: %v", o, i+1, n, err)
			}
		}
	}
	t.pause(time.Second)
	for f, o := range all {
		select {
		case why := <-f.ended:
			t.errorf("request open %v: ended: %s", o, why)
		default:
		}
		if got := f.acks.Load(); int(got) != n {
			t.errorf("request open %v: %d of %d pings were answered", o, got, n)
		}
	}
}

func (t *T) unimplemented(method string) {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	if err := t.conn.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.errorf("%s: %v", method, err)
	}
}

// silent opens what sends nothing, and asks beside it.
func silent(t *T) {
	for range 20 {
		raw, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.ctx, "tcp", t.Address)
		t.check("connecting", err)
		defer raw.Close() //nolint:errcheck // it says nothing
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	for range 8 {
		_, err := t.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/istio.v1.auth.IstioCertificateService/CreateCertificate")
		t.check("opening a request", err)
	}
	t.served(asDefault)
	if a := t.ask(t.agent1, t.cart.id()); !a.issued() || a.took > soon {
		t.errorf("%v after %v: %s", a.code, a.took, a.message)
	}
}

// drained needs somebody who tells the authority to stop.
func drained(t *T) {
	if t.drain == nil {
		t.cannot("nobody here can drain the authority")
	}
	f := t.framed(t.tls())
	defer f.Close() //nolint:errcheck // all is over
	requests := make([]*request, 8)
	for i := range requests {
		// What may only be late takes its time.
		requests[i] = t.request(t.agent1, "spiffe://"+t.TrustDomain+"/ns/"+t.prefix+"/sa/"+t.name("none"))
	}
	answers := make([]*answer, len(requests))
	done := make(chan struct{})
	go func() {
		defer close(done)
		parallel(len(requests), func(i int) { answers[i] = t.conn.send(t.ctx, requests[i]) })
	}()
	t.pause(100 * time.Millisecond) // until they are on their way
	t.check("draining the authority", t.drain(t.ctx))
	<-done
	for _, a := range answers {
		if !a.refused() {
			t.errorf("in flight: %v: %s", a.code, a.message)
		}
	}
	select {
	case why := <-f.ended:
		if !strings.HasPrefix(why, "GOAWAY NO_ERROR") {
			t.errorf("an idle connection: %s", why)
		}
	case <-time.After(time.Minute):
		t.errorf("an idle connection was not ended within a minute")
	}
}

package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	authpb "github.com/bailiwick-ca/bailiwick/proto/istio/v1/auth"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/structpb"
)

// values returns the counters and gauges that are not zero, and how many
// observations histograms have: by name and, after slashes, values of labels.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); v != 0 {
				all[name] = v
			}
		}
	}
	return all
}

// TestIstiodsMetrics has what each kind of answer counts under istiod's names.
func TestIstiodsMetrics(t *testing.T) {
	authorize := func(err error) func(*server.Config) {
		return func(c *server.Config) {
			c.Authorize = func(context.Context, authz.Caller, string) (authz.Grant, error) { return authz.Grant{}, err }
		}
	}
	for _, tt := range []struct {
		name   string
		breaks func(*server.Config)
		change func(*authpb.IstioCertificateRequest)
		want   string // beside csr_count
	}{
		{"issued", nil, nil, "success_cert_issuance_count"},
		{"unauthenticated", authorize(authz.Deny(authz.CallerGone, "x")), nil, "authentication_failure_count"},
		{"denied", authorize(authz.Deny(authz.NotOnNode, "x")), nil, "authentication_failure_count"},
		{"[CSR-7] an identity that does not parse", nil, func(r *authpb.IstioCertificateRequest) { r.Metadata = impersonate(structpb.NewStringValue("x")) }, ""},
		{"no CSR", nil, func(r *authpb.IstioCertificateRequest) { r.Csr = "" }, "csr_sign_err_count/CSR_ERROR"},
		{"a negative life", nil, func(r *authpb.IstioCertificateRequest) { r.ValidityDuration = -1 }, "csr_sign_err_count/TTL_ERROR"},
		{"cannot tell", authorize(&authz.Undecided{Reason: authz.Stale, Err: errors.New("x")}), nil, "csr_sign_err_count/CA_NOT_READY"},
		{"nothing to sign with", func(c *server.Config) { c.Authority = func() *ca.Authority { return nil } }, nil, "csr_sign_err_count/CA_NOT_READY"},
		{"a fault of ours", authorize(errors.New("x")), nil, "csr_sign_err_count/CERT_GEN_ERROR"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, req := newRig(t), forCart(t)
			if tt.breaks != nil {
				tt.breaks(&r.cfg)
			}
			if tt.change != nil {
				tt.change(req)
			}
			r.ask(t, req) //nolint:errcheck // what is counted is the answer
			want := map[string]float64{"citadel_server_csr_count": 1}
			if tt.want != "" {
				want["citadel_server_"+tt.want] = 1
			}
			got := make(map[string]float64)
			for name, v := range values(t, r.metrics) {
				if strings.HasPrefix(name, "citadel_") {
					got[name] = v
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStepsAreTimed asks where each step takes another time, and then where the
// third one fails.
func TestStepsAreTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Now = time.Now
		authority := newAuthority(t, time.Now())
		r.cfg.Authority = func() *ca.Authority { time.Sleep(4 * time.Second); return authority }
		authenticate, authorize := r.cfg.Authenticate, r.cfg.Authorize
		r.cfg.Authenticate = func(ctx context.Context, a, c []string) (authz.Caller, error) {
			time.Sleep(time.Second)
			return authenticate(ctx, a, c)
		}
		r.cfg.Authorize = func(ctx context.Context, c authz.Caller, want string) (authz.Grant, error) {
			time.Sleep(2 * time.Second)
			return authorize(ctx, c, want)
		}
		s, err := server.New(r.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateCertificate(t.Context(), forCart(t)); err != nil {
			t.Error(err)
		}
		if _, err := s.CreateCertificate(t.Context(), &authpb.IstioCertificateRequest{}); err == nil {
			t.Error("a request without CSR was answered")
		}
		want := map[string][2]float64{ // how many, and seconds in all
			"authenticate": {2, 2}, "queue": {2, 0}, "parse": {2, 0}, "authorize": {1, 2}, "issue": {1, 4}, "record": {2, 0},
		}
		if diff := cmp.Diff(want, histogram(t, r.metrics, "bailiwick_step_seconds")); diff != "" {
			t.Errorf("steps (-want +got):\n%s", diff)
		}
		requests := histogram(t, r.metrics, "bailiwick_request_seconds")
		if requests["OK"] != [2]float64{1, 7} || requests["InvalidArgument"] != [2]float64{1, 1} {
			t.Errorf("requests: %v", requests)
		}
	})
}

func histogram(t *testing.T, g prometheus.Gatherer, name string) map[string][2]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][2]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				var label string
				for _, l := range m.GetLabel() {
					label = l.GetValue()
				}
				all[label] = [2]float64{float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()}
			}
		}
	}
	return all
}

// TestLeafLivesAreCounted asks for the longest life and for an hour.
func TestLeafLivesAreCounted(t *testing.T) {
	r := newRig(t)
	s, err := server.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, seconds := range []int64{0, 3600} {
		req := forCart(t)
		req.ValidityDuration = seconds
		if _, err := s.CreateCertificate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	// Up to a twentieth is drawn back.
	if h := histogram(t, r.metrics, "bailiwick_leaf_life_seconds")[""]; h[0] != 2 || h[1] > 25*3600 || h[1] < 25*3600*.95 {
		t.Errorf("%v lives, %v s in all; want 2, and 25 h less a twentieth", h[0], h[1])
	}
}

// TestMishapsAreCounted has what should be 0 for ever.
func TestMishapsAreCounted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		breaks func(*server.Config)
	}{
		{"bailiwick_audit_failures_total", func(c *server.Config) { c.Audit = full{c.Audit} }},
		{"bailiwick_panics_total", func(c *server.Config) { c.Authorize = nil }},
	} {
		r := newRig(t)
		tt.breaks(&r.cfg)
		r.ask(t, forCart(t)) //nolint:errcheck // what is counted is the answer
		for _, name := range []string{"bailiwick_audit_failures_total", "bailiwick_panics_total"} {
			want := map[bool]float64{true: 1}[name == tt.name]
			if got := values(t, r.metrics)[name]; got != want {
				t.Errorf("%s: %s is %v, want %v", tt.name, name, got, want)
			}
		}
	}
}

// TestLoad has one request running and two waiting, on one connection.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := make(chan struct{})
		st := newStage(t, func(c *server.Config) {
			c.Limits.InFlight = 1
			authorize := c.Authorize
			c.Authorize = func(ctx context.Context, caller authz.Caller, want string) (authz.Grant, error) {
				<-running
				return authorize(ctx, caller, want)
			}
		})
		conn := st.dial(t)
		for range 3 {
			go ask(t, conn) //nolint:errcheck // it is there to take up room
		}
		synctest.Wait()
		if got, want := st.front.Load(), (server.Load{Running: 1, Waiting: 2, Connections: 1}); got != want {
			t.Errorf("load %+v, want %+v", got, want)
		}
		close(running)
		synctest.Wait()
		conn.Close() //nolint:errcheck // it is over
		synctest.Wait()
		if got := st.front.Load(); got != (server.Load{}) {
			t.Errorf("afterwards the load is %+v", got)
		}
		st.end(t)
	})
}

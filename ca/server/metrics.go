package server

import (
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// metrics count requests. The citadel_server names are istiod's, kept so that
// dashboards go on working.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	shortened, refusedConnections prometheus.Counter

	csrs, authenticationFailures, issued prometheus.Counter
	signErrors                           *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bailiwick_requests_total",
			Help: "Certificate requests, by gRPC code and the reason why there was no certificate (empty if there was).",
		}, []string{"code", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bailiwick_request_seconds",
			Help:    "How long requests took, by gRPC code.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .05, .1, .5, 1, 2, 5, 10},
		}, []string{"code"}),
		shortened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bailiwick_shortened_total",
			Help: "Certificates that live less long than they would, because a certificate on their path ends before.",
		}),
		refusedConnections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bailiwick_connections_refused_total",
			Help: "Connections that were closed at once, because there were too many in all or from one address.",
		}),
		csrs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "citadel_server_csr_count", Help: "Certificate requests received.",
		}),
		authenticationFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "citadel_server_authentication_failure_count", Help: "Requests refused because of the caller or the identity it asked for.",
		}),
		issued: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "citadel_server_success_cert_issuance_count", Help: "Certificates issued.",
		}),
		signErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "citadel_server_csr_sign_err_count", Help: "Requests that were authorized, or malformed, and got no certificate.",
		}, []string{"error"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.shortened, m.refusedConnections, m.csrs, m.authenticationFailures, m.issued, m.signErrors} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(out outcome, took time.Duration) {
	m.requests.WithLabelValues(out.code.String(), out.reason).Inc()
	m.seconds.WithLabelValues(out.code.String()).Observe(took.Seconds())
	m.csrs.Inc()
	switch out.code {
	case codes.OK:
		m.issued.Inc()
	case codes.Unauthenticated:
		m.authenticationFailures.Inc()
	case codes.PermissionDenied:
		// An identity that does not parse is no failure to authenticate.
		if out.reason != string(authz.BadIdentity) {
			m.authenticationFailures.Inc()
		}
	case codes.InvalidArgument:
		m.signErrors.WithLabelValues("CSR_ERROR").Inc()
	case codes.Unavailable:
		m.signErrors.WithLabelValues("CA_NOT_READY").Inc()
	case codes.Internal:
		m.signErrors.WithLabelValues("CERT_GEN_ERROR").Inc()
	}
}

package server

import (
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// A Metric declares a metric: collectors are made of it, and docs/metrics.md is
// held to it.
type Metric struct {
	Name, Type, Help string
	Labels           []Label
	Buckets          []float64 // of a histogram
}

// The types of metrics, as Prometheus writes them.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// A Label has a closed list of values. Where it has none here, the values are
// the reason words, which are declared where they are given.
type Label struct {
	Name   string
	Values []string
}

// Desc returns what Prometheus calls a metric without its values.
func (m Metric) Desc() *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, m.labelNames(), nil)
}

func (m Metric) labelNames() []string {
	var names []string
	for _, l := range m.Labels {
		names = append(names, l.Name)
	}
	return names
}

// The steps of a request that are timed, in their order.
const (
	stepAuthenticate = "authenticate"
	stepQueue        = "queue"
	stepParse        = "parse"
	stepAuthorize    = "authorize"
	stepIssue        = "issue"
	stepRecord       = "record"
)

const (
	requestsTotal           = "bailiwick_requests_total"
	requestSeconds          = "bailiwick_request_seconds"
	stepSeconds             = "bailiwick_step_seconds"
	leafLifeSeconds         = "bailiwick_leaf_life_seconds"
	shortenedTotal          = "bailiwick_shortened_total"
	auditFailuresTotal      = "bailiwick_audit_failures_total"
	panicsTotal             = "bailiwick_panics_total"
	connectionsRefusedTotal = "bailiwick_connections_refused_total"
	sentElsewhereTotal      = "bailiwick_sent_elsewhere_total"

	// Istiod's, kept so that dashboards go on working.
	csrCount                   = "citadel_server_csr_count"
	authenticationFailureCount = "citadel_server_authentication_failure_count"
	csrSignErrCount            = "citadel_server_csr_sign_err_count"
	successCertIssuanceCount   = "citadel_server_success_cert_issuance_count"
)

// Metrics declares what is counted on the way of a request.
func Metrics() []Metric {
	const minute, hour = 60, 3600
	code := Label{"code", []string{"OK", "Canceled", "Internal", "InvalidArgument", "PermissionDenied", "ResourceExhausted", "Unauthenticated", "Unavailable"}}
	steps := Label{"step", []string{stepAuthenticate, stepQueue, stepParse, stepAuthorize, stepIssue, stepRecord}}
	return []Metric{
		{Name: requestsTotal, Type: Counter, Labels: []Label{code, {Name: "reason"}},
			Help: "Certificate requests, by gRPC code and the reason why there was no certificate (empty if there was)."},
		{Name: requestSeconds, Type: Histogram, Labels: []Label{code},
			Help:    "How long requests took, by gRPC code.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .05, .1, .5, 1, 2, 5, 10}},
		{Name: stepSeconds, Type: Histogram, Labels: []Label{steps},
			Help:    "How long the steps of requests took, the one that failed included.",
			Buckets: []float64{.00001, .00003, .0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10}},
		{Name: leafLifeSeconds, Type: Histogram,
			Help:    "For how long issued certificates are valid, from when they were issued.",
			Buckets: []float64{10 * minute, 30 * minute, hour, 3 * hour, 6 * hour, 12 * hour, 18 * hour, 22 * hour, 24 * hour, 72 * hour, 168 * hour, 720 * hour}},
		{Name: shortenedTotal, Type: Counter,
			Help: "Certificates that live less long than they would, because a certificate on their path ends before."},
		{Name: auditFailuresTotal, Type: Counter,
			Help: "Times that the audit record could not be written. A certificate that cannot be recorded is not issued."},
		{Name: panicsTotal, Type: Counter,
			Help: "Requests that ended in a panic, which was recovered from."},
		{Name: connectionsRefusedTotal, Type: Counter,
			Help: "Connections that were closed at once, because there were too many in all or from one address."},
		{Name: sentElsewhereTotal, Type: Counter,
			Help: "Times that all clients were sent elsewhere with a GOAWAY, because what is known here is too old."},

		{Name: csrCount, Type: Counter, Help: "Certificate requests received."},
		{Name: authenticationFailureCount, Type: Counter, Help: "Requests refused because of the caller or the identity it asked for."},
		{Name: csrSignErrCount, Type: Counter, Help: "Requests that were malformed, or could not be decided or signed.",
			Labels: []Label{{"error", []string{"CA_NOT_READY", "CERT_GEN_ERROR", "CSR_ERROR", "TTL_ERROR"}}}},
		{Name: successCertIssuanceCount, Type: Counter, Help: "Certificates issued."},
	}
}

// metrics count requests.
type metrics struct {
	requests   *prometheus.CounterVec
	signErrors *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	steps      map[string]prometheus.Observer

	leafLife                                                            prometheus.Observer
	shortened, auditFailures, panics, refusedConnections, sentElsewhere prometheus.Counter
	csrs, authenticationFailures, issued                                prometheus.Counter
}

// newMetrics makes the collectors that Metrics declares.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counters := make(map[string]*prometheus.CounterVec)
	histograms := make(map[string]*prometheus.HistogramVec)
	for _, d := range Metrics() {
		var c prometheus.Collector
		if d.Type == Histogram {
			histograms[d.Name] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.labelNames())
			c = histograms[d.Name]
		} else {
			counters[d.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labelNames())
			c = counters[d.Name]
		}
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	counter := func(name string) prometheus.Counter { return counters[name].WithLabelValues() }
	m := &metrics{
		requests: counters[requestsTotal], seconds: histograms[requestSeconds], signErrors: counters[csrSignErrCount],
		leafLife: histograms[leafLifeSeconds].WithLabelValues(), steps: make(map[string]prometheus.Observer),
		shortened: counter(shortenedTotal), auditFailures: counter(auditFailuresTotal), panics: counter(panicsTotal),
		refusedConnections: counter(connectionsRefusedTotal), sentElsewhere: counter(sentElsewhereTotal),
		csrs: counter(csrCount), authenticationFailures: counter(authenticationFailureCount), issued: counter(successCertIssuanceCount),
	}
	m.zero(histograms[stepSeconds])
	return m, nil
}

// zero makes every series whose labels are known beforehand, so that the first
// of a kind is an increase and not a new series.
func (m *metrics) zero(steps *prometheus.HistogramVec) {
	for _, d := range Metrics() {
		if len(d.Labels) != 1 {
			continue
		}
		for _, value := range d.Labels[0].Values {
			switch d.Name {
			case requestSeconds:
				m.seconds.WithLabelValues(value)
			case csrSignErrCount:
				m.signErrors.WithLabelValues(value)
			case stepSeconds:
				m.steps[value] = steps.WithLabelValues(value)
			}
		}
	}
}

// A stopwatch times the steps of a request.
type stopwatch struct {
	steps map[string]prometheus.Observer
	now   func() time.Time
	since time.Time
}

func (s *Server) stopwatch() *stopwatch {
	return &stopwatch{steps: s.metrics.steps, now: s.cfg.Now, since: s.cfg.Now()}
}

// lap notes that a step has ended now, and the next begins. It returns the time.
func (w *stopwatch) lap(step string) time.Time {
	now := w.now()
	w.steps[step].Observe(now.Sub(w.since).Seconds())
	w.since = now
	return now
}

// observe counts a request that came at start, ended at end, and was answered
// with out.
func (m *metrics) observe(r *record, out outcome, start, end time.Time) {
	m.requests.WithLabelValues(out.code.String(), out.reason).Inc()
	m.seconds.WithLabelValues(out.code.String()).Observe(end.Sub(start).Seconds())
	m.csrs.Inc()
	switch out.code {
	case codes.OK:
		m.issued.Inc()
		m.leafLife.Observe(r.issued.Leaf.NotAfter.Sub(end).Seconds())
	case codes.Unauthenticated:
		m.authenticationFailures.Inc()
	case codes.PermissionDenied:
		// An identity that does not parse is no failure to authenticate.
		if out.reason != string(authz.BadIdentity) {
			m.authenticationFailures.Inc()
		}
	default:
		if word := signError(out); word != "" {
			m.signErrors.WithLabelValues(word).Inc()
		}
	}
}

// signError returns istiod's word for a request that was neither answered with a
// certificate nor refused because of its caller, or "" if it has none.
func signError(out outcome) string {
	switch {
	case out.reason == string(ca.BadLifetime):
		return "TTL_ERROR"
	case out.code == codes.InvalidArgument:
		return "CSR_ERROR"
	case out.code == codes.Unavailable:
		return "CA_NOT_READY"
	case out.code == codes.Internal:
		return "CERT_GEN_ERROR"
	default:
		return ""
	}
}

// A Load is what a [Front] has to do at a moment.
type Load struct {
	Running, Waiting int // requests
	Connections      int
}

// Load returns what f has to do now.
func (f *Front) Load() Load {
	running, waiting := f.server.queue.load()
	return Load{Running: running, Waiting: waiting, Connections: f.shared.open()}
}

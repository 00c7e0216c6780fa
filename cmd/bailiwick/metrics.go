package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// declared returns the declaration of every metric of ours. There are two slices and not one,
// because ca/server counts while it works and must not import cmd; whatever is
// only looked at when somebody asks is declared here, so that k8s/inventory and
// k8s/token need not know Prometheus.
func declared() []server.Metric { return slices.Concat(server.Metrics(), observed()) }

// observed declares what is read when somebody asks for the metrics.
func observed() []server.Metric {
	one := func(name string, values ...string) []server.Label {
		return []server.Label{{Name: name, Values: values}}
	}
	resource := one("resource", "nodes", "pods", "serviceaccounts")
	return []server.Metric{
		{Name: "bailiwick_ready", Type: server.Gauge, Help: "Whether clients should be sent here: 1 if they should."},
		{Name: "bailiwick_requests", Type: server.Gauge, Labels: one("state", "running", "waiting"), Help: "Requests that are worked on, and that wait their turn."},
		{Name: "bailiwick_connections", Type: server.Gauge, Help: "Connections that are open."},

		{Name: "bailiwick_path_expiry_timestamp_seconds", Type: server.Gauge, Help: "When the first certificate on the signing path expires."},
		{Name: "bailiwick_serving_certificate_expiry_timestamp_seconds", Type: server.Gauge, Help: "When the server's own certificate expires."},
		{Name: "bailiwick_trust_bundle_roots", Type: server.Gauge, Labels: one("state", "early", "expired", "valid"), Help: "Roots in the trust bundle: not valid yet, expired, and valid."},
		{Name: "citadel_server_root_cert_expiry_timestamp", Type: server.Gauge, Help: "When the root of the signing path expires."},
		{Name: "citadel_server_root_cert_expiry_seconds", Type: server.Gauge, Help: "Seconds until the root of the signing path expires."},
		{Name: "citadel_server_cert_chain_expiry_timestamp", Type: server.Gauge, Help: "When the issuer expires. There is none if it is the root."},
		{Name: "citadel_server_cert_chain_expiry_seconds", Type: server.Gauge, Help: "Seconds until the issuer expires. There is none if it is the root."},

		{Name: "bailiwick_inventory_synced", Type: server.Gauge, Labels: resource, Help: "Whether each resource was listed completely once: 1 if it was."},
		{Name: "bailiwick_inventory_objects", Type: server.Gauge, Labels: resource, Help: "Objects known of each resource."},
		{Name: "bailiwick_inventory_proven_timestamp_seconds", Type: server.Gauge, Labels: resource, Help: "Up to when the view of each resource is proven to be complete; 0 if nothing is proven."},
		{Name: "bailiwick_inventory_failing", Type: server.Gauge, Labels: resource, Help: "Whether listing, watching or probing a resource fails: 1 if it does."},
		{Name: "bailiwick_inventory_confirmed_total", Type: server.Counter, Labels: one("by", "event", "memory", "proof", "read", "undecided"), Help: "Requests whose facts might have been late, by how they were confirmed."},
		{Name: "bailiwick_inventory_confirming", Type: server.Gauge, Help: "Requests whose facts are being confirmed."},
		{Name: "bailiwick_inventory_remembered", Type: server.Gauge, Help: "Answers to such requests that are kept for some seconds."},
		{Name: "bailiwick_inventory_live_requests_total", Type: server.Counter, Labels: one("result", "failed", "ok", "over-budget"), Help: "Requests to the API server to confirm facts, by what came of them."},

		{Name: "bailiwick_token_keys", Type: server.Gauge, Help: "Keys in the cluster's key set."},
		{Name: "bailiwick_token_keys_read_timestamp_seconds", Type: server.Gauge, Help: "When the key set was last read; 0 if never."},
		{Name: "bailiwick_token_key_readings_total", Type: server.Counter, Labels: one("result", "failed", "ok"), Help: "Attempts to read the key set."},
		{Name: "bailiwick_token_remembered", Type: server.Gauge, Help: "Verified tokens that are remembered."},
		{Name: "bailiwick_token_checks_total", Type: server.Counter, Labels: one("seen", "no", "yes"), Help: "Tokens that were, or were not, verified before."},
		{Name: "bailiwick_token_reviews_total", Type: server.Counter, Labels: one("result", "accepted", "failed", "over-budget", "refused"), Help: "TokenReviews by what came of them."},
		{Name: "bailiwick_token_verdicts", Type: server.Gauge, Help: "TokenReviews whose outcome is remembered."},
		{Name: "bailiwick_token_cluster_ids_total", Type: server.Counter, Labels: one("cluster", "absent", "known", "other"), Help: "Requests by the cluster ID that they name."},

		{Name: "bailiwick_kubernetes_qps", Type: server.Gauge, Help: "The configured bound on calls to the API server per second."},
		{Name: "bailiwick_kubernetes_burst", Type: server.Gauge, Help: "The configured bound on calls to the API server at once."},
	}
}

// An observer reads the metrics that observed declares, of what is in use at the
// moment [OPS-2].
type observer struct {
	config    *Config
	cluster   *cluster
	service   *service
	authority func() *ca.Authority
	now       func() time.Time
}

// register adds the metrics that are not counted on the way of a request.
func (o *observer) register(reg prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), o,
	} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Describe implements [prometheus.Collector].
func (o *observer) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range observed() {
		ch <- d.Desc()
	}
}

// An emitter takes a value of a metric, and of its label if it has one.
type emitter func(name string, value float64, label ...string)

// Collect implements [prometheus.Collector].
func (o *observer) Collect(ch chan<- prometheus.Metric) {
	byName := make(map[string]server.Metric)
	for _, d := range observed() {
		byName[d.Name] = d
	}
	emit := func(name string, value float64, label ...string) {
		d := byName[name]
		kind := prometheus.GaugeValue
		if d.Type == server.Counter {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(d.Desc(), kind, value, label...)
	}
	emit("bailiwick_kubernetes_qps", float64(o.config.KubernetesQPS))
	emit("bailiwick_kubernetes_burst", float64(o.config.KubernetesBurst))
	o.observeService(emit)
	o.observeMaterial(emit)
	o.observeInventory(emit)
	o.observeTokens(emit)
}

func (o *observer) observeService(emit emitter) {
	load := o.service.front.Load()
	emit("bailiwick_ready", truth(o.service.front.Ready() == nil))
	emit("bailiwick_requests", float64(load.Running), "running")
	emit("bailiwick_requests", float64(load.Waiting), "waiting")
	emit("bailiwick_connections", float64(load.Connections))
	emit("bailiwick_serving_certificate_expiry_timestamp_seconds", unix(o.service.own.Leaf().NotAfter))
}

func (o *observer) observeMaterial(emit emitter) {
	a, now := o.authority(), o.now()
	emit("bailiwick_path_expiry_timestamp_seconds", unix(a.NotAfter()))
	emit("citadel_server_root_cert_expiry_timestamp", unix(a.Root().NotAfter))
	emit("citadel_server_root_cert_expiry_seconds", a.Root().NotAfter.Sub(now).Seconds())
	if !a.Issuer().Equal(a.Root()) { // as istiod has it
		emit("citadel_server_cert_chain_expiry_timestamp", unix(a.Issuer().NotAfter))
		emit("citadel_server_cert_chain_expiry_seconds", a.Issuer().NotAfter.Sub(now).Seconds())
	}
	var early, expired, valid float64
	for _, root := range a.Roots() {
		switch {
		case now.Before(root.NotBefore):
			early++
		case now.After(root.NotAfter):
			expired++
		default:
			valid++
		}
	}
	emit("bailiwick_trust_bundle_roots", early, "early")
	emit("bailiwick_trust_bundle_roots", expired, "expired")
	emit("bailiwick_trust_bundle_roots", valid, "valid")
}

func (o *observer) observeInventory(emit emitter) {
	inv := o.cluster.inventory
	for _, s := range inv.Status() {
		emit("bailiwick_inventory_synced", truth(s.Synced), s.Resource)
		emit("bailiwick_inventory_objects", float64(s.Objects), s.Resource)
		emit("bailiwick_inventory_proven_timestamp_seconds", unix(s.Proven), s.Resource)
		emit("bailiwick_inventory_failing", truth(s.Err != nil), s.Resource)
	}
	for by, n := range inv.Confirmed() {
		emit("bailiwick_inventory_confirmed_total", float64(n), by)
	}
	for result, n := range inv.LiveRequests() {
		emit("bailiwick_inventory_live_requests_total", float64(n), result)
	}
	emit("bailiwick_inventory_confirming", float64(inv.Confirming()))
	emit("bailiwick_inventory_remembered", float64(inv.Remembered()))
}

func (o *observer) observeTokens(emit emitter) {
	s := o.cluster.tokens.Status()
	emit("bailiwick_token_keys", float64(s.Keys))
	emit("bailiwick_token_keys_read_timestamp_seconds", unix(s.KeysReadAt))
	emit("bailiwick_token_key_readings_total", float64(s.KeyReadings), "ok")
	emit("bailiwick_token_key_readings_total", float64(s.FailedKeyReadings), "failed")
	emit("bailiwick_token_remembered", float64(s.Remembered))
	emit("bailiwick_token_checks_total", float64(s.Hits), "yes")
	emit("bailiwick_token_checks_total", float64(s.Misses), "no")
	emit("bailiwick_token_reviews_total", float64(s.ReviewsAccepted), "accepted")
	emit("bailiwick_token_reviews_total", float64(s.ReviewsRefused), "refused")
	emit("bailiwick_token_reviews_total", float64(s.ReviewsFailed), "failed")
	emit("bailiwick_token_reviews_total", float64(s.ReviewsOverBudget), "over-budget")
	emit("bailiwick_token_verdicts", float64(s.Verdicts))
	emit("bailiwick_token_cluster_ids_total", float64(s.ClusterAbsent), "absent")
	emit("bailiwick_token_cluster_ids_total", float64(s.ClusterKnown), "known")
	emit("bailiwick_token_cluster_ids_total", float64(s.ClusterOther), "other")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

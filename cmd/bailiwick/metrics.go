package main

import (
	"fmt"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/k8s/inventory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// register adds the metrics that are not about requests.
func register(reg *prometheus.Registry, c *Config, cl *cluster, authority *ca.Authority, s *service) error {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	fixed := func(v float64) func() float64 { return func() float64 { return v } }
	unix := func(t time.Time) float64 { return float64(t.Unix()) }
	for _, collector := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		cl.tokens, inventoryMetrics{cl.inventory},
		gauge("bailiwick_kubernetes_qps", "The configured bound on calls to the API server per second.", fixed(float64(c.KubernetesQPS))),
		gauge("bailiwick_kubernetes_burst", "The configured bound on calls to the API server at once.", fixed(float64(c.KubernetesBurst))),
		gauge("bailiwick_path_expiry_timestamp_seconds", "When the first certificate on the signing path expires.", fixed(unix(authority.NotAfter()))),
		gauge("bailiwick_serving_certificate_expiry_timestamp_seconds", "When the server's own certificate expires.", func() float64 { return unix(s.own.Leaf().NotAfter) }),
		gauge("citadel_server_root_cert_expiry_timestamp", "When the root of the signing path expires.", fixed(unix(authority.Root().NotAfter))),
		gauge("citadel_server_cert_chain_expiry_timestamp", "When the issuer expires.", fixed(unix(authority.Issuer().NotAfter))),
	} {
		if err := reg.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// inventoryMetrics say how well the cluster is known.
type inventoryMetrics struct{ inventory *inventory.Inventory }

// Describe implements [prometheus.Collector].
func (m inventoryMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements [prometheus.Collector].
func (m inventoryMetrics) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"resource"}, nil)
	}
	objects := desc("bailiwick_inventory_objects", "Objects known of each resource.")
	proven := desc("bailiwick_inventory_proven_timestamp_seconds", "Up to when the view of each resource is proven to be complete; 0 if nothing is proven.")
	failing := desc("bailiwick_inventory_failing", "Whether listing, watching or probing a resource fails: 1 if it does.")
	confirmed := prometheus.NewDesc("bailiwick_inventory_confirmed_total", "Requests whose facts might have been late, by how they were confirmed.", []string{"by"}, nil)
	for by, n := range m.inventory.Confirmed() {
		ch <- prometheus.MustNewConstMetric(confirmed, prometheus.CounterValue, float64(n), by)
	}
	for _, s := range m.inventory.Status() {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.Resource)
		}
		gauge(objects, float64(s.Objects))
		var at, bad float64
		if !s.Proven.IsZero() {
			at = float64(s.Proven.UnixMilli()) / 1e3
		}
		if s.Err != nil {
			bad = 1
		}
		gauge(proven, at)
		gauge(failing, bad)
	}
}

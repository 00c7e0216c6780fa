package token

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Status is what a [Verifier] has and has done.
type Status struct {
	Keys       int           // keys in the key set
	KeysReadAt time.Time     // when they were last asked for; zero if never answered
	KeysAge    time.Duration // since then

	KeyReadings, FailedKeyReadings uint64

	Remembered   int    // verified tokens
	Hits, Misses uint64 // requests whose token was, or was not, among them

	// Reviews by what came of them.
	ReviewsAccepted, ReviewsRefused, ReviewsFailed, ReviewsOverBudget uint64

	Verdicts int // reviews whose verdict is remembered

	// Requests by their clusterid: none, the configured one, or another.
	ClusterAbsent, ClusterKnown, ClusterOther uint64
}

// Status returns what the verifier has and has done. It makes no call.
func (v *Verifier) Status() Status {
	s := Status{
		KeyReadings:       v.keys.ok.Load(),
		FailedKeyReadings: v.keys.fail.Load(),
		Remembered:        v.seen.len(),
		Hits:              v.hits.Load(),
		Misses:            v.misses.Load(),
		ClusterAbsent:     v.clusters.absent.Load(),
		ClusterKnown:      v.clusters.known.Load(),
		ClusterOther:      v.clusters.other.Load(),
	}
	if set := v.keys.set.Load(); set != nil {
		s.Keys, s.KeysReadAt, s.KeysAge = len(set.keys), set.readAt, set.age(v.now())
	}
	if r := v.reviews; r != nil {
		s.ReviewsAccepted, s.ReviewsRefused = r.accepted.Load(), r.refused.Load()
		s.ReviewsFailed, s.ReviewsOverBudget = r.failed.Load(), r.overBudget.Load()
		s.Verdicts = r.verdicts.len()
	}
	return s
}

// Ready returns why no token can be verified yet, or nil. It makes no call.
// Keys that have become too old are no reason: a client that is told to try
// again finds another replica, or this one when the API server is back.
func (v *Verifier) Ready() error { return v.keys.ready(v.reviews != nil) }

// Describe implements [prometheus.Collector].
func (v *Verifier) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(v, ch) }

// Collect implements [prometheus.Collector].
func (v *Verifier) Collect(ch chan<- prometheus.Metric) {
	s := v.Status()
	gauge := func(name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
	}
	counter := func(name, help, label string, values map[string]uint64) {
		desc := prometheus.NewDesc(name, help, []string{label}, nil)
		for of, value := range values {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), of)
		}
	}
	gauge("bailiwick_token_keys", "Keys in the cluster's key set.", float64(s.Keys))
	gauge("bailiwick_token_keys_read_timestamp_seconds", "When the key set was last read; 0 if never.", unix(s.KeysReadAt))
	gauge("bailiwick_token_remembered", "Verified tokens that are remembered.", float64(s.Remembered))
	counter("bailiwick_token_key_readings_total", "Attempts to read the key set.", "result",
		map[string]uint64{"ok": s.KeyReadings, "failed": s.FailedKeyReadings})
	counter("bailiwick_token_checks_total", "Tokens that were, or were not, verified before.", "seen",
		map[string]uint64{"yes": s.Hits, "no": s.Misses})
	counter("bailiwick_token_reviews_total", "TokenReviews by what came of them.", "result",
		map[string]uint64{"accepted": s.ReviewsAccepted, "refused": s.ReviewsRefused, "failed": s.ReviewsFailed, "over-budget": s.ReviewsOverBudget})
	counter("bailiwick_token_cluster_ids_total", "Requests by the cluster ID that they name.", "cluster",
		map[string]uint64{"absent": s.ClusterAbsent, "known": s.ClusterKnown, "other": s.ClusterOther})
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

package bailiwick

import (
	"regexp"
	"strconv"
	"testing"
)

// A Sample is a value of a metric, with the values of its labels in the order
// of the page.
type Sample struct {
	Labels []string
	Value  float64
}

// Samples returns what the server's metrics say. The last group of the pattern
// is the value, the ones before it are labels.
func (s *Server) Samples(t testing.TB, pattern *regexp.Regexp) []Sample {
	t.Helper()
	page, err := s.Page(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var all []Sample
	for _, m := range pattern.FindAllStringSubmatch(page, -1) {
		last := len(m) - 1
		v, err := strconv.ParseFloat(m[last], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Sample{m[1:last], v})
	}
	return all
}

// An Answer is what the metrics call the end of a request.
type Answer struct {
	Code   string // of gRPC
	Reason string // empty if a certificate was issued
}

// Answers returns how many requests had each answer up to now.
func (s *Server) Answers(t testing.TB) map[Answer]int {
	t.Helper()
	pattern := regexp.MustCompile(`(?m)^bailiwick_requests_total\{code="(\w*)",reason="([a-z-]*)"\} (\d+)$`)
	counts := make(map[Answer]int)
	for _, sample := range s.Samples(t, pattern) {
		counts[Answer{sample.Labels[0], sample.Labels[1]}] += int(sample.Value)
	}
	return counts
}

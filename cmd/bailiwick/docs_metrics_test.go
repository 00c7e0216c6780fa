package main

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreDocumented compares the tables of docs/metrics.md with what is
// declared.
func TestMetricsAreDocumented(t *testing.T) {
	page := readFile(t, "../../docs/metrics.md")
	var onPage, want []string
	for _, row := range tableRows(page, "metric") {
		onPage = append(onPage, strings.Join(row, " | "))
	}
	for _, m := range declared() {
		want = append(want, strings.Join([]string{"`" + m.Name + "`", m.Type, labelCell(m.Labels), m.Help}, " | "))
	}
	slices.Sort(onPage)
	slices.Sort(want)
	if diff := cmp.Diff(want, onPage); diff != "" {
		t.Errorf("docs/metrics.md (-declared +page):\n%s", diff)
	}
}

// labelCell is how the page writes labels and their values.
func labelCell(labels []server.Label) string {
	var all []string
	for _, l := range labels {
		text := "`" + l.Name + "`: "
		if l.Values == nil {
			text += "a [reason](troubleshooting.md)"
		} else {
			text += strings.Join(l.Values, ", ")
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// TestAlertsAreAboutMetrics looks for names on the page, outside of its tables of
// metrics, that nothing declares.
func TestAlertsAreAboutMetrics(t *testing.T) {
	_, alerts, ok := strings.Cut(readFile(t, "../../docs/metrics.md"), "\n## What to alert on\n")
	if !ok {
		t.Fatal("docs/metrics.md does not say what to alert on")
	}
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	names := make(map[string]bool)
	for _, m := range declared() {
		names[m.Name] = true
		if m.Type == server.Histogram {
			names[m.Name+"_bucket"] = true
		}
	}
	found := regexp.MustCompile(`(bailiwick|citadel_server)_[a-z_]+`).FindAllString(alerts, -1)
	if len(found) < 10 {
		t.Errorf("the alerts are about %q only", found)
	}
	for _, name := range found {
		if !names[name] {
			t.Errorf("an alert is about %s, which nothing declares", name)
		}
	}
	for _, selector := range regexp.MustCompile(`([a-z_]+)\{([a-z]+)="([^"]*)"\}`).FindAllStringSubmatch(alerts, -1) {
		values := labelValues(t, selector[1], selector[2])
		if !slices.Contains(values, selector[3]) {
			t.Errorf("an alert selects %s, and there is no such label or value", selector[0])
		}
	}
}

// labelValues returns what the label of a metric can be.
func labelValues(t *testing.T, metric, label string) (values []string) {
	t.Helper()
	for _, m := range declared() {
		for _, l := range m.Labels {
			if m.Name == metric && l.Name == label {
				values = append(values, l.Values...)
			}
		}
	}
	if metric == "bailiwick_requests_total" && label == "reason" {
		values = reasons(t)
	}
	return values
}

// TestScrape compares what a running server says of itself with what is
// declared: names, types, help, labels, and their values.
func TestScrape(t *testing.T) {
	got := make(map[string]server.Metric)
	for _, m := range scrape(t) {
		got[m.Name] = m
	}
	for _, want := range declared() {
		m, ok := got[want.Name]
		delete(got, want.Name)
		want.Buckets = nil
		switch {
		case !ok:
			t.Errorf("%s is declared, and not there", want.Name)
		case want.Name == "bailiwick_requests_total": // its combinations are too many to be there before they occur
			want.Labels = []server.Label{{Name: "code", Values: []string{"Unavailable"}}, {Name: "reason", Values: []string{"not-synced"}}}
			fallthrough
		default:
			for _, l := range slices.Concat(want.Labels, m.Labels) {
				slices.Sort(l.Values)
			}
			if diff := cmp.Diff(want, m); diff != "" {
				t.Errorf("%s (-declared +scraped):\n%s", want.Name, diff)
			}
		}
	}
	for name := range got {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			t.Errorf("%s is there, and not declared", name)
		}
	}
}

// scrape asks a server as serve makes it, which has a cluster that it cannot
// list, for a certificate and then for its metrics.
func scrape(t *testing.T) []server.Metric {
	t.Helper()
	config, err := parseConfig([]byte(demoConfig))
	if err != nil {
		t.Fatal(err)
	}
	signer := mustSigner(t)
	cl := clusterOf(t, newFakeAPI(t, signer))
	authority, err := selfMade(time.Now(), config.profile())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	s, err := newService(parts{
		config: config, policy: config.policy(cl.inventory, authz.ServiceAccount{}, time.Now), authenticate: cl.tokens.Verify,
		authority: authority, audit: slog.DiscardHandler, log: discard(), metrics: registry, listener: listener,
		ready: func() error { return nil }, now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	watching := observer{config: config, cluster: cl, service: s, authority: func() *ca.Authority { return authority }, now: time.Now}
	if err := watching.register(registry); err != nil {
		t.Fatal(err)
	}
	objects, err := parseObjects(demoCluster)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.run(ctx) }()
	ask := asker(t, &demonstration{objects: objects, signer: signer, listener: listener, authority: authority})
	if err := ask(""); err == nil {
		t.Error("a certificate was issued by a server that knows no cluster")
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	newAdmin(s.front.Ready, registry).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return parseScrape(w.Body.String())
}

// parseScrape reads the text format: names, types, help and labels, with the
// values that occur.
func parseScrape(text string) []server.Metric {
	var all []server.Metric
	label := regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			all = append(all, server.Metric{Name: name, Help: help})
			continue
		}
		m := &all[len(all)-1]
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			m.Type = strings.TrimPrefix(rest, m.Name+" ")
			continue
		}
		for _, l := range label.FindAllStringSubmatch(line, -1) {
			if l[1] != "le" {
				addValue(m, l[1], l[2])
			}
		}
	}
	return all
}

func addValue(m *server.Metric, name, value string) {
	i := slices.IndexFunc(m.Labels, func(l server.Label) bool { return l.Name == name })
	if i < 0 {
		m.Labels = append(m.Labels, server.Label{Name: name, Values: []string{value}})
	} else if !slices.Contains(m.Labels[i].Values, value) {
		m.Labels[i].Values = append(m.Labels[i].Values, value)
	}
}

// TestExpiryFollowsTheMaterial is [OPS-2]: the gauges are about the authority of
// the moment, not about the first one.
func TestExpiryFollowsTheMaterial(t *testing.T) {
	now := time.Now()
	config, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	made := func(life time.Duration) *ca.Authority {
		root, err := material.NewRoot(now.Add(-48*time.Hour), 48*time.Hour+2*life)
		if err != nil {
			t.Fatal(err)
		}
		issuer, err := material.NewIssuer(now, root, life)
		if err != nil {
			t.Fatal(err)
		}
		old, err := material.NewRoot(now.Add(-48*time.Hour), 24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		m := ca.Material{Signer: issuer.Key, Chain: certificates(issuer), Roots: certificates(root, old)}
		a, err := ca.NewAuthority(now, m, config.profile())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var current *ca.Authority
	o := observer{authority: func() *ca.Authority { return current }, now: func() time.Time { return now }}
	for _, life := range []time.Duration{24 * time.Hour, 48 * time.Hour} {
		current = made(life)
		got := make(map[string]float64)
		o.observeMaterial(func(name string, value float64, label ...string) {
			got[strings.Join(append([]string{name}, label...), "/")] = value
		})
		end := float64(now.Add(life).Unix())
		want := map[string]float64{
			"bailiwick_path_expiry_timestamp_seconds":    end,
			"citadel_server_cert_chain_expiry_timestamp": end,
			"citadel_server_root_cert_expiry_timestamp":  end + life.Seconds(),
			"bailiwick_trust_bundle_roots/early":         0,
			"bailiwick_trust_bundle_roots/expired":       1,
			"bailiwick_trust_bundle_roots/valid":         1,
		}
		for name, seconds := range map[string]float64{"citadel_server_cert_chain_expiry_seconds": life.Seconds(), "citadel_server_root_cert_expiry_seconds": 2 * life.Seconds()} {
			if diff := got[name] - seconds; diff > 0 || diff < -1 { // certificates have whole seconds
				t.Errorf("%s is %v, want %v", name, got[name], seconds)
			}
			delete(got, name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with %v left (-want +got):\n%s", life, diff)
		}
	}
}

func certificates(pairs ...material.Pair) []*x509.Certificate {
	var all []*x509.Certificate
	for _, p := range pairs {
		all = append(all, p.Cert)
	}
	return all
}

package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"github.com/google/go-cmp/cmp"
)

func TestConfigDefaults(t *testing.T) {
	c, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		TrustDomain: "cluster.local", IstioNamespace: "istio-system",
		NodeAgents: []string{"istio-system/ztunnel"}, Protected: []string{"istio-system/bailiwick"}, EvictedNodes: []string{},
		ClusterID: "Kubernetes", Audiences: []string{"istio-ca"}, TokenReview: "unknown-key",
		MaxLeafLife: Duration(24 * time.Hour), MinLeafLife: Duration(10 * time.Minute),
		MaxStaleness: Duration(5 * time.Minute), ProbeEvery: Duration(30 * time.Second), Hold: Duration(time.Second),
		ServingNames: []string{"bailiwick.istio-system.svc"}, KubernetesQPS: 400, KubernetesBurst: 1200,
		Limits: LimitsConfig{
			Deadline: Duration(10 * time.Second), InFlight: 256 * runtime.GOMAXPROCS(0), InFlightPerNode: 32,
			QueuePerNode: 64, QueueWait: Duration(2 * time.Second), Connections: 16384, ConnectionsPerHost: 1024,
			ConnectionAge: Duration(30 * time.Minute), DrainDelay: Duration(3 * time.Second), DrainTimeout: Duration(20 * time.Second),
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if w := c.warnings(); len(w) != 0 {
		t.Errorf("the defaults are warned about: %q", w)
	}
}

// TestConfigRefuses has one mistake each, and what the message must say.
func TestConfigRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown field", "trustdomain: x", `unknown field "trustdomain"`},
		{"a field twice", "hold: 1s\nhold: 2s", `"hold" already set`},
		{"not YAML", "a: [", "yaml"},
		{"a list", "[]", "it is not a YAML mapping of fields; see docs/configuration.md"},
		{"a word", "hello", "it is not a YAML mapping"},
		{"a number", "1", "it is not a YAML mapping"},
		{"no issuer", "issuers: []", "issuers: the list is empty, so no token would be accepted"},
		{"a trust domain in upper case", "trustDomain: Example.com", "trustDomain: "},
		{"a trust domain with a path", "trustDomain: spiffe://example.com/x", "trustDomain: "},
		{"a namespace that none can have", "istioNamespace: a/b", "istioNamespace: "},
		{"[NODE-2] an account without a slash", "nodeAgents: [ztunnel]", `nodeAgents: "ztunnel" is not a service account written as namespace/name`},
		{"[NODE-2] an empty entry after a trailing comma", "nodeAgents: [istio-system/ztunnel, '']", `nodeAgents: "" is not`},
		{"an account with a wildcard", `nodeAgents: ["*/ztunnel"]`, `nodeAgents: "*/ztunnel" is not`},
		{"a protected account without a slash", "protected: [x]", `protected: "x" is not`},
		{"a node name that none can have", "evictedNodes: [N_1]", "evictedNodes: "},
		{"a mode that there is not", "tokenReview: always", `tokenReview: "always" is neither "unknown-key" nor "off"`},
		{"an empty issuer", "issuers: ['']", "issuers: an entry is empty"},
		{"an empty audience", "audiences: ['']", "audiences: an entry is empty"},
		{"a duration without unit", "hold: 5", `hold: found 5, and it must be a duration such as "90s"`},
		{"a duration in days", "maxLeafLife: 1d", `maxLeafLife: found "1d", and it must be a duration such as "90s"`},
		{"a limit in words", "limits: {queueWait: long}", `limits.queueWait: found "long", and it must be a duration such as "90s"`},
		{"a list for a duration", "hold: [1s]", `hold: found ["1s"], and it must be a duration such as "90s"`},
		{"a word for a list", "nodeAgents: x", "nodeAgents: "},
		{"lives in the wrong order", "maxLeafLife: 5m", "maxLeafLife, minLeafLife: "},
		{"a negative hold", "hold: -1s", "hold: -1s is not more than 0"},
		{"no hold", "hold: 0s", "hold: 0s is not more than 0; leave it out for its default"},
		{"a hold as long as the default deadline", "hold: 10s", "hold: 10s is not below limits.deadline, 10s"},
		{"a hold as long as a deadline", "hold: 3s\nlimits: {deadline: 3s}", "hold: 3s is not below limits.deadline, 3s"},
		{"a deadline below the default hold", "limits: {deadline: 1s}", "hold: 1s is not below limits.deadline, 1s"},
		{"a deadline of nothing", "limits: {deadline: 0s}", "limits.deadline: 0s is not more than 0"},
		{"a drain without delay", "limits: {drainDelay: 0s}", "limits.drainDelay: 0s is not more than 0"},
		{"a negative limit", "limits: {inFlight: -1}", "limits.inFlight: -1 is less than 1"},
		{"no queue", "limits: {queuePerNode: 0}", "limits.queuePerNode: 0 is less than 1"},
		{"no connections", "limits: {connections: 0}", "limits.connections: 0 is less than 1"},
		{"no connections of a host", "limits: {connectionsPerHost: 0}", "limits.connectionsPerHost: 0 is less than 1"},
		{"[TOK-3] half a call per second", "kubernetesQPS: 0.5", "kubernetesQPS: 0.5 is less than 1"},
		{"[TOK-3] no calls at once", "kubernetesBurst: 0", "kubernetesBurst: 0 is less than 1"},
		{"probes without pause", "probeEvery: 999ms", "probeEvery: 999ms is less than 1s"},
		{"probes as rare as the view may be old", "maxStaleness: 30s", "probeEvery: 30s is not below maxStaleness, 30s"},
		{"probes rarer than allowed", "maxStaleness: 10s", "probeEvery: 30s is not below maxStaleness, 10s"},
		{"no serving name", "servingNames: []", "servingNames: a server needs a name"},
		{"no audience", "audiences: []", "audiences: the list is empty"},
		{"an empty trust domain", "trustDomain: ''", "trustDomain: "},
		{"an empty cluster ID", "clusterID: ''", "clusterID: it is empty"},
		{"a second document", "hold: 1s\n---\nhold: 2s", "line 2 begins a second YAML document"},
		{"a second document after an end", "hold: 1s\n...\n# more\nhold: 2s", "line 2 begins a second YAML document"},
		{"a second document behind its marker", "--- {hold: 1s}\n--- {hold: 2s}", "line 2 begins a second YAML document"},
		{"a mistake below comments", "# a\n---\nhold: [", "line 3"},
		{"a serving name that is none", "servingNames: ['a b']", "servingNames: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := parseConfig([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parseConfig(%q) = %v, want %q", tt.text, err, tt.want)
			}
		})
	}
}

// TestConfigAccepts has what is only just good: each line is the neighbour of one
// in TestConfigRefuses.
func TestConfigAccepts(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		of         func(*Config) any
		want       any
	}{
		{"a hold just below the deadline", "hold: 2999ms\nlimits: {deadline: 3s}", func(c *Config) any { return c.Hold }, Duration(2999 * time.Millisecond)},
		{"a deadline just above the hold", "limits: {deadline: 1001ms}", func(c *Config) any { return c.limits().Deadline }, 1001 * time.Millisecond},
		{"a drain almost without delay", "limits: {drainDelay: 1ns}", func(c *Config) any { return c.limits().DrainDelay }, time.Nanosecond},
		{"a probe each second", "probeEvery: 1s", func(c *Config) any { return c.ProbeEvery }, Duration(time.Second)},
		{"a view hardly older than a probe", "maxStaleness: 30001ms", func(c *Config) any { return c.MaxStaleness }, Duration(30001 * time.Millisecond)},
		{"one call per second", "kubernetesQPS: 1", func(c *Config) any { return c.KubernetesQPS }, float32(1)},
		{"one call at once", "kubernetesBurst: 1", func(c *Config) any { return c.KubernetesBurst }, 1},
		{"one connection", "limits: {connections: 1}", func(c *Config) any { return c.limits().Connections }, 1},
		{"one connection of a host", "limits: {connectionsPerHost: 1}", func(c *Config) any { return c.limits().ConnectionsPerHost }, 1},
		{"one request that waits", "limits: {queuePerNode: 1}", func(c *Config) any { return c.limits().QueuePerNode }, 1},
		{"a document between markers", "# a\n---\nhold: 2s\n...\n---\n# b\n", func(c *Config) any { return c.Hold }, Duration(2 * time.Second)},
		{"a document after an empty one", "---\n---\nhold: 2s\n", func(c *Config) any { return c.Hold }, Duration(2 * time.Second)},
		{"no word on issuers", "issuers:", func(c *Config) any { return len(c.Issuers) }, 0},
		{"no word on a duration", "hold:", func(c *Config) any { return c.Hold }, Duration(time.Second)},
		{"nothing but a comment", "# a\n", func(c *Config) any { return c.Hold }, Duration(time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseConfig([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.of(c); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// TestConfigBounds has every field with a least value, just below it.
func TestConfigBounds(t *testing.T) {
	for text, want := range map[string]string{
		"maxStaleness: 0s":                 "maxStaleness: 0s is not more than 0",
		"probeEvery: 0s":                   "probeEvery: 0s is less than 1s",
		"hold: 0s":                         "hold: 0s is not more than 0",
		"limits: {deadline: 0s}":           "limits.deadline: 0s is not more than 0",
		"limits: {queueWait: 0s}":          "limits.queueWait: 0s is not more than 0",
		"limits: {connectionAge: 0s}":      "limits.connectionAge: 0s is not more than 0",
		"limits: {drainDelay: 0s}":         "limits.drainDelay: 0s is not more than 0",
		"limits: {drainTimeout: 0s}":       "limits.drainTimeout: 0s is not more than 0",
		"kubernetesQPS: 0":                 "kubernetesQPS: 0 is less than 1",
		"kubernetesBurst: 0":               "kubernetesBurst: 0 is less than 1",
		"limits: {inFlight: 0}":            "limits.inFlight: 0 is less than 1",
		"limits: {inFlightPerNode: 0}":     "limits.inFlightPerNode: 0 is less than 1",
		"limits: {queuePerNode: 0}":        "limits.queuePerNode: 0 is less than 1",
		"limits: {connections: 0}":         "limits.connections: 0 is less than 1",
		"limits: {connectionsPerHost: 0}":  "limits.connectionsPerHost: 0 is less than 1",
		"maxLeafLife: 1h\nminLeafLife: 2h": "maxLeafLife, minLeafLife: ",
	} {
		if _, err := parseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseConfig(%q) = %v, want %q", text, err, want)
		}
	}
}

// TestConfigReachesTheParts sets every field that another part is made of to a
// value of its own.
func TestConfigReachesTheParts(t *testing.T) {
	c, err := parseConfig([]byte(`
trustDomain: example.org
maxLeafLife: 7h
minLeafLife: 7m
allowEd25519: true
evictedNodes: [n1]
servingNames: [a.example, 10.0.0.1, b.example, '::1']
limits: {deadline: 11s, inFlight: 12, inFlightPerNode: 13, queuePerNode: 14, queueWait: 15s,
  connections: 16, connectionsPerHost: 17, connectionAge: 18s, drainDelay: 19s, drainTimeout: 20s}
`))
	if err != nil {
		t.Fatal(err)
	}
	limits := server.Limits{
		Deadline: 11 * time.Second, InFlight: 12, InFlightPerNode: 13, QueuePerNode: 14, QueueWait: 15 * time.Second,
		Connections: 16, ConnectionsPerHost: 17, ConnectionAge: 18 * time.Second, DrainDelay: 19 * time.Second, DrainTimeout: 20 * time.Second,
	}
	if diff := cmp.Diff(limits, c.limits()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if p := c.profile(); p.TrustDomain.Name() != "example.org" || p.MaxLeafLife != 7*time.Hour || p.MinLeafLife != 7*time.Minute || !p.AllowEd25519 {
		t.Errorf("the profile is %+v", p)
	}
	if names := c.servingNames(); fmt.Sprint(names) != "{[a.example b.example] [10.0.0.1 ::1]}" {
		t.Errorf("the serving names are %v", names)
	}
	at := time.Unix(1, 0)
	p := c.policy(elsewhere{}, authz.ServiceAccount{}, func() time.Time { return at })
	if p.TrustDomain.Name() != "example.org" || p.Inventory != (elsewhere{}) || p.Now() != at || !p.Evicted("n1") || p.Evicted("n2") {
		t.Errorf("the policy is %+v", p)
	}
}

// elsewhere is an inventory that is not asked.
type elsewhere struct{ authz.Inventory }

func TestConfigNamesEveryProblem(t *testing.T) {
	_, err := parseConfig([]byte("trustDomain: X\nnodeAgents: [a, b]\ntokenReview: never\nhold: -1s"))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"trustDomain", `"a"`, `"b"`, "tokenReview", "hold"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error says nothing of %s: %v", want, err)
		}
	}
}

func TestNodeAgents(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"[OPS-1] the default follows the Istio namespace", "istioNamespace: mesh", "[mesh/ztunnel]"},
		{"[OPS-1] a list stands alone", "nodeAgents: [kube-system/zt, a/b]", "[kube-system/zt a/b]"},
		{"[OPS-1] an empty list trusts nobody", "nodeAgents: []", "[]"},
		{"[NODE-2] spaces and a trailing comma do not matter", "nodeAgents: [ istio-system/ztunnel , a/b , ]", "[istio-system/ztunnel a/b]"},
		{"[NODE-2] spaces around an entry do not matter", "nodeAgents: [' istio-system/ztunnel ']", "[istio-system/ztunnel]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseConfig([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.policy(nil, authz.ServiceAccount{}, time.Now).NodeAgents); got != tt.want {
				t.Errorf("node agents are %s, want %s", got, tt.want)
			}
		})
	}
}

func TestProtected(t *testing.T) {
	own := authz.ServiceAccount{Namespace: "mesh", Name: "bailiwick"}
	for _, tt := range []struct {
		name, text string
		own        authz.ServiceAccount
		want       string
	}{
		{"bailiwick in the Istio namespace by default", "", authz.ServiceAccount{}, "[istio-system/bailiwick]"},
		{"the default follows the Istio namespace", "istioNamespace: x", authz.ServiceAccount{}, "[x/bailiwick]"},
		{"our own account too", "", own, "[istio-system/bailiwick mesh/bailiwick]"},
		{"our own account once", "istioNamespace: mesh", own, "[mesh/bailiwick]"},
		{"a list instead of the default", "protected: [a/b]", authz.ServiceAccount{}, "[a/b]"},
		{"our own account beside a list", "protected: [a/b]", own, "[a/b mesh/bailiwick]"},
		{"nothing by an empty list", "protected: []", authz.ServiceAccount{}, "[]"},
		{"our own account beside an empty list", "protected: []", own, "[mesh/bailiwick]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseConfig([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(c.policy(nil, tt.own, time.Now).Protected); got != tt.want {
				t.Errorf("protected are %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReviewMode(t *testing.T) {
	for text, want := range map[string]ReviewMode{"": "unknown-key", "tokenReview: off": "off", "tokenReview: 'off'": "off", "tokenReview: unknown-key": "unknown-key"} {
		c, err := parseConfig([]byte(text))
		if err != nil || c.TokenReview != want {
			t.Errorf("%q: %v, %v; want %q", text, c, err, want)
		}
	}
}

func TestConfigWarnings(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"nodeAgents: []", "no node agent is trusted"},
		{"maxStaleness: 179s", "below 3m"},
		{"maxStaleness: 180s", ""},
		{"minLeafLife: 599s", "for tests only"},
		{"maxLeafLife: 721h", "maxLeafLife is 721h0m0s: a stolen certificate is good until it expires; more than 720h0m0s"},
		{"maxLeafLife: 720h", ""},
		{"allowUnboundTokens: true", "allowUnboundTokens"},
		{"kubernetesQPS: 299", "live reads and token reviews may be 300 calls a second and 1000 at once"},
		{"kubernetesQPS: 300", ""},
		{"kubernetesBurst: 999", "kubernetesBurst 999"},
		{"kubernetesBurst: 1000", ""},
		{"kubernetesQPS: 199\ntokenReview: off", "live reads may be 200 calls a second and 400 at once"},
		{"kubernetesBurst: 399\ntokenReview: off", "kubernetesBurst 399"},
		{"kubernetesQPS: 200\nkubernetesBurst: 400\ntokenReview: off", ""},
	} {
		c, err := parseConfig([]byte(tt.text))
		if err != nil {
			t.Fatal(err)
		}
		w := c.warnings()
		if tt.want == "" && len(w) > 0 || tt.want != "" && (len(w) != 1 || !strings.Contains(w[0], tt.want)) {
			t.Errorf("%s: warned %q, want %q", tt.text, w, tt.want)
		}
	}
}

// TestLongValuesAreCut has a value of 10000 letters, such as the content of a file
// where its name should be, and wants an error that can be read.
func TestLongValuesAreCut(t *testing.T) {
	long := strings.Repeat("é", 10000)
	for _, text := range []string{
		"hold: LONG", "hold: [LONG]", "limits: {deadline: {a: LONG}}", "limits: {inFlight: 1.00000000000000000000000000000LONG}", "trustDomain: a/LONG", "trustDomain: LONG",
		"istioNamespace: LONG", "nodeAgents: [LONG]", "protected: [LONG]", "evictedNodes: [LONG]", "tokenReview: LONG", "servingNames: ['LONG']", "LONG: 1", "limits: {LONG: 1}",
		"maxLeafLife: 1LONG", "a: 1\nLONG: 1\nLONG: 2", "LONG",
	} {
		_, err := parseConfig([]byte(strings.ReplaceAll(text, "LONG", long)))
		if err == nil || len(err.Error()) > 1000 || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: %.600q", text, fmt.Sprint(err))
		}
	}
	for text, want := range map[string]string{strings.Repeat("é", 64): strings.Repeat("é", 64), strings.Repeat("é", 65): strings.Repeat("é", 64) + "[...]"} {
		if got := short(text); got != want {
			t.Errorf("short(%q) = %q", text, got)
		}
	}
	for _, text := range []string{"apiVersion: LONG", "apiVersion: v1\nkind: LONG", "apiVersion: v1\nkind: Pod\nmetadata: {generation: LONG}"} {
		_, err := parseObjects([]byte(strings.ReplaceAll(text, "LONG", long)))
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %.600q", text, fmt.Sprint(err))
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, text := range []string{"", "trustDomain: x\nnodeAgents: [a/b]\nlimits: {deadline: 3s}", "hold: 5", "{", "- a", "hold: 9999999h", "a: &a [*a]"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig(data)
		if err != nil {
			return
		}
		p := c.policy(nil, authz.ServiceAccount{}, time.Now)
		if p.TrustDomain.IsZero() || c.profile().Validate() != nil || len(p.NodeAgents) != len(c.NodeAgents) {
			t.Errorf("parseConfig(%q) accepted what cannot be used", data)
		}
	})
}

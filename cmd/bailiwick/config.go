package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// A Config is the configuration file: what the server does. Flags say where
// things are. A field that is left out has its default, with which its comment
// ends; an unknown field is an error. Zero is a value like any other, and stands
// for no default.
type Config struct {
	// TrustDomain is the SPIFFE trust domain, the mesh's own. Default
	// cluster.local.
	TrustDomain string `json:"trustDomain"`

	// IstioNamespace is where Istio is installed. Other defaults follow it.
	// Default istio-system.
	IstioNamespace string `json:"istioNamespace"`

	// NodeAgents are the service accounts, as namespace/name, whose pods may
	// ask for the identities on their own node. An empty list trusts nobody.
	// Default [<istioNamespace>/ztunnel].
	NodeAgents []string `json:"nodeAgents"`

	// Protected are the service accounts, as namespace/name, whose identity no
	// node agent may have. If the server runs with a service account token, the
	// account of that is always one of them, whatever stands here. Default
	// [<istioNamespace>/bailiwick].
	Protected []string `json:"protected"`

	// EvictedNodes are names of nodes to which nothing is issued any more.
	// Default [].
	EvictedNodes []string `json:"evictedNodes"`

	// ClusterID is what this cluster's clients send as clusterid. It lends no
	// trust; what else is sent is accepted, and counted. Default Kubernetes.
	ClusterID string `json:"clusterID"`

	// Issuers are the accepted issuers of tokens. Default that of the server's
	// own token, and the API server's.
	Issuers []string `json:"issuers"`

	// Audiences are the accepted audiences of tokens. Default [istio-ca].
	Audiences []string `json:"audiences"`

	// AllowUnboundTokens accepts tokens that are bound to no pod, for their own
	// identity only. Default false.
	AllowUnboundTokens bool `json:"allowUnboundTokens"`

	// TokenReview says when the API server is asked about a token:
	// "unknown-key", if its issuer is ours but its key is not to be found, or
	// "off", never. Default unknown-key.
	TokenReview ReviewMode `json:"tokenReview"`

	// MaxLeafLife is the longest life of a certificate, and the default one. A
	// longer one that is asked for is cut. More than 720h is warned about.
	// Default 24h.
	MaxLeafLife Duration `json:"maxLeafLife"`

	// MinLeafLife is the shortest life of a certificate. Less than 10m is for
	// tests, and warned about. Default 10m.
	MinLeafLife Duration `json:"minLeafLife"`

	// AllowEd25519 accepts CSRs with Ed25519 keys, which Envoy cannot use.
	// Default false.
	AllowEd25519 bool `json:"allowEd25519"`

	// MaxStaleness is how old the view of the cluster may be. With an older one
	// every answer is "cannot tell". Less than 3m is warned about, because an
	// idle watch hears of a new version only once in 1 to 2 minutes. Default 5m.
	MaxStaleness Duration `json:"maxStaleness"`

	// ProbeEvery is how often the age of the view is measured: at least 1s, and
	// less than MaxStaleness. Default 30s.
	ProbeEvery Duration `json:"probeEvery"`

	// Hold is how long a request waits for facts that may only be late, before
	// the API server is asked: less than Limits.Deadline. Default 1s.
	Hold Duration `json:"hold"`

	// ServingNames are the DNS names and IP addresses in the server's own
	// certificate. Default [bailiwick.<istioNamespace>.svc].
	ServingNames []string `json:"servingNames"`

	// OnlyTLS13 refuses TLS 1.2. Default false.
	OnlyTLS13 bool `json:"onlyTLS13"`

	// KubernetesQPS bounds our calls to the API server per second, at least 1.
	// Less than 200, or 300 with token reviews, is warned about. Default 400.
	KubernetesQPS float32 `json:"kubernetesQPS"`

	// KubernetesBurst bounds our calls to the API server at once, at least 1.
	// Less than 400, or 1000 with token reviews, is warned about. Default 1200.
	KubernetesBurst int `json:"kubernetesBurst"`

	// Limits bound what requests may cost. Default as below.
	Limits LimitsConfig `json:"limits"`
}

// A LimitsConfig is the part of the configuration file about load.
type LimitsConfig struct {
	// Deadline is how long one request may take in all. Default 10s.
	Deadline Duration `json:"deadline"`

	// InFlight is how many requests are worked on at once. Default 256 for each
	// processor.
	InFlight int `json:"inFlight"`

	// InFlightPerNode is how many of them for one node. Default 32.
	InFlightPerNode int `json:"inFlightPerNode"`

	// QueuePerNode is how many more of one node wait their turn. Default 64.
	QueuePerNode int `json:"queuePerNode"`

	// QueueWait is for how long they wait. Default 2s.
	QueueWait Duration `json:"queueWait"`

	// Connections is how many connections are open at once. Default 16384.
	Connections int `json:"connections"`

	// ConnectionsPerHost is how many of them from one address. Default 1024.
	ConnectionsPerHost int `json:"connectionsPerHost"`

	// ConnectionAge is how long a connection lives before its client is sent
	// elsewhere, plus or minus 10 %. Default 30m.
	ConnectionAge Duration `json:"connectionAge"`

	// DrainDelay is how long a server that was told to stop still accepts
	// requests, so that its endpoint can be withdrawn first. Default 3s.
	DrainDelay Duration `json:"drainDelay"`

	// DrainTimeout is how long what is in flight may take after that. Default
	// 20s.
	DrainTimeout Duration `json:"drainTimeout"`
}

// A Duration is written as Go writes it, such as "90s" or "24h".
type Duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler]. Its errors are of the type to
// which the decoder adds the name of the field.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" { // as everywhere, what is there without a value is left out
		return nil
	}
	var s string
	err := json.Unmarshal(data, &s)
	if err == nil {
		var parsed time.Duration
		parsed, err = time.ParseDuration(s)
		*d = Duration(parsed)
	}
	if err != nil {
		return &json.UnmarshalTypeError{Value: string(data), Type: reflect.TypeFor[Duration]()}
	}
	return nil
}

// MarshalJSON implements [json.Marshaler].
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String implements [fmt.Stringer].
func (d Duration) String() string { return time.Duration(d).String() }

// A ReviewMode says when the API server is asked about a token.
type ReviewMode string

// The modes.
const (
	reviewOff        ReviewMode = "off"
	reviewUnknownKey ReviewMode = "unknown-key"
)

// UnmarshalJSON implements [json.Unmarshaler]. In YAML, off without quotes is
// the boolean false.
func (m *ReviewMode) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		*m = reviewOff
		return nil
	}
	return json.Unmarshal(data, (*string)(m))
}

// loadConfig reads a configuration file. No path means the defaults.
func loadConfig(path string) (*Config, error) {
	if path == "" {
		return parseConfig(nil)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w\n--config must name a YAML file, as in docs/configuration.md", err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", path, err)
	}
	return c, nil
}

// parseConfig parses and completes a configuration. The error names every
// problem.
func parseConfig(data []byte) (*Config, error) {
	text, err := oneDocument(string(data))
	if err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	if raw[0] != '{' && string(raw) != "null" {
		return nil, errors.New("it is not a YAML mapping of fields; see docs/configuration.md")
	}
	c := defaultConfig()
	// Unlike encoding/json, this one does not take trustdomain for trustDomain.
	problems, err := kjson.UnmarshalStrict(raw, c)
	if err := errors.Join(append(problems, inYAML(err))...); err != nil {
		return nil, err
	}
	c.followNamespace()
	return c, c.validate()
}

// inYAML says of a value that does not fit its field what would, in the words of
// who wrote it.
func inYAML(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	wants := "a value of another kind"
	switch {
	case e.Type == reflect.TypeFor[Duration]():
		wants = `a duration such as "90s" or "24h"`
	case e.Type.Kind() == reflect.Slice:
		wants = "a list such as [a, b]"
	case e.Type.Kind() == reflect.Struct:
		wants = "a mapping of fields"
	case e.Type.Kind() == reflect.String:
		wants = "a text; put it in quotes"
	case e.Type.Kind() == reflect.Bool:
		wants = "true or false"
	case e.Type.Kind() == reflect.Int:
		wants = "a whole number"
	case e.Type.Kind() == reflect.Float32:
		wants = "a number"
	}
	where := ""
	if e.Field != "" {
		where = e.Field + ": "
	}
	return fmt.Errorf("%sfound %s, and it must be %s", where, short(e.Value), wants)
}

// short cuts a value that is to be repeated in an error to its first 64 letters.
func short(text string) string {
	letters := 0
	for i := range text {
		if letters == 64 {
			return text[:i] + "[...]"
		}
		letters++
	}
	return text
}

// oneDocument returns the only YAML document in a file. What stands in a second
// one would be dropped without a word.
func oneDocument(text string) (string, error) {
	docs := documents(text)
	switch len(docs) {
	case 0:
		return "", nil
	case 1:
		// The parser's errors count lines from where the file begins.
		return strings.Repeat("\n", docs[0].line-1) + docs[0].text, nil
	}
	return "", fmt.Errorf("line %d begins a second YAML document, and a configuration is one; put everything into the first, and remove the line with ---", docs[1].line)
}

// defaultConfig returns the defaults that follow no other field.
func defaultConfig() *Config {
	return &Config{
		TrustDomain:     "cluster.local",
		IstioNamespace:  "istio-system",
		EvictedNodes:    []string{},
		ClusterID:       "Kubernetes",
		Audiences:       []string{token.DefaultAudience},
		TokenReview:     reviewUnknownKey,
		MaxLeafLife:     Duration(ca.DefaultMaxLeafLife),
		MinLeafLife:     Duration(ca.DefaultMinLeafLife),
		MaxStaleness:    Duration(5 * time.Minute),
		ProbeEvery:      Duration(30 * time.Second),
		Hold:            Duration(time.Second),
		KubernetesQPS:   400,
		KubernetesBurst: 1200,
		Limits: LimitsConfig{
			Deadline:           Duration(10 * time.Second),
			InFlight:           256 * runtime.GOMAXPROCS(0),
			InFlightPerNode:    32,
			QueuePerNode:       64,
			QueueWait:          Duration(2 * time.Second),
			Connections:        16384,
			ConnectionsPerHost: 1024,
			ConnectionAge:      Duration(30 * time.Minute),
			DrainDelay:         Duration(3 * time.Second),
			DrainTimeout:       Duration(20 * time.Second),
		},
	}
}

// followNamespace sets the defaults that follow the Istio namespace.
func (c *Config) followNamespace() {
	for _, d := range []struct {
		field *[]string
		value string
	}{
		{&c.NodeAgents, c.IstioNamespace + "/ztunnel"},
		{&c.Protected, c.IstioNamespace + "/bailiwick"},
		{&c.ServingNames, "bailiwick." + c.IstioNamespace + ".svc"},
	} {
		if *d.field == nil {
			*d.field = []string{d.value}
		}
	}
}

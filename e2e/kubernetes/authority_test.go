package kubernetes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/agent"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/certs"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

// An authority is a running bailiwick, and a connection to it.
type authority struct {
	*bailiwick.Server
	*agent.Conn

	where   agent.Server
	account *cluster.Account
}

// options is a configuration file. What is not in it has its default.
type options map[string]any

// serve runs bailiwick against an API server until the test ends, as a service
// account that may do what the code declares that it needs, and nothing else.
func serve(t *testing.T, s *cluster.APIServer, o options) *authority {
	t.Helper()
	return serveAs(t, s.Account(t, "istio-system", "bailiwick", bailiwick.Permissions()), o)
}

func serveAs(t *testing.T, account *cluster.Account, o options) *authority {
	t.Helper()
	o = maps.Clone(o)
	if o == nil {
		o = options{}
	}
	o["limits"] = map[string]any{"drainDelay": "1ms"} // nobody's endpoint is withdrawn here
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	dir, root := certs.Cacerts(t, time.Now())
	server := bailiwick.Serve(t, bailiwick.Options{
		Program:    program(t),
		Config:     string(config),
		Material:   dir,
		Kubeconfig: account.Kubeconfig,
	})
	where := agent.Server{Addr: server.Addr, Name: "bailiwick.istio-system.svc", Root: root}
	return &authority{Server: server, Conn: where.Dial(t), where: where, account: account}
}

// program returns the built binary's path.
func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(func() (string, error) {
	return bailiwick.Build(context.Background(), sharedDir)
})

// An outcome is what came of a request: "issued", or the reason why not.
type outcome struct {
	agent.Answer

	word     string
	identity string // in the certificate
}

const issued = "issued"

// ask asks for a certificate, and finds out in the metrics why there is none:
// the caller is not told. It must be the only one to ask at a time.
func (a *authority) ask(t *testing.T, token, identity string) outcome {
	t.Helper()
	before := a.reasons(t)
	got := a.request(t, token, identity)
	if got.word == issued {
		return got
	}
	if !outward.MatchString(got.Message) {
		t.Errorf("asking for %q: the caller is told %q", identity, got.Message)
	}
	for reason, n := range a.reasons(t) {
		if n > before[reason] {
			got.word = reason
		}
	}
	return got
}

// outward are the words in which a caller hears that there is no certificate.
// They name nothing.
var outward = regexp.MustCompile(`^(not-on-node|node-mismatch|denied|unauthenticated|cannot tell now, try again) \(request [0-9a-f]{16}\)$`)

// request asks for a certificate, and judges it if there is one.
func (a *authority) request(t *testing.T, token, identity string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	answer, err := a.Ask(ctx, agent.Request{Token: token, Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	if answer.Code != codes.OK {
		return outcome{Answer: answer, word: fmt.Sprintf("%v: %s", answer.Code, answer.Message)}
	}
	got, err := answer.Identity()
	if err != nil {
		t.Fatalf("asking for %q: %v", identity, err)
	}
	if want := orOwn(t, identity, token); got != want {
		t.Fatalf("asking for %q: the certificate is for %s", identity, got)
	}
	return outcome{answer, issued, got}
}

// must fails the test if the outcome is not the one word.
func (a *authority) must(t *testing.T, want, token, identity string) {
	t.Helper()
	if got := a.ask(t, token, identity); got.word != want {
		t.Errorf("asking for %q: %s (%v: %s), want %s", identity, got.word, got.Code, got.Message, want)
	}
}

// becomes asks until the outcome is want. Until then it must be one of others.
func (a *authority) becomes(t *testing.T, within time.Duration, want, token, identity string, others ...string) {
	t.Helper()
	cluster.Eventually(t, within, fmt.Sprintf("the answer for %q is %s", identity, want), func(context.Context) error {
		got := a.ask(t, token, identity)
		switch {
		case got.word == want:
			return nil
		case !slices.Contains(others, got.word):
			t.Fatalf("asking for %q: %s (%v: %s), want %s", identity, got.word, got.Code, got.Message, want)
		}
		return fmt.Errorf("it is %s", got.word)
	})
}

// orOwn returns the identity that is asked for, which is the caller's own if
// none is named.
func orOwn(t *testing.T, identity, token string) string {
	t.Helper()
	if identity != "" {
		return identity
	}
	subject, _ := cluster.Claims(t, token)["sub"].(string)
	part := strings.Split(subject, ":")
	if len(part) != 4 {
		t.Fatalf("a token of %q", subject)
	}
	return id(part[2], part[3])
}

func id(namespace, account string) string {
	return "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
}

// reasons returns how many requests were answered for each reason.
func (a *authority) reasons(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for answer, n := range a.Answers(t) {
		counts[answer.Reason] += n
	}
	return counts
}

var confirmedTotal = regexp.MustCompile(`(?m)^bailiwick_inventory_confirmed_total\{by="([a-z]*)"\} (\d+)$`)

// confirmed returns how many requests for which what was known was not enough
// were decided by each means.
func (a *authority) confirmed(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, s := range a.Samples(t, confirmedTotal) {
		counts[s.Labels[0]] += int(s.Value)
	}
	if len(counts) == 0 {
		t.Fatal("the metrics do not say what was confirmed")
	}
	return counts
}

// wasConfirmed fails the test if fewer than least requests were decided by one
// of these means since then.
func (a *authority) wasConfirmed(t *testing.T, since map[string]int, least int, by ...string) {
	t.Helper()
	now, n := a.confirmed(t), 0
	for _, means := range by {
		n += now[means] - since[means]
	}
	if n < least {
		t.Errorf("%d requests were decided by %v, want %d at least: %v, and before that %v", n, by, least, now, since)
	}
}

var provenTimestamp = regexp.MustCompile(`(?m)^bailiwick_inventory_proven_timestamp_seconds\{resource="([a-z]*)"\} (\S+)$`)

// proven returns up to when what is known is proven to be complete.
func (a *authority) proven(t *testing.T) time.Time {
	t.Helper()
	all := a.Samples(t, provenTimestamp)
	if len(all) == 0 {
		t.Fatal("the metrics do not say what is proven")
	}
	oldest := math.Inf(1)
	for _, s := range all {
		oldest = min(oldest, s.Value)
	}
	return time.UnixMilli(int64(oldest * 1000))
}

// nothingSecret fails the test if what bailiwick wrote has a credential in it.
func (a *authority) nothingSecret(t *testing.T, tokens ...string) {
	t.Helper()
	own, err := os.ReadFile(a.account.Token)
	if err != nil {
		t.Fatal(err)
	}
	output := a.Output(t)
	for _, token := range append(tokens, string(own)) {
		signature := token[strings.LastIndex(token, ".")+1:]
		if len(signature) > 20 && strings.Contains(output, signature) {
			t.Errorf("a token is in bailiwick's output")
		}
	}
	if strings.Contains(output, "PRIVATE KEY") {
		t.Error("a key is in bailiwick's output")
	}
}

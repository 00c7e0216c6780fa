package server

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
)

// agentOfA is who asks in the examples of docs/audit.md.
func agentOfA() authz.Caller {
	return authz.Caller{
		ServiceAccount: authz.ServiceAccount{Namespace: "istio-system", Name: "ztunnel"}, ServiceAccountUID: "u",
		Pod: "ztunnel-a", PodUID: "81162340-1e2b-563e-a516-5750fb48a23a",
		Node: "node-a", NodeUID: "b06ebe11-91af-5e12-8a68-382edb6a1ba5",
		TokenID: "7f9f8d0c-8a3b-4b66-9a53-6d1d4c9b0e11",
	}
}

// oneCart is an inventory in which a pod of shop/cart is on the caller's node.
type oneCart struct{}

func (oneCart) Look(_ time.Time, q authz.Query) (authz.Facts, error) {
	c := q.Caller
	return authz.Facts{
		CallerAccount: authz.Account{UID: c.ServiceAccountUID},
		CallerPod:     authz.Pod{UID: c.PodUID, Account: c.ServiceAccount, Node: c.Node},
		Node:          authz.Node{UID: c.NodeUID},
		TargetAccount: authz.Account{UID: "ut"},
		Live:          1, LiveUID: "f3f62525-905d-5446-b002-bc2e8e7f7fee",
	}, nil
}

func (o oneCart) Confirm(_ context.Context, q authz.Query, _ func(authz.Facts) bool) (authz.Facts, error) {
	return o.Look(time.Time{}, q)
}

// TestAuditLines writes the lines of docs/audit.md, byte for byte: a certificate,
// a denial, its repeats, a token that somebody made up, and an answer that cannot be
// told.
func TestAuditLines(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{}.withDefaults())
	write := func(now time.Time, r *record, out outcome) {
		if r.peer == "" {
			r.peer, r.caller = "10.244.1.7:45562", agentOfA()
		}
		if err := a.write(t.Context(), now, r, out); err != nil {
			t.Error(err)
		}
	}
	refuse := func(now time.Time, id, identity string, err error) {
		write(now, &record{id: id, want: "spiffe://cluster.local/ns/shop/sa/" + identity, err: err}, classify(t.Context(), err))
	}

	policy := &authz.Policy{
		TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local"), NodeAgents: []authz.ServiceAccount{agentOfA().ServiceAccount},
		Inventory: oneCart{}, Now: time.Now,
	}
	grant, err := policy.Authorize(t.Context(), agentOfA(), "spiffe://cluster.local/ns/shop/sa/cart")
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := new(big.Int).SetString("513fd8c843b432c03f383f091c978e8b", 16)
	leaf := &x509.Certificate{SerialNumber: serial, NotAfter: at("2026-11-30T20:14:56Z")}
	write(at("2026-11-29T20:32:42.539979501Z"), &record{id: "6222d56582758cc5", grant: grant, issued: &ca.Issued{Leaf: leaf}}, outcome{code: codes.OK})

	notThere := authz.Deny(authz.NotOnNode, "no live pod of shop/pay is on node node-a")
	refuse(at("2026-11-29T20:32:42.545975688Z"), "6fda4e3806f25e8c", "pay", notThere)
	for range 6 {
		refuse(at("2026-11-29T20:33:01Z"), "x", "pay", notThere)
	}
	refuse(at("2026-11-29T20:33:40Z"), "00ffa818058c931c", "pay", notThere)
	flushed(t, a, at("2026-11-29T20:33:42.912004327Z"), false)

	madeUp := authz.Deny(authz.BadToken, "header: not base64url")
	write(at("2026-11-29T20:35:10.114220871Z"), &record{id: "01e867ddb028fc44", peer: "10.244.3.9:41346", err: madeUp}, classify(t.Context(), madeUp))
	refuse(at("2026-11-29T20:41:07.103355012Z"), "b1946ac92492d234", "cart", &authz.Undecided{Reason: authz.Stale, Err: errors.New("what is known of pods is of 2026-11-29T20:35:58Z, more than 5m0s ago")})

	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "{") {
			examples = append(examples, line)
		}
	}
	if diff := cmp.Diff(strings.Join(examples, ""), b.String()); diff != "" {
		t.Errorf("lines (-page +written):\n%s", diff)
	}
	if len(examples) != 5 {
		t.Errorf("the page has %d examples, want 5", len(examples))
	}
}

// TestAuditBoundsAreDocumented wants the bounds of the audit record on its page.
func TestAuditBoundsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	l := Limits{}.withDefaults()
	for _, bound := range []string{
		fmt.Sprintf("Beyond %d identities of one caller", l.AuditLinesPerCaller),
		fmt.Sprintf("Beyond %d kinds in all", l.AuditRepeats),
		fmt.Sprintf("of which %d bytes are kept", maxText),
		fmt.Sprintf("A message over %d KiB", l.MessageSize>>10),
		map[time.Duration]string{time.Minute: "summed up once a minute"}[repeatEvery],
		`"` + others + `"`,
	} {
		if bound == "" || !strings.Contains(string(page), bound) {
			t.Errorf("docs/audit.md does not say %q", bound)
		}
	}
}

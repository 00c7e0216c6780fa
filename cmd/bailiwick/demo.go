package main

import (
	"context"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/material"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

//go:embed demo.yaml
var demoCluster []byte

// demoConfig is the configuration of the demonstration's server.
const demoConfig = `# The configuration of bailiwick demo.
servingNames: [localhost, 127.0.0.1]
protected: [mesh/bailiwick]
limits: {drainDelay: 1ns}
`

func newDemo() *cobra.Command {
	var keep bool
	var listen string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See what is granted and what is refused, in two seconds and without a cluster",
		Long: `Start the real server on loopback, on the objects of a small cluster and with
tokens made here. Ask as the agents of two nodes, and as others, for what they
may and may not have; check every answer, and print them all.

Exit codes: 0 all as expected, 1 not so, or failed, 2 wrong usage.`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&keep, "keep-running", false, "go on serving afterwards, and print commands to try")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` to serve on")
	return reports(cmd, func(cmd *cobra.Command, p *printer) error {
		if keep && p.format != asText {
			return &exitError{exitUsage, errors.New("--keep-running prints commands for people to try; leave out --output or --keep-running")}
		}
		return demo(cmd.Context(), listen, keep, p, cmd.ErrOrStderr())
	})
}

// demo makes the demonstration and runs it.
func demo(ctx context.Context, listen string, keep bool, p *printer, stderr io.Writer) error {
	audit := &auditReader{}
	d, err := newDemonstration(listen, audit, slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if d.program, err = os.Executable(); err != nil {
		d.program = os.Args[0]
	}
	return d.run(ctx, audit, keep, p)
}

// run serves, and shows what is granted and what is refused. With keep set, it
// then serves until ctx is done.
func (d *demonstration) run(ctx context.Context, audit *auditReader, keep bool, p *printer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = d.service.run(ctx)
	}()
	err := d.show(ctx, audit, p)
	if err == nil && keep {
		err = d.keepRunning(ctx, ended, p.w)
	}
	stop()
	<-ended
	return errors.Join(err, failure)
}

// A demonstration is a server on a cluster that exists only in memory.
type demonstration struct {
	service   *service
	listener  net.Listener
	authority *ca.Authority
	objects   *objects
	signer    *signer
	program   string // the path of this program, for commands to try
}

// newDemonstration returns one that listens already, and writes its audit log to
// audit.
func newDemonstration(address string, audit io.Writer, log *slog.Logger) (*demonstration, error) {
	d := &demonstration{}
	config, err := parseConfig([]byte(demoConfig))
	if err != nil {
		return nil, err
	}
	if d.objects, err = parseObjects(demoCluster); err != nil {
		return nil, err
	}
	inv, err := d.objects.inventory(time.Now)
	if err != nil {
		return nil, err
	}
	if d.signer, err = newSigner(); err != nil {
		return nil, err
	}
	if d.authority, err = selfMade(time.Now(), config.profile()); err != nil {
		return nil, err
	}
	tokens, err := token.New(token.Config{Issuers: []string{demoIssuer}, FetchKeys: d.signer.keys})
	if err != nil {
		return nil, err
	}
	if d.listener, err = listen("--listen", address); err != nil {
		return nil, err
	}
	d.service, err = newService(parts{
		config: config, policy: config.policy(inv, authz.ServiceAccount{}, time.Now), authenticate: tokens.Verify, authority: d.authority,
		audit: slog.NewJSONHandler(audit, nil), log: log, metrics: prometheus.NewRegistry(), listener: d.listener, now: time.Now,
		ready: func() error { return nil },
	})
	return d, err
}

func (d *demonstration) address() string { return d.listener.Addr().String() }

// selfMade returns an authority with keys made on the spot.
func selfMade(now time.Time, profile ca.Profile) (*ca.Authority, error) {
	m, err := material.Make(now)
	if err != nil {
		return nil, err
	}
	return ca.NewAuthority(now, m, profile)
}

// A question is who asks for what, and the answer it must get.
type question struct {
	pod      string
	token    func(d *demonstration, c authz.Caller) (string, error) // nil for a good one
	note     string                                                 // about the token
	identity string
	want     authz.Reason // "" if it must be granted
}

// questions are what the demonstration asks.
func questions() []question {
	id := func(account string) string { return "spiffe://cluster.local/ns/" + account }
	return []question{
		{pod: "istio-system/ztunnel-a", identity: id("shop/sa/cart")},
		{pod: "istio-system/ztunnel-a", identity: id("shop/sa/web")},
		{pod: "istio-system/ztunnel-a", identity: id("bank/sa/audit")},
		{pod: "istio-system/ztunnel-a"},
		{pod: "istio-system/ztunnel-a", identity: id("shop/sa/pay"), want: authz.NotOnNode},
		{pod: "istio-system/ztunnel-a", identity: id("bank/sa/ledger"), want: authz.NotOnNode},
		{pod: "istio-system/ztunnel-a", identity: id("shop/sa/report"), want: authz.NotOnNode},
		{pod: "istio-system/ztunnel-a", identity: id("mesh/sa/bailiwick"), want: authz.Protected},
		{pod: "istio-system/ztunnel-a", identity: "spiffe://other.example/ns/shop/sa/cart", want: authz.BadIdentity},
		{pod: "istio-system/ztunnel-b", identity: id("shop/sa/pay")},
		{pod: "istio-system/ztunnel-b", identity: id("bank/sa/ledger")},
		{pod: "istio-system/ztunnel-b", identity: id("shop/sa/cart")},
		{pod: "istio-system/ztunnel-b", identity: id("shop/sa/web"), want: authz.NotOnNode},
		{pod: "shop/cart-1"},
		{pod: "shop/cart-1", identity: id("shop/sa/web"), want: authz.NotANodeAgent},
		{pod: "shop/report-1", want: authz.CallerDone},
		{pod: "istio-system/ztunnel-a", token: tokenForAPI, note: "token for the API", want: authz.WrongAudience},
		{pod: "istio-system/ztunnel-a", token: expiredToken, note: "expired token", want: authz.ExpiredToken},
		{pod: "istio-system/ztunnel-a", token: forgedToken, note: "forged token", want: authz.BadSignature},
		{pod: "istio-system/ztunnel-a", token: unboundToken, note: "token of no pod", want: authz.NotPodBound},
	}
}

func goodToken(d *demonstration, c authz.Caller) (string, error) {
	return d.signer.token(c, token.DefaultAudience, time.Now(), time.Hour)
}

func tokenForAPI(d *demonstration, c authz.Caller) (string, error) {
	return d.signer.token(c, demoIssuer, time.Now(), time.Hour)
}

func expiredToken(d *demonstration, c authz.Caller) (string, error) {
	return d.signer.token(c, token.DefaultAudience, time.Now().Add(-2*time.Hour), time.Hour)
}

func unboundToken(d *demonstration, c authz.Caller) (string, error) {
	return goodToken(d, authz.Caller{ServiceAccount: c.ServiceAccount, ServiceAccountUID: c.ServiceAccountUID})
}

// forgedToken returns a token that names the cluster's key, and is signed with
// another.
func forgedToken(d *demonstration, c authz.Caller) (string, error) {
	other, err := newSigner()
	if err != nil {
		return "", err
	}
	other.kid = d.signer.kid
	return other.token(c, token.DefaultAudience, time.Now(), time.Hour)
}

// show asks every question and prints the answers.
func (d *demonstration) show(ctx context.Context, audit *auditReader, p *printer) error {
	roots := x509.NewCertPool()
	roots.AddCert(d.authority.Root())
	c, err := dial(d.address(), "localhost", roots)
	if err != nil {
		return err
	}
	defer c.close() //nolint:errcheck // every answer is there
	report := &demoReport{AsExpected: true, Problems: []string{}}
	var wrong []error
	for _, q := range questions() {
		a, err := d.answer(ctx, c, audit, q)
		if err != nil {
			wrong = append(wrong, err)
			report.AsExpected, report.Problems = false, append(report.Problems, err.Error())
		}
		report.add(a)
	}
	return errors.Join(append([]error{p.print(report)}, wrong...)...)
}

// A demoReport has all answers.
type demoReport struct {
	Answers    []demoAnswer `json:"answers"`
	Issued     int          `json:"issued"`
	Denied     int          `json:"denied"`
	AsExpected bool         `json:"asExpected"`
	Problems   []string     `json:"problems"` // what was not as expected
}

// A demoAnswer is what one question got.
type demoAnswer struct {
	Pod      string `json:"pod"`      // namespace/name
	Token    string `json:"token"`    // what is special about it; empty for a good one
	Node     string `json:"node"`     //
	Identity string `json:"identity"` // empty for the pod's own
	Issued   bool   `json:"issued"`   //
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail"`
}

func (r *demoReport) add(a demoAnswer) {
	r.Answers = append(r.Answers, a)
	if a.Issued {
		r.Issued++
	} else {
		r.Denied++
	}
}

func (r *demoReport) text(s *sheet) {
	rows := [][]cell{row("WHO ASKS", "ON NODE", "FOR", "ANSWER", "WHY")}
	for _, a := range r.Answers {
		answer, why := cell{"issued", green}, a.Detail
		if !a.Issued {
			answer, why = cell{"DENIED", red}, a.Reason+": "+a.Detail
		}
		rows = append(rows, []cell{{text: a.who()}, {text: a.Node}, {text: orOwn(a.Identity)}, answer, {text: why}})
	}
	s.table(rows)
	if r.AsExpected {
		s.printf("\ndemo: %d issued, %d denied, %s\n", r.Issued, r.Denied, s.paint(green, "all as expected"))
	}
}

func (a *demoAnswer) who() string {
	if a.Token == "" {
		return a.Pod
	}
	return a.Pod + " (" + a.Token + ")"
}

// answer asks a question. The error says that the answer is not the right one.
func (d *demonstration) answer(ctx context.Context, c *client, audit *auditReader, q question) (demoAnswer, error) {
	caller, err := d.objects.caller(q.pod)
	if err != nil {
		return demoAnswer{}, err
	}
	r := demoAnswer{Pod: q.pod, Token: q.note, Node: caller.Node, Identity: q.identity}
	mint := q.token
	if mint == nil {
		mint = goodToken
	}
	text, err := mint(d, caller)
	if err != nil {
		return r, err
	}
	reply, err := c.request(ctx, ask{token: text, identity: q.identity})
	if err != nil {
		return audit.refusal(r, q, err)
	}
	r.Issued = true
	r.Detail = audit.evidence(reply.chain[0].SerialNumber)
	want := q.identity
	if want == "" {
		want = "spiffe://cluster.local/ns/" + caller.ServiceAccount.Namespace + "/sa/" + caller.ServiceAccount.Name
	}
	switch {
	case q.want != "":
		err = fmt.Errorf("%s got a certificate for %q, and must be refused: %s", r.who(), reply.identity(), q.want)
	case reply.identity() != want:
		err = fmt.Errorf("%s got a certificate for %q instead of %q", r.who(), reply.identity(), want)
	default:
		err = reply.verify(time.Now())
	}
	return r, err
}

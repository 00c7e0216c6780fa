// Command ztunnel-emulator asks a certificate authority for certificates as the
// node proxies of one or more nodes do, for a while, and prints what came of it:
// a line of JSON for each fetch, and a last one that sums them up.
//
//	ztunnel-emulator --ca localhost:15012 --root root-cert.pem --token zt-1.token --identities n1.txt --duration 1m
//
// It exits with 0 if at the end every identity has a certificate that its peers
// accept, and none of those that were fetched was not accepted.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ztunnel-emulator:", err)
		os.Exit(1) //nolint:forbidigo // this is the end
	}
}

// A repeated is a flag that may be given several times.
type repeated []string

func (r *repeated) String() string     { return strings.Join(*r, " ") }
func (r *repeated) Set(v string) error { *r = append(*r, v); return nil }

type options struct {
	config     ztunnel.Config
	root       string
	tokens     repeated
	files      repeated
	identities repeated
	duration   time.Duration
	restart    time.Duration
}

func parse(args []string) (*options, error) {
	var o options
	f := flag.NewFlagSet("ztunnel-emulator", flag.ContinueOnError)
	f.StringVar(&o.config.Address, "ca", "localhost:15012", "`host:port` of the certificate authority")
	f.StringVar(&o.root, "root", "", "`file` with the roots of its certificate")
	f.StringVar(&o.config.AltHostname, "server-name", "", "another `name` that may be in its certificate, beside the host in --ca")
	f.StringVar(&o.config.ClusterID, "cluster-id", "Kubernetes", "what is sent as clusterid")
	f.Var(&o.tokens, "token", "`file` with a node's token, and no line end; each one given is a node")
	f.Var(&o.files, "identities", "`file` with an identity in each line: one for all nodes, or one for each, in the order of their tokens")
	f.Var(&o.identities, "identity", "an `identity` for all nodes; may be repeated")
	f.DurationVar(&o.config.TTL, "ttl", 24*time.Hour, "for how long the certificates are asked for")
	f.DurationVar(&o.duration, "duration", 10*time.Second, "how long to go on")
	f.DurationVar(&o.restart, "restart-every", 0, "how often the nodes forget everything and begin anew; 0 is never")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("%q is one word too many", f.Arg(0))
	case o.root == "":
		return nil, errors.New("--root is missing")
	case len(o.tokens) == 0:
		return nil, errors.New("--token is missing")
	case len(o.files) > 1 && len(o.files) != len(o.tokens):
		return nil, fmt.Errorf("%d times --identities for %d nodes", len(o.files), len(o.tokens))
	}
	return &o, nil
}

// nodes returns what is to be emulated.
func (o *options) nodes() ([]*node, error) {
	var err error
	if o.config.Roots, err = os.ReadFile(o.root); err != nil { //nolint:gosec // opening the files that flags name is what it is for
		return nil, fmt.Errorf("reading the roots: %w", err)
	}
	var nodes []*node
	for i, token := range o.tokens {
		n := &node{name: token, config: o.config}
		n.config.TokenFile = token
		lines := o.identities
		if len(o.files) > 0 {
			more, err := readLines(o.files[min(i, len(o.files)-1)])
			if err != nil {
				return nil, fmt.Errorf("reading identities: %w", err)
			}
			lines = append(more, lines...)
		}
		for _, line := range lines {
			id, err := ztunnel.ParseIdentity(line)
			if err != nil {
				return nil, err
			}
			n.identities = append(n.identities, id)
		}
		if len(n.identities) == 0 {
			return nil, errors.New("there are no identities to ask for: give --identities or --identity")
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func readLines(file string) (lines []string, err error) {
	f, err := os.Open(file) //nolint:gosec // opening the files that flags name is what it is for
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was read
	s := bufio.NewScanner(f)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, s.Err()
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	nodes, err := o.nodes()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.duration)
	defer cancel()
	r := newRecord(stdout)
	missing, err := emulate(ctx, nodes, o.restart, r)
	if err != nil {
		return err
	}
	return r.end(missing)
}

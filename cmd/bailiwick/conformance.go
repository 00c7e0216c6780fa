package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"github.com/bailiwick-ca/bailiwick/e2e/conformance"
)

type conformanceFlags struct {
	address, serverName, root, kubeconfig, trustDomain, clusterID, audience, agent, tokenKey, drain, freeze, thaw, run, level, out string

	settle, staleness time.Duration

	slow, list bool
}

// Exit codes of conformance, whose answer is no request's.
const (
	exitViolates     = 1 // a MUST did not hold
	exitUndetermined = 3 // a MUST was not run
)

func newConformance() *cobra.Command {
	var f conformanceFlags
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Judge a certificate authority for node proxies, ours or another",
		Long: `Judge a certificate authority for node proxies: ask it for certificates as
node proxies, workloads and others would, in a cluster in which nodes, accounts
and pods are made for that and removed again, and compare its answers with what
the standards, Istio and Kubernetes require.

The kubeconfig's user must be able to make and remove nodes, namespaces, service
accounts, pods and Secrets, and tokens of service accounts. Use a cluster that
nobody depends on.

Exit codes: 0 every MUST held, 1 one did not, 2 wrong usage, 3 one was not run.`,
		Example: `  bailiwick conformance --address localhost:15012 --server-name istiod.istio-system.svc --root root-cert.pem
  bailiwick conformance --list --level MUST`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "address", "localhost:15012", "`host:port` of the certificate authority")
	flags.StringVar(&f.serverName, "server-name", "", "`name` in its certificate (default: the host in --address)")
	flags.StringVar(&f.root, "root", "", "`file` with the roots of its certificate, such as root-cert.pem")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: as kubectl finds it)")
	flags.StringVar(&f.trustDomain, "trust-domain", "cluster.local", "`name` of the mesh's trust domain")
	flags.StringVar(&f.clusterID, "cluster-id", "Kubernetes", "what clients send as clusterid")
	flags.StringVar(&f.audience, "audience", "istio-ca", "audience of the tokens that it accepts")
	flags.StringVar(&f.agent, "agent", "istio-system/ztunnel", "the node agents' `account` that it knows, as namespace/name")
	flags.StringVar(&f.tokenKey, "token-key", "", "`file` with the key that the API server signs tokens with, to make tokens that nobody else makes")
	flags.StringVar(&f.drain, "drain", "", "shell `command` that drains the authority, and ends once one serves at its address again")
	flags.StringVar(&f.freeze, "freeze", "", "shell `command` that stops the API server from answering, with its connections left open")
	flags.StringVar(&f.thaw, "thaw", "", "shell `command` that has it go on")
	flags.DurationVar(&f.staleness, "staleness", 0, "how old the authority's view of the cluster may be (default: unknown)")
	flags.StringVar(&f.run, "run", "", "only the cases whose number matches this `pattern`, such as token-* or node-0?")
	flags.StringVar(&f.level, "level", "PROFILE", "only the cases of this `level` or above: MUST, SHOULD or PROFILE")
	flags.StringVar(&f.out, "out", "", "`directory` to write conformance.json and conformance.md to")
	flags.DurationVar(&f.settle, "settle", 5*time.Second, "how long it may take to hear of what changed in the cluster")
	flags.BoolVar(&f.slow, "slow", false, "run what takes minutes, too")
	flags.BoolVar(&f.list, "list", false, "print the cases and do nothing")
	return reports(cmd, func(cmd *cobra.Command, p *printer) error {
		cases, err := f.cases()
		if err != nil {
			return err
		}
		if f.list {
			return p.print(caseList{cases})
		}
		progress := cmd.ErrOrStderr()
		if p.format == asJSON {
			progress = io.Discard
		}
		report, err := judge(cmd.Context(), f, cases, progress)
		if report == nil {
			return err
		}
		if err := errors.Join(err, p.print(report), writeReport(report, f.out)); err != nil {
			return err
		}
		return verdict(report.Verdict)
	})
}

// A caseList is what the suite has.
type caseList struct {
	Cases []conformance.Case `json:"cases"`
}

// text implements [report].
func (l caseList) text(s *sheet) {
	rows := [][]cell{row("CASE", "LEVEL", "WHAT MUST BE SO")}
	for _, c := range l.Cases {
		says := c.Says
		if c.Slow {
			says += " (slow)"
		}
		rows = append(rows, row(c.ID, string(c.Level), says))
	}
	s.table(rows)
}

// A conformanceReport is what the suite found.
type conformanceReport struct {
	*conformance.Report

	Verdict conformance.Verdict `json:"verdict"`
}

func (r *conformanceReport) writeJSON(w io.Writer) error {
	return (&printer{w: w, format: asJSON}).print(r)
}

// text implements [report].
func (r *conformanceReport) text(s *sheet) {
	_ = r.WriteTable(s) // a Builder takes everything
	s.printf("%s\n", r.Verdict)
}

// cases returns those that are asked for.
func (f *conformanceFlags) cases() ([]conformance.Case, error) {
	levels := []conformance.Level{conformance.Must, conformance.Should, conformance.Profile}
	least := slices.Index(levels, conformance.Level(strings.ToUpper(f.level)))
	if least < 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("--level is %q, which is none of MUST, SHOULD, PROFILE", f.level)}
	}
	if _, err := path.Match(f.run, ""); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--run is %q: %w", f.run, err)}
	}
	all := slices.DeleteFunc(conformance.Cases(), func(c conformance.Case) bool {
		matches, _ := path.Match(f.run, c.ID)
		return slices.Index(levels, c.Level) > least || f.run != "" && !matches
	})
	if len(all) == 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("no case of level %s matches %q\nsee: bailiwick conformance --list", f.level, f.run)}
	}
	return all, nil
}

// judge runs the cases, and returns what came of them; nil if none was run.
func judge(ctx context.Context, f conformanceFlags, cases []conformance.Case, progress io.Writer) (*conformanceReport, error) {
	target, err := f.target()
	if err != nil {
		return nil, err
	}
	rc, err := userConfig(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := loadConfig("") // the defaults
	if err != nil {
		return nil, err
	}
	k, err := connect(rc, c)
	if err != nil {
		return nil, err
	}
	sign, err := readTokenKey(f.tokenKey)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	results, err := conformance.Run(ctx, conformance.Config{
		Target: *target, World: &clusterWorld{api: k.typed}, Sign: sign, Slow: f.slow, Cases: cases,
		Drain: byShell(f.drain), Freeze: byShell(f.freeze), Thaw: byShell(f.thaw),
		Keys: func(ctx context.Context) ([]byte, error) {
			return k.typed.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").SetHeader("Accept", "application/jwk-set+json").DoRaw(ctx)
		},
		Ended: func(r conformance.Result) {
			fmt.Fprintf(progress, "%-14s %-8s %6.2f s  %s\n", r.ID, r.Outcome, r.Took.Seconds(), r.Says) //nolint:errcheck // progress
		},
	})
	if err != nil {
		err = &exitError{exitUndetermined, fmt.Errorf("the suite did not run to its end: %w", err)}
		if len(results) == 0 {
			return nil, err
		}
	}
	report := &conformance.Report{Suite: version(), Kubernetes: kubernetesVersion(k.typed.Discovery()), Address: f.address, Began: began, Results: results}
	return &conformanceReport{report, report.Verdict()}, err
}

// byShell returns what runs the user's command, or nil if there is none.
func byShell(command string) func(context.Context) error {
	if command == "" {
		return nil
	}
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // the user's own command
		cmd.WaitDelay = time.Second                          // what it left behind may hold its output open
		out, err := cmd.CombinedOutput()
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("running %q: %w\n%s", command, err, out)
		}
		return nil
	}
}

func verdict(v conformance.Verdict) error {
	switch v {
	case conformance.Conforms:
		return nil
	case conformance.Violates:
		return &exitError{exitViolates, errors.New("it does not conform: a MUST does not hold, see above")}
	default:
		return &exitError{exitUndetermined, errors.New("undetermined: a MUST was not run, see above")}
	}
}

func (f *conformanceFlags) target() (*conformance.Target, error) {
	if err := checkAddress(f.address); err != nil {
		return nil, err
	}
	namespace, name, ok := strings.Cut(f.agent, "/")
	if !ok || !isPodName(f.agent) {
		return nil, &exitError{exitUsage, fmt.Errorf("--agent is %q, which is not a service account written as namespace/name", f.agent)}
	}
	if _, err := readRoots(f.root); err != nil {
		return nil, err
	}
	roots, err := certificatesIn(f.root)
	if err != nil {
		return nil, err
	}
	return &conformance.Target{
		Address: f.address, ServerName: f.serverName, Roots: roots,
		TrustDomain: f.trustDomain, ClusterID: f.clusterID, Audience: f.audience,
		NodeAgentNamespace: namespace, NodeAgentName: name, Settle: f.settle, Staleness: f.staleness,
	}, nil
}

func certificatesIn(file string) (all []*x509.Certificate, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the roots: %w", err)
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading the roots in %s: %w", file, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func kubernetesVersion(d discovery.DiscoveryInterface) string {
	v, err := d.ServerVersion()
	if err != nil {
		return "unknown"
	}
	return v.GitVersion
}

// writeReport writes the report into the directory, if one is named.
func writeReport(r *conformanceReport, dir string) error {
	if dir == "" {
		return nil
	}
	for name, write := range map[string]func(io.Writer) error{"conformance.json": r.writeJSON, "conformance.md": r.WriteMarkdown} {
		var b strings.Builder
		if err := write(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	return nil
}

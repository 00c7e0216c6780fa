package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type requestFlags struct {
	address, serverName, root, token, identity, out string
	life, timeout                                   time.Duration
}

func newRequest() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:   "request",
		Short: "Ask for a certificate, as a node proxy does",
		Long: `Ask for a certificate, as a node proxy does: make a key and a CSR, present a
token, and print what came back.

Exit codes: 0 issued, 1 failed, 2 wrong usage, 3 refused, 4 cannot tell now.`,
		Example: `  kubectl -n istio-system create token ztunnel --audience istio-ca \
    --bound-object-kind Pod --bound-object-name ztunnel-abcde >token
  bailiwick request --address localhost:15012 --server-name bailiwick.istio-system.svc \
    --root root-cert.pem --token token --identity spiffe://cluster.local/ns/shop/sa/cart`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.address, "address", "localhost:15012", "`host:port` of the certificate authority")
	flags.StringVar(&f.serverName, "server-name", "", "`name` in its certificate (default: the host in --address)")
	flags.StringVar(&f.root, "root", "", "`file` with the roots of its certificate, such as root-cert.pem")
	flags.StringVar(&f.token, "token", "", "`file` with the service account token to present")
	flags.StringVar(&f.identity, "identity", "", "the SPIFFE `ID` to ask for (default: the token's own)")
	flags.StringVar(&f.out, "out", "", "`directory` to write key.pem, cert-chain.pem and root-cert.pem to")
	flags.DurationVar(&f.life, "life", 0, "how long the certificate should live, in whole seconds, such as 1h (default: what the server gives)")
	flags.DurationVar(&f.timeout, "timeout", 15*time.Second, "how long to wait for an answer")
	return reports(cmd, func(cmd *cobra.Command, p *printer) error {
		if err := checkLife(f.life); err != nil && cmd.Flags().Changed("life") {
			return err
		}
		if f.timeout <= 0 {
			return &exitError{exitUsage, fmt.Errorf("--timeout is %v, which is not more than 0; for %s, leave it out", f.timeout, cmd.Flag("timeout").DefValue)}
		}
		if err := checkAddress(f.address); err != nil {
			return err
		}
		return request(cmd.Context(), f, p)
	})
}

func request(ctx context.Context, f requestFlags, p *printer) error {
	roots, err := readRoots(f.root)
	if err != nil {
		return err
	}
	token, err := readToken(f.token)
	if err != nil {
		return err
	}
	c, err := dial(f.address, f.serverName, roots)
	if err != nil {
		return err
	}
	defer c.close() //nolint:errcheck // the answer is there
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	r, err := c.request(ctx, ask{token: token, identity: f.identity, life: f.life})
	if err != nil {
		return &exitError{exitCode(err), fmt.Errorf("no certificate: %w%s", &answerError{err}, requestHint(err, f))}
	}
	if err := r.verify(time.Now()); err != nil {
		return fmt.Errorf("the certificate does not verify: %w", err)
	}
	report := r.report()
	if f.out != "" {
		if report.Files, err = r.write(f.out); err != nil {
			return err
		}
	}
	return p.print(report)
}

// An answerError says what a certificate authority answered, in fewer words than
// gRPC's.
type answerError struct{ err error }

func (e *answerError) Error() string {
	if s, ok := status.FromError(e.err); ok {
		return fmt.Sprintf("%v: %s", s.Code(), printable(s.Message()))
	}
	return e.err.Error()
}

func (e *answerError) Unwrap() error { return e.err }

// checkLife refuses a life that would not reach the server as it was meant: it
// goes there as a number of seconds, and 0 asks for the default.
func checkLife(life time.Duration) error {
	if life >= time.Second && life%time.Second == 0 {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("--life is %v, which is not a number of whole seconds, one or more; for what the server gives, leave it out", life)}
}

// checkAddress refuses what is not a host, a colon and a port, such as a URL.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err == nil && host != "" {
		if _, err = strconv.ParseUint(port, 10, 16); err == nil {
			return nil
		}
	}
	return &exitError{exitUsage, fmt.Errorf("--address is %q, which is not host:port, such as localhost:15012; there is no scheme in it and no path", address)}
}

func readRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, &exitError{exitUsage, errors.New("--root names no file; without the roots of its certificate the server cannot be trusted\n" + howToGetRoots)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the roots: %w\n%s", err, howToGetRoots)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("--root %s has no PEM certificate in it\n%s", path, howToGetRoots)
	}
	return pool, nil
}

func readToken(path string) (string, error) {
	if path == "" {
		return "", &exitError{exitUsage, errors.New("--token names no file\n" + howToGetToken)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w\n%s", err, howToGetToken)
	}
	token := strings.TrimSpace(string(data))
	if strings.Count(token, ".") != 2 || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("--token %s does not hold a token, which is one word of three parts with dots between them\n%s", path, howToGetToken)
	}
	return token, nil
}

// requestHint says what to do about an answer.
func requestHint(err error, f requestFlags) string {
	audit := ""
	if id := failureOf(err).Error.RequestID; id != "" {
		audit = "\nthe server's audit line has the reason: kubectl -n istio-system logs -l app=bailiwick --tail=-1 | grep " + shellWord(id)
	}
	identity := "ID"
	if f.identity != "" {
		identity = shellWord(f.identity)
	}
	switch status.Code(err) {
	case codes.PermissionDenied:
		return audit + "\nask why, with the server's configuration file: bailiwick explain --config FILE --node NODE --identity " + identity
	case codes.Unauthenticated:
		return audit + fmt.Sprintf("\nthe token in %s was not accepted: audience, expiry, issuer, or its pod is gone", f.token)
	case codes.InvalidArgument:
		return audit + "\nthe request makes no sense to the server: its CSR, key, life or metadata; docs/troubleshooting.md says what the reason means\nwith --life, compare minLeafLife in the server's configuration"
	case codes.ResourceExhausted:
		return audit + "\nthe server has too many requests, of this node or in all, or this one is too large; ask again in some seconds, then see overloaded in docs/troubleshooting.md"
	case codes.DeadlineExceeded:
		return fmt.Sprintf("\nno answer came within --timeout, %v; check that nothing between here and --address %s drops connections, then its /readyz, or wait longer", f.timeout, f.address)
	case codes.Unavailable:
		return audit + unavailableHint(err.Error(), f, audit != "")
	default:
		return audit
	}
}

// unavailableHint says what to do about a server that answered that it cannot
// tell, or did not answer. The causes of the latter are text, since gRPC keeps
// nothing else of them.
func unavailableHint(text string, f requestFlags, answered bool) string {
	switch {
	case answered:
		return "\nthe server cannot tell now; its /readyz says more, or its log"
	case strings.Contains(text, "unknown authority"):
		return fmt.Sprintf("\n--root %s does not have the root of the server's certificate\n%s", f.root, howToGetRoots)
	case strings.Contains(text, "not yet valid"):
		return "\nthe clock here and that of the server do not agree: compare date -u on both"
	case strings.Contains(text, "certificate is valid for"):
		return "\nname one of these with --server-name, or add the other one to servingNames in the server's configuration"
	}
	return "\nthe server cannot be reached, is not trusted, or cannot tell now; check --address, --root and --server-name, then its /readyz"
}

// How to get what --root and --token name.
const (
	howToGetRoots = `in a cluster: kubectl -n istio-system get configmap istio-ca-root-cert -o jsonpath='{.data.root-cert\.pem}' >root-cert.pem`
	howToGetToken = `make one with: kubectl -n NAMESPACE create token ACCOUNT --audience istio-ca --bound-object-kind Pod --bound-object-name POD >token`
)

// A requestReport is what is known of a certificate: no key, and no token.
type requestReport struct {
	Identity     string            `json:"identity"`
	Certificates []certificateInfo `json:"certificates"` // leaf first, then the issuers, then the roots
	Files        []string          `json:"files"`        // that were written
}

type certificateInfo struct {
	Kind      string    `json:"kind"` // leaf, issuer or root
	Name      string    `json:"name"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Serial    string    `json:"serial"` // in hexadecimal
}

func (r *reply) report() *requestReport {
	report := &requestReport{Identity: r.identity(), Files: []string{}}
	add := func(kind, name string, cert *x509.Certificate) {
		report.Certificates = append(report.Certificates, certificateInfo{
			kind, name, cert.NotBefore.UTC(), cert.NotAfter.UTC(), fmt.Sprintf("%x", cert.SerialNumber),
		})
	}
	add("leaf", r.identity(), r.chain[0])
	for _, cert := range r.chain[1:] {
		add("issuer", cert.Subject.String(), cert)
	}
	for _, cert := range r.roots {
		add("root", cert.Subject.String(), cert)
	}
	return report
}

func (r *requestReport) text(s *sheet) {
	rows := [][]cell{row("", "NAME", "NOT BEFORE", "NOT AFTER", "SERIAL")}
	for _, c := range r.Certificates {
		rows = append(rows, row(c.Kind, c.Name, c.NotBefore.Format(time.RFC3339), c.NotAfter.Format(time.RFC3339), c.Serial))
	}
	s.table(rows)
	if len(r.Files) > 0 {
		s.printf("\nwritten: %s\n", strings.Join(r.Files, " "))
	}
}

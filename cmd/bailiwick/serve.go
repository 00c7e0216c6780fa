package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// serveFlags say where things are.
type serveFlags struct {
	config, material, kubeconfig, listen, http string
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve certificates",
		Long: `Serve certificates over gRPC, as Istio's CSR endpoint does.

The audit record goes to standard output, one JSON line for each certificate
and each refusal; everything else goes to standard error.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration `file` (default: all defaults)")
	flags.StringVar(&f.material, "material", "", "`directory` with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the credentials of the pod)")
	flags.StringVar(&f.listen, "listen", ":15012", "`address` for certificate requests")
	flags.StringVar(&f.http, "http", ":15014", "`address` for /healthz, /readyz and /metrics")
	return cmd
}

func serve(ctx context.Context, f serveFlags, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewJSONHandler(stderr, nil))
	klog.SetSlogLogger(log)
	c, err := loadConfig(f.config)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	for _, w := range c.warnings() {
		log.Warn("configuration", slog.String("warning", w))
	}
	authority, warnings, err := loadAuthority(time.Now(), f.material, c, kubectl(f.kubeconfig))
	if err != nil {
		return err
	}
	for _, w := range warnings {
		log.Warn("key material", slog.String("warning", w))
	}
	rc, err := serverConfig(f.kubeconfig)
	if err != nil {
		return err
	}
	k, err := connect(rc, c)
	if err != nil {
		return err
	}
	k.kubectl = kubectl(f.kubeconfig)
	listeners, err := listenBoth(f.listen, f.http)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	cl, err := newCluster(ctx, c, k, log)
	if err != nil {
		return err
	}
	policy := c.policy(cl.inventory, k.ownAccount(log), time.Now)
	s, err := newService(parts{
		config: c, policy: policy, authenticate: cl.tokens.Verify, authority: authority,
		audit: slog.NewJSONHandler(stdout, nil), log: log, metrics: registry, listener: listeners[0], now: time.Now,
		ready: func() error { return notReady(cl, authority, time.Now()) },
	})
	if err != nil {
		return err
	}
	watching := observer{config: c, cluster: cl, service: s, authority: func() *ca.Authority { return authority }, now: time.Now}
	if err := watching.register(registry); err != nil {
		return err
	}
	log.Info("serving", slog.String("address", listeners[0].Addr().String()), slog.String("http", listeners[1].Addr().String()),
		slog.String("trustDomain", c.TrustDomain), slog.Any("nodeAgents", c.NodeAgents), slog.String("issuer", ca.Describe(authority.Issuer())))
	watch := func(ctx context.Context) error { return cl.run(ctx, policy.NodeAgents) }
	return runAll(ctx, watch, s, func(ctx context.Context) error {
		return serveHTTP(ctx, listeners[1], newAdmin(s.front.Ready, registry))
	})
}

// runAll runs everything until ctx is done, or one part fails. What the service
// needs stops only after it.
func runAll(ctx context.Context, watch func(context.Context) error, s *service, admin func(context.Context) error) error {
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(below)
	group.Go(func() error { return watch(failed) })
	group.Go(func() error { return admin(failed) })
	group.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(failed)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return s.run(serving)
	})
	return group.Wait()
}

// listenBoth listens for certificate requests, and for what is about them.
func listenBoth(grpc, http string) ([2]net.Listener, error) {
	first, err := listen("--listen", grpc)
	if err != nil {
		return [2]net.Listener{}, err
	}
	second, err := listen("--http", http)
	if err != nil {
		return [2]net.Listener{}, errors.Join(err, first.Close())
	}
	return [2]net.Listener{first, second}, nil
}

// listen listens on the address that a flag has.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	next := "name an address of this machine, such as 127.0.0.1:15012, with " + flag
	if _, port, ok := net.SplitHostPort(address); ok == nil && errors.Is(err, syscall.EADDRINUSE) {
		next = fmt.Sprintf("see what has the port: ss -ltnp 'sport = :%s'; end that, or name another address with %s", port, flag)
	}
	return nil, fmt.Errorf("%s %s: %w\n%s", flag, address, err, next)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// newAdmin returns the handler of the other port: liveness, readiness and
// metrics. None of them makes an API call or waits for a request.
func newAdmin(ready func() error, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok") //nolint:errcheck // the prober has gone
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok") //nolint:errcheck // the prober has gone
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// The bounds of the other port. Whoever reaches it costs us no more, and what we
// serve there is small: a client that is slower is not one that works. At
// adminConnections the next one waits, a kubelet's too.
const (
	adminReadTimeout  = 5 * time.Second // for a header and its body
	adminWriteTimeout = 30 * time.Second
	adminIdleTimeout  = time.Minute
	adminHeaderBytes  = 16 << 10 // to which net/http adds 4 KiB
	adminConnections  = 256
)

// serveHTTP serves h on l until ctx is done.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadTimeout: adminReadTimeout, WriteTimeout: adminWriteTimeout, IdleTimeout: adminIdleTimeout, MaxHeaderBytes: adminHeaderBytes,
	}
	stop := context.AfterFunc(ctx, func() {
		s.Close() //nolint:errcheck // it is going away
	})
	defer stop()
	if err := s.Serve(netutil.LimitListener(l, adminConnections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving health and metrics: %w", err)
	}
	return nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWarnOfMissing has the demonstration's cluster, and configured accounts of
// which one may have been meant (threat T30).
func TestWarnOfMissing(t *testing.T) {
	cl := clusterOf(t, newFakeAPI(t, mustSigner(t)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cl.inventory.Run(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		if cl.inventory.Synced() {
			break
		}
		<-tick.C
	}
	for _, tt := range []struct {
		agents []string
		want   []string // in the log, a line each
	}{
		{[]string{"istio-system/ztunnel"}, nil},
		{[]string{"istio-system/ztunnel", "shop/cart"}, nil},
		{[]string{"istio-system/ztunel"}, []string{"does not exist\" account=istio-system/ztunel alike=[istio-system/ztunnel]"}},
		{[]string{"kube-system/ztunnel", "mesh/cart"}, []string{"account=kube-system/ztunnel alike=[istio-system/ztunnel]", `account=mesh/cart alike="[istio-system/ztunnel shop/cart]"`}},
		{[]string{"shop/report"}, []string{"under which no live pod runs\" account=shop/report"}},
		{nil, nil},
	} {
		var log bytes.Buffer
		cl.log = slog.New(slog.NewTextHandler(&log, nil))
		agents, err := parseAccounts(tt.agents)
		if err != nil {
			t.Fatal(err)
		}
		cl.warnOfMissing(ctx, agents)
		if n := strings.Count(log.String(), "\n"); n != len(tt.want) {
			t.Errorf("%q: %d lines:\n%s", tt.agents, n, log.String())
		}
		for _, want := range tt.want {
			if !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "kubectl get pods -A") {
				t.Errorf("%q: %q is not in\n%s", tt.agents, want, log.String())
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMostConfirming(t *testing.T) {
	for inFlight, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 255: 127, 256: 128, 258: 128, 4096: 128} {
		if got := mostConfirming(inFlight); got != want {
			t.Errorf("%d of %d requests in flight may wait for facts, want %d", got, inFlight, want)
		}
	}
}

// TestUnavailableHints wants another advice for each cause that a client can
// tell.
func TestUnavailableHints(t *testing.T) {
	f := requestFlags{address: "ca.example:15012", root: "roots.pem"}
	for _, tt := range []struct {
		text     string
		answered bool
		want     string
	}{
		{"x509: certificate signed by unknown authority", false, "--root roots.pem does not have the root"},
		{"x509: certificate has expired or is not yet valid", false, "compare date -u"},
		{"x509: certificate is valid for a, not b", false, "--server-name"},
		{"connection refused", false, "check --address, --root and --server-name"},
		{"cannot tell now, try again", true, "its /readyz says more"},
	} {
		if got := unavailableHint(tt.text, f, tt.answered); !strings.HasPrefix(got, "\n") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q", tt.text, got)
		}
	}
}

func TestKubeHints(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for want, err := range map[string]error{
		"--objects FILE, made with: kubectl get":                 apierrors.NewForbidden(pods, "", errors.New("no")),
		"see what there is with: kubectl --kubeconfig 'a b' get": apierrors.NewNotFound(pods, "x"),
		"kubectl --kubeconfig 'a b' auth whoami":                 apierrors.NewUnauthorized("no"),
		"kubectl --kubeconfig 'a b' cluster-info":                errors.New("connection refused"),
	} {
		if got := kubeHint(err, kubectl("a b")); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	if got := kubectl(""); got != "kubectl" {
		t.Errorf("without a file it is %q", got)
	}
}

// TestNotReadyNamesTheCause has a list that is forbidden.
func TestNotReadyNamesTheCause(t *testing.T) {
	api := newFakeAPI(t, mustSigner(t))
	api.forbidden = map[string]bool{"list nodes": true}
	cl := clusterOf(t, api)
	authority, err := selfMade(time.Now(), defaultConfig().profile())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cl.inventory.Run(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	const want = "not-synced: nodes have not been listed yet: nodes is forbidden"
	var said error
	for range 10_000 {
		if said = notReady(cl, authority, time.Now()); said != nil && strings.HasPrefix(said.Error(), want) {
			break
		}
		<-tick.C
	}
	if said == nil || !strings.HasPrefix(said.Error(), want) {
		t.Errorf("notReady = %v", said)
	}
	if _, err := cl.inventory.Look(time.Now(), authz.Query{}); err == nil || !strings.Contains(err.Error(), "(not-synced): nodes have not been listed yet: nodes is forbidden") {
		t.Errorf("Look = %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

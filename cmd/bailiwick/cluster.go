package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/k8s/inventory"
	"github.com/bailiwick-ca/bailiwick/k8s/token"
	"golang.org/x/sync/errgroup"
)

// The budgets of live reads and of token reviews, in calls per second and at
// once. They bound what clients can make us do to the API server, and must have
// room, both together, in kubernetesQPS and kubernetesBurst.
const (
	liveRate    = 200
	liveBurst   = 400
	reviewRate  = 100
	reviewBurst = 600
)

// A cluster is what we know of a live one.
type cluster struct {
	inventory *inventory.Inventory
	tokens    *token.Verifier
	log       *slog.Logger
	kubectl   string // how to ask the same cluster
}

func newCluster(ctx context.Context, c *Config, k *kube, log *slog.Logger) (*cluster, error) {
	inv, err := inventory.New(inventory.Config{
		Client: k.typed, Metadata: k.metadata,
		MaxConfirming: mostConfirming(c.Limits.InFlight),
		Hold:          time.Duration(c.Hold), MaxStaleness: time.Duration(c.MaxStaleness), ProbeEvery: time.Duration(c.ProbeEvery),
		LiveRequests: liveRate, LiveBurst: liveBurst,
		Logger: log, Now: time.Now,
	})
	if err != nil {
		return nil, err
	}
	issuers, err := k.issuers(ctx, c.Issuers, log)
	if err != nil {
		return nil, err
	}
	config := token.Config{
		Issuers: issuers, Audiences: c.Audiences, ClusterID: c.ClusterID, AllowUnbound: c.AllowUnboundTokens,
		FetchKeys: token.KeysFrom(k.typed.Discovery().RESTClient()), Log: log,
		ReviewRate: reviewRate, ReviewBurst: reviewBurst,
	}
	if c.TokenReview == reviewUnknownKey {
		config.Review = token.ReviewsFrom(k.typed.AuthenticationV1())
	}
	tokens, err := token.New(config)
	if err != nil {
		return nil, err
	}
	return &cluster{inventory: inv, tokens: tokens, log: log, kubectl: k.kubectl}, nil
}

// mostConfirming is how many of the requests in flight may wait for facts: never
// all, unless there is only one.
func mostConfirming(inFlight int) int { return max(1, min(128, inFlight/2)) }

// run keeps what we know up to date until ctx is done.
func (cl *cluster) run(ctx context.Context, agents []authz.ServiceAccount) error {
	var group errgroup.Group
	group.Go(func() error { cl.tokens.Run(ctx); return nil })
	group.Go(func() error { cl.warnOfMissing(ctx, agents); return nil })
	group.Go(func() error { return cl.inventory.Run(ctx) })
	return group.Wait()
}

// warnOfMissing says, once the cluster is known, which node agents' accounts do
// not exist, or have no pod: most likely they are misspelt, and every ztunnel
// will be refused (threat T30).
func (cl *cluster) warnOfMissing(ctx context.Context, agents []authz.ServiceAccount) {
	for !cl.inventory.Synced() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	now := time.Now()
	live := cl.inventory.LivePods(now)
	for _, sa := range agents {
		facts, err := cl.inventory.Look(now, authz.Query{Target: sa})
		if err != nil {
			return // too old already, which is told elsewhere
		}
		log := cl.log.With(slog.String("account", sa.String()), slog.Any("alike", alike(sa, live)))
		next := "compare nodeAgents in the configuration with: " + cl.kubectl + " get pods -A -o custom-columns=NAMESPACE:.metadata.namespace,ACCOUNT:.spec.serviceAccountName,POD:.metadata.name | grep ztunnel"
		switch {
		case !facts.TargetAccount.Exists(now):
			log.Warn("nodeAgents names a service account that does not exist", slog.String("next", next))
		case live[sa] == 0:
			log.Warn("nodeAgents names a service account under which no live pod runs", slog.String("next", next))
		}
	}
}

// alike returns the accounts with live pods that may be meant instead of sa: of
// the same name, or of ztunnel's.
func alike(sa authz.ServiceAccount, live map[authz.ServiceAccount]int) []string {
	names := []string{}
	for other := range live {
		if other != sa && (other.Name == sa.Name || other.Name == "ztunnel") {
			names = append(names, other.String())
		}
	}
	slices.Sort(names)
	return names
}

// notReady returns why clients should not be sent here: before the cluster has
// been seen, and while the authority would refuse to sign. A view that has become
// too old is no reason; such a replica says that it cannot tell.
func notReady(cl *cluster, authority *ca.Authority, now time.Time) error {
	if err := authority.Usable(now); err != nil {
		return err
	}
	for _, s := range cl.inventory.Status() {
		switch {
		case !s.Synced && s.Err != nil:
			return fmt.Errorf("%s: %s have not been listed yet: %w", authz.NotSynced, s.Resource, s.Err)
		case !s.Synced:
			return fmt.Errorf("%s: %s have not been listed yet", authz.NotSynced, s.Resource)
		}
	}
	return cl.tokens.Ready()
}

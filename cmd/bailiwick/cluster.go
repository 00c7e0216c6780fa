package main

import (
	"context"
	"fmt"
	"log/slog"
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
}

func newCluster(ctx context.Context, c *Config, k *kube, log *slog.Logger) (*cluster, error) {
	inv, err := inventory.New(inventory.Config{
		Client: k.typed, Metadata: k.metadata,
		MaxConfirming: max(1, min(128, c.Limits.InFlight/2)), // never all that may be in flight
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
	return &cluster{inventory: inv, tokens: tokens, log: log}, nil
}

// run keeps what we know up to date until ctx is done.
func (cl *cluster) run(ctx context.Context, agents []authz.ServiceAccount) error {
	var group errgroup.Group
	group.Go(func() error { cl.tokens.Run(ctx); return nil })
	group.Go(func() error { cl.warnOfMissing(ctx, agents); return nil })
	group.Go(func() error { return cl.inventory.Run(ctx) })
	return group.Wait()
}

// warnOfMissing says, once the cluster is known, which node agents' accounts do
// not exist: most likely they are misspelt, and every ztunnel will be refused.
func (cl *cluster) warnOfMissing(ctx context.Context, agents []authz.ServiceAccount) {
	for !cl.inventory.Synced() {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return
		}
	}
	for _, sa := range agents {
		now := time.Now()
		facts, err := cl.inventory.Look(now, authz.Query{Target: sa})
		if err == nil && !facts.TargetAccount.Exists(now) {
			cl.log.Warn("nodeAgents names a service account that does not exist", slog.String("account", sa.String()),
				slog.String("next", "kubectl get serviceaccounts -A | grep ztunnel"))
		}
	}
}

// notReady returns why clients should not be sent here: before the cluster has
// been seen, and while the authority would refuse to sign. A view that has become
// too old is no reason; such a replica says that it cannot tell.
func notReady(cl *cluster, authority *ca.Authority, now time.Time) error {
	if err := authority.Usable(now); err != nil {
		return err
	}
	if !cl.inventory.Synced() {
		return fmt.Errorf("%s: the cluster has not been listed yet", authz.NotSynced)
	}
	return cl.tokens.Ready()
}

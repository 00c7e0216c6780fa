package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/ztunnel"
)

// A node is one emulated node proxy.
type node struct {
	name       string // the file of its token
	config     ztunnel.Config
	identities []ztunnel.Identity
}

// emulate runs all nodes until the context is done, and returns how many
// identities have no good certificate at the end.
func emulate(ctx context.Context, nodes []*node, restart time.Duration, r *record) (missing int, err error) {
	var running sync.WaitGroup
	var mu sync.Mutex
	for _, n := range nodes {
		running.Go(func() {
			m, e := n.emulate(ctx, restart, r)
			mu.Lock()
			defer mu.Unlock()
			missing, err = missing+m, errors.Join(err, e)
		})
	}
	running.Wait()
	return missing, err
}

// emulate runs a node, and begins anew after each restart. The last life is not
// shorter than the others, so that what is missing at the end is not only late.
func (n *node) emulate(ctx context.Context, restart time.Duration, r *record) (missing int, err error) {
	for ctx.Err() == nil {
		life, end := ctx, func() {}
		if restart > 0 && left(ctx) >= 2*restart {
			life, end = context.WithTimeout(ctx, restart)
		}
		missing, err = n.live(life, r)
		end()
		if err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// left is how much time a context has.
func left(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline)
}

// live runs a node from its start to its end.
func (n *node) live(ctx context.Context, r *record) (missing int, err error) {
	client, err := ztunnel.NewClient(n.config)
	if err != nil {
		return 0, err
	}
	m := ztunnel.NewManager(client.Fetch, func(e ztunnel.Event) { r.add(n.name, e) })
	p := ztunnel.NewPrefetcher(m)
	for _, id := range n.identities {
		p.Prefetch(id)
	}
	if d := p.Dropped(); d > 0 {
		r.drop(d)
	}
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	running.Go(func() { p.Run(ctx) })
	running.Wait()
	have := m.Dump()
	for _, id := range n.identities {
		if c := have[id].Certificate; c == nil || c.Verify(c.Roots, time.Now()) != nil { //nolint:forbidigo // this is the end
			missing++
		}
	}
	return missing, client.Close()
}

package ztunnel

import (
	"context"
	"sync"
	"sync/atomic"
)

// backlog is how many workloads may wait for the prefetcher.
const backlog = 256

// A Prefetcher has certificates fetched before anybody needs them, one at a
// time: it waits for each before it turns to the next, and forgets in the same
// order. What it has no room for is dropped.
type Prefetcher struct {
	manager *Manager
	orders  chan order
	dropped atomic.Int64
}

type order struct {
	id     Identity
	forget bool
}

// NewPrefetcher returns a prefetcher, which does nothing until it runs.
func NewPrefetcher(m *Manager) *Prefetcher {
	return &Prefetcher{manager: m, orders: make(chan order, backlog)}
}

// Prefetch asks for an identity, without waiting.
func (p *Prefetcher) Prefetch(id Identity) { p.send(order{id: id}) }

// Forget asks for an identity to be forgotten, without waiting.
func (p *Prefetcher) Forget(id Identity) { p.send(order{id, true}) }

// Dropped returns how many of both there was no room for.
func (p *Prefetcher) Dropped() int { return int(p.dropped.Load()) }

func (p *Prefetcher) send(o order) {
	select {
	case p.orders <- o:
	default:
		p.dropped.Add(1)
	}
}

// Run works until the context is done.
func (p *Prefetcher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-p.orders:
			if o.forget {
				p.manager.Forget(o.id)
				continue
			}
			_, _ = p.manager.Get(ctx, o.id, Warmup) // what came of it is for others to find out
		}
	}
}

// A Workload is what the control plane says of one.
type Workload struct {
	UID      string
	Identity Identity
	Node     string
	Tunnel   bool // HBONE, or native: not so on the host's network or outside the mesh
}

// A Node is what a ztunnel knows of the workloads, and does about those on its
// own node.
type Node struct {
	name       string
	prefetcher *Prefetcher

	mu        sync.Mutex
	workloads map[string]Workload
}

// NewNode returns a node with no workloads.
func NewNode(name string, p *Prefetcher) *Node {
	return &Node{name: name, prefetcher: p, workloads: map[string]Workload{}}
}

// Set adds a workload, or changes what is known of it. It forgets nothing, also
// if the workload has another identity now.
func (n *Node) Set(w Workload) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workloads[w.UID] = w
	if w.Node == n.name && w.Tunnel {
		n.prefetcher.Prefetch(w.Identity)
	}
}

// Remove removes a workload. If no other on the node has its namespace and
// service account, be it in the mesh or not and of whatever trust domain, its
// identity is forgotten.
func (n *Node) Remove(uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	gone, ok := n.workloads[uid]
	delete(n.workloads, uid)
	if !ok || gone.Node != n.name {
		return
	}
	for _, w := range n.workloads {
		if w.Node == n.name && w.Identity.Namespace == gone.Identity.Namespace && w.Identity.ServiceAccount == gone.Identity.ServiceAccount {
			return
		}
	}
	n.prefetcher.Forget(gone.Identity)
}

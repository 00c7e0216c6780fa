// Package ztunnel behaves towards a certificate authority as Istio's node proxy,
// ztunnel, does: how it connects and asks, what it looks at in a reply and what
// it does not, in which order it fetches, how it waits after an error, when it
// renews and what it forgets. It judges certificates as the proxies at the other
// end of a connection do.
//
//	client, err := ztunnel.NewClient(config)
//	manager := ztunnel.NewManager(client.Fetch, observe)
//	prefetcher := ztunnel.NewPrefetcher(manager)
//	go manager.Run(ctx)
//	go prefetcher.Run(ctx)
//
// It does what the real one does even where another client would do better, and
// shares nothing with our authority but the generated messages. It carries no
// traffic and hears of workloads from its caller.
package ztunnel

import (
	"fmt"
	"strings"
	"time"
)

// An Identity is what a workload's certificate is for. It is not always one that
// an authority should know: ztunnel takes apart what its control plane tells it
// and looks no closer.
type Identity struct {
	TrustDomain, Namespace, ServiceAccount string
}

// String returns the identity's SPIFFE ID.
func (i Identity) String() string {
	return "spiffe://" + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// ParseIdentity takes a SPIFFE ID apart at its slashes. Parts may be empty, and
// have any characters.
func ParseIdentity(text string) (Identity, error) {
	rest, ok := strings.CutPrefix(text, "spiffe://")
	part := strings.Split(rest, "/")
	if !ok || len(part) != 5 || part[1] != "ns" || part[3] != "sa" {
		return Identity{}, fmt.Errorf("%q is not spiffe://DOMAIN/ns/NAMESPACE/sa/ACCOUNT", text)
	}
	return Identity{part[0], part[2], part[4]}, nil
}

// now is the time of a client, which has to live in its own.
func now() time.Time { return time.Now() } //nolint:forbidigo // tests put it in a bubble of fake time

package main

import (
	"net/netip"
	"slices"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/bailiwick-ca/bailiwick/ca/server"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// What follows turns a configuration, which must be valid, into what the parts
// of the server take.

// profile returns what certificates may be.
func (c *Config) profile() ca.Profile {
	return ca.Profile{
		TrustDomain:  c.trustDomain(),
		MaxLeafLife:  time.Duration(c.MaxLeafLife),
		MinLeafLife:  time.Duration(c.MinLeafLife),
		AllowEd25519: c.AllowEd25519,
	}
}

func (c *Config) trustDomain() spiffeid.TrustDomain {
	td, _ := spiffeid.TrustDomainFromString(c.TrustDomain) // validated
	return td
}

func (c *Config) servingNames() ca.ServingNames {
	var names ca.ServingNames
	for _, name := range c.ServingNames {
		if ip, err := netip.ParseAddr(name); err == nil {
			names.IPs = append(names.IPs, ip)
		} else {
			names.DNS = append(names.DNS, name)
		}
	}
	return names
}

// limits returns the limits of requests. What is not configurable is zero there,
// and has its default.
func (c *Config) limits() server.Limits {
	return server.Limits{
		Deadline:           time.Duration(c.Limits.Deadline),
		InFlight:           c.Limits.InFlight,
		InFlightPerNode:    c.Limits.InFlightPerNode,
		QueuePerNode:       c.Limits.QueuePerNode,
		QueueWait:          time.Duration(c.Limits.QueueWait),
		Connections:        c.Limits.Connections,
		ConnectionsPerHost: c.Limits.ConnectionsPerHost,
		ConnectionAge:      time.Duration(c.Limits.ConnectionAge),
		DrainDelay:         time.Duration(c.Limits.DrainDelay),
		DrainTimeout:       time.Duration(c.Limits.DrainTimeout),
	}
}

// policy returns the node rule. Own is the server's own account, or zero; it is
// protected whatever the configuration says, because a server knows its account
// and whoever wrote the configuration may not have.
func (c *Config) policy(inv authz.Inventory, own authz.ServiceAccount, now func() time.Time) *authz.Policy {
	agents, _ := parseAccounts(c.NodeAgents)   // validated
	protected, _ := parseAccounts(c.Protected) // validated
	if own != (authz.ServiceAccount{}) && !slices.Contains(protected, own) {
		protected = append(protected, own)
	}
	return &authz.Policy{
		TrustDomain: c.trustDomain(),
		NodeAgents:  agents,
		Protected:   protected,
		Evicted:     func(node string) bool { return slices.Contains(c.EvictedNodes, node) },
		Inventory:   inv,
		Now:         now,
	}
}

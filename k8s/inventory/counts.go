package inventory

import "sync/atomic"

// means is how facts were confirmed that may have been late.
type means int

const (
	byEvent     means = iota // the event came while the request waited
	byProof                  // the view was proven to be younger than the request
	byRead                   // the API was asked
	byMemory                 // it was asked a few seconds ago
	undecidedly              // they were not
	allMeans                 // how many there are
)

// String returns the word for m in metrics.
func (m means) String() string {
	return [allMeans]string{"event", "proof", "read", "memory", "undecided"}[m]
}

// counts are of confirmations.
type counts struct {
	confirming atomic.Int64 // that are under way
	ended      [allMeans]atomic.Uint64
}

func (c *counts) of(m means) *atomic.Uint64 { return &c.ended[m] }

// Confirmed returns how many calls of [Inventory.Confirm] ended by which means:
// "event", "proof", "read", "memory" or "undecided".
func (v *Inventory) Confirmed() map[string]uint64 {
	all := make(map[string]uint64, allMeans)
	for m := range allMeans {
		all[m.String()] = v.counts.of(m).Load()
	}
	return all
}

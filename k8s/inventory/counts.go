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

// liveCounts are of requests to the API on behalf of live reads.
type liveCounts struct{ ok, failed, overBudget atomic.Uint64 }

func (c *counts) of(m means) *atomic.Uint64 { return &c.ended[m] }

// Confirmed returns how many calls of [Inventory.Confirm] ended by which means:
// "event", "proof", "read", "memory" or "undecided".
func (v *Inventory) Confirmed() map[string]uint64 {
	all := make(map[string]uint64)
	for m := range allMeans {
		all[m.String()] = v.counts.of(m).Load()
	}
	return all
}

// Confirming returns how many calls of [Inventory.Confirm] are under way.
func (v *Inventory) Confirming() int { return int(v.counts.confirming.Load()) }

// Remembered returns how many answers of [Inventory.Confirm] are remembered.
func (v *Inventory) Remembered() int { return v.memory.size() }

// LiveRequests returns how many requests live reads made of the API, by what
// came of them: "ok" or "failed"; or "over-budget", and then none was made.
func (v *Inventory) LiveRequests() map[string]uint64 {
	c := &v.live.counts
	return map[string]uint64{"ok": c.ok.Load(), "failed": c.failed.Load(), "over-budget": c.overBudget.Load()}
}

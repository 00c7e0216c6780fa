package inventory

import "time"

// A Status says how well one resource is known.
type Status struct {
	Resource string // "pods", "nodes" or "serviceaccounts"
	Synced   bool   // it was listed completely once
	Objects  int    // how many are known

	// Proven is the time up to which the view is proven to be complete; zero
	// if nothing is proven.
	Proven time.Time

	// Err is the newest failure to list, watch or probe the resource that no
	// success has followed, and ErrAt when it was. Err is nil if all is well.
	Err   error
	ErrAt time.Time
}

// Status returns how well each resource is known, without asking the API.
func (v *Inventory) Status() []Status {
	pods, nodes, accounts := v.index.sizes()
	objects := [...]int{pods, nodes, accounts}
	var all []Status
	for i, r := range v.resources() {
		f := r.lastFault()
		all = append(all, Status{
			Resource: r.name,
			Synced:   r.synced.Load(),
			Objects:  objects[i],
			Proven:   r.age.since(),
			Err:      f.err,
			ErrAt:    f.at,
		})
	}
	return all
}

// Synced reports whether everything was listed completely once. It stays true,
// whatever happens to the API server afterwards: see [Inventory.Look].
func (v *Inventory) Synced() bool {
	for _, r := range v.resources() {
		if !r.synced.Load() {
			return false
		}
	}
	return true
}

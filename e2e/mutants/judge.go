package main

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"
)

// each calls f for all items, n at once.
func each[T any](n int, items []T, f func(T) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(items))
	free := make(chan struct{}, n)
	for i, item := range items {
		free <- struct{}{}
		all.Go(func() {
			errs[i] = f(item)
			<-free
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// survives reports whether no test that reaches the mutant fails with it. Those
// of its own package come first, and of these the quick ones.
func survives(m *mutant, tests []*test) (bool, error) {
	for _, batch := range batches(m, tests) {
		if killed, err := kills(batch, m); killed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// batches are the tests to run, those of a batch by one process.
func batches(m *mutant, tests []*test) [][]*test {
	var reaching []*test
	for _, t := range tests {
		if t.reaches[m.id] {
			reaching = append(reaching, t)
		}
	}
	slices.SortStableFunc(reaching, func(a, b *test) int {
		if a, b := a.binary.own == m.dir, b.binary.own == m.dir; a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.binary.own, b.binary.own), cmp.Compare(a.took, b.took))
	})
	var all [][]*test
	for took := time.Duration(0); len(reaching) > 0; took = 0 {
		n := 0
		for n < len(reaching) && reaching[n].binary == reaching[0].binary && (n == 0 || took < 2*time.Second) {
			took += reaching[n].took
			n++
		}
		all = append(all, reaching[:n])
		reaching = reaching[n:]
	}
	return all
}

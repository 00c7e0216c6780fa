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

// A fate is what becomes of a mutant.
type fate int

const (
	survived fate = iota // no test that reaches it fails with it
	killed
	timedOut // killed, but only since the tests did not end
)

// judge tries a mutant with the tests that reach it, up to the first that fails.
// Those of its own package come first, and of these the quick ones.
func judge(m *mutant, tests []*test) (fate, error) {
	for _, batch := range batches(m, tests) {
		if f, err := try(batch, m); f != survived || err != nil {
			return f, err
		}
	}
	return survived, nil
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

package inventory

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// A table has records by name. It shares the lock of the [index] it is part of.
type table[R comparable] struct {
	mu     *sync.RWMutex
	byName map[types.NamespacedName]R
}

// put adds r, in place of what has its name. It reports whether that changed
// anything.
func (t *table[R]) put(key types.NamespacedName, r *R) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.byName[key]; ok && old == *r {
		return false
	}
	t.byName[key] = *r
	return true
}

// remove removes what has the name; see [index.deletePod] for why it asks for
// nothing else.
func (t *table[R]) remove(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byName, key)
}

// replace makes records the only ones.
func (t *table[R]) replace(records []*R, key func(*R) types.NamespacedName) {
	m := make(map[types.NamespacedName]R, len(records))
	for _, r := range records {
		m[key(r)] = *r
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName = m
}

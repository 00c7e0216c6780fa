package token

import (
	"crypto/sha256"
	"maps"
	"sync"
)

// A sum stands for a token, which is never kept.
type sum [sha256.Size]byte

// sumOf hashes a token piece by piece, since converting it whole would copy it
// to the heap: that costs as much as the hash.
func sumOf(token string) (id sum) {
	var piece [1024]byte
	h := sha256.New()
	for len(token) > 0 {
		n := copy(piece[:], token)
		h.Write(piece[:n])
		token = token[n:]
	}
	h.Sum(id[:0])
	return id
}

// A cache remembers at most a number of values. At the bound it forgets one,
// whichever, to remember another. It is safe for concurrent use.
type cache[V any] struct {
	most int

	mu sync.RWMutex
	m  map[sum]V
}

func newCache[V any](most int) *cache[V] { return &cache[V]{most: most, m: make(map[sum]V)} }

func (c *cache[V]) get(id sum) (V, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.m[id]
	return v, ok
}

func (c *cache[V]) put(id sum, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.m[id]; !ok && len(c.m) >= c.most {
		c.forgetOne()
	}
	c.m[id] = v
}

// forgetOne forgets one value; which one, the map's random order decides.
func (c *cache[V]) forgetOne() {
	for id := range c.m {
		delete(c.m, id)
		return
	}
}

// share returns the value of id if it is still good, and a new one otherwise.
// Of any number of callers at one time, one makes it.
func (c *cache[V]) share(id sum, good func(V) bool, fresh func() (V, error)) (V, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.m[id]
	if ok && good(old) {
		return old, nil
	}
	v, err := fresh()
	if err != nil {
		return v, err
	}
	if !ok && len(c.m) >= c.most {
		c.forgetOne()
	}
	c.m[id] = v
	return v, nil
}

// sweep forgets every value that is not to be kept.
func (c *cache[V]) sweep(keep func(V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.m, func(_ sum, v V) bool { return !keep(v) })
}

func (c *cache[V]) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.m)
}

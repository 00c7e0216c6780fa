package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
)

// callTimeout bounds one call to the API server, for whoever waits for it.
const callTimeout = 5 * time.Second

// keys are the cluster's keys, as the API server told them last.
//
// A key that is missing from an answer is gone. An answer that does not come
// changes nothing, until the last one is too old to be relied on.
type keys struct {
	fetch                  func(context.Context) ([]byte, error)
	every, atLeast, maxAge time.Duration
	log                    *slog.Logger

	set      atomic.Pointer[keySet] // nil before the first answer
	ok, fail atomic.Uint64          // readings

	mu   sync.Mutex
	last *reading // the one that began last; nil before the first
}

// A reading is one attempt to read the key set, which all who need it share.
type reading struct {
	began time.Time
	done  chan struct{} // closed at its end
	err   error         // set by then
}

func newKeys(c *Config) *keys {
	return &keys{fetch: c.FetchKeys, every: c.KeyRefresh, atLeast: c.MinKeyRefresh, maxAge: c.MaxKeyAge, log: c.Log}
}

// fresh returns the key set, or nil if there is none that can be relied on.
func (k *keys) fresh(now time.Time) *keySet {
	set := k.set.Load()
	if set == nil || set.age(now) > k.maxAge {
		return nil
	}
	return set
}

// age returns how long ago the set was asked for, by the clock that ran further:
// a machine that was suspended stops the monotonic one.
func (s *keySet) age(now time.Time) time.Duration {
	return max(now.Sub(s.readAt), now.Round(0).Sub(s.readAt.Round(0)))
}

// hold reports whether a key can still be relied on.
func (k *keys) hold(now time.Time, held *key) bool {
	set := k.fresh(now)
	return set != nil && set.keys[held.id] == held
}

// know reports whether a key is among those read last, however long ago.
func (k *keys) know(held *key) bool {
	set := k.set.Load()
	return set != nil && set.keys[held.id] == held
}

// find returns the key with an ID, for a token that says it was issued at a
// time. If it is not there the key set is read again. Only an answer that must
// have had the key is a reason for "no": one that was asked for after the token
// came, or after it was issued, since the API server tells its keys before it
// signs with them. Within the time between two readings the rest is undecided.
func (k *keys) find(ctx context.Context, now time.Time, id string, issuedAt time.Time) (*key, error) {
	if set := k.fresh(now); set != nil && set.keys[id] != nil {
		return set.keys[id], nil
	}
	r, err := k.refresh(ctx, now)
	if err != nil {
		return nil, err
	}
	set := k.fresh(now)
	switch {
	case set == nil:
		return nil, k.none(r.err)
	case set.keys[id] != nil:
		return set.keys[id], nil
	case r.err != nil:
		return nil, &authz.Undecided{Reason: authz.APITrouble, Err: fmt.Errorf("looking for the key %s: %w", quote(id), r.err)}
	case set.readAt.Before(now) && !issuedAt.Add(leeway).Before(set.readAt):
		return nil, &authz.Undecided{Reason: authz.NoCapacity, Err: fmt.Errorf("looking for the key %s: the keys were last read at %s, and may not be read again yet", quote(id), stamp(set.readAt))}
	}
	return nil, authz.Deny(authz.UnknownKey, "the cluster has no key %s", quote(id))
}

// none is the error of not having a key set that can be relied on.
func (k *keys) none(cause error) error {
	set := k.set.Load()
	if set == nil {
		return &authz.Undecided{Reason: authz.APITrouble, Err: fmt.Errorf("there are no keys yet: %w", cause)}
	}
	return &authz.Undecided{Reason: authz.KeysTooOld, Err: fmt.Errorf("the keys were last read at %s: %w", stamp(set.readAt), cause)}
}

// refresh waits for the reading that is under way, or begins one if enough time
// has passed since the last, and returns it. A reading does not end with
// whoever began it; the wait ends with ctx, and that is the only error.
func (k *keys) refresh(ctx context.Context, now time.Time) (*reading, error) {
	r := k.reading(ctx, now)
	select {
	case <-r.done:
		return r, nil
	case <-ctx.Done():
		return nil, &authz.Undecided{Reason: authz.DeadlinePassed, Err: fmt.Errorf("waiting for the token keys: %w", ctx.Err())}
	}
}

func (k *keys) reading(ctx context.Context, now time.Time) *reading {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last != nil && (!isClosed(k.last.done) || now.Sub(k.last.began) < k.atLeast) {
		return k.last
	}
	k.last = &reading{began: now, done: make(chan struct{})}
	go k.run(context.WithoutCancel(ctx), k.last)
	return k.last
}

func (k *keys) run(ctx context.Context, r *reading) {
	defer close(r.done)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r.err = k.read(ctx, r.began)
	if r.err != nil {
		k.fail.Add(1)
		k.log.WarnContext(ctx, "token keys not read", slog.Any("error", r.err), slog.String("next", next(r.err)))
		return
	}
	k.ok.Add(1)
}

// read puts the API server's answer in the place of the last one. Its age
// counts from when it was asked for, since it may be as old as that.
func (k *keys) read(ctx context.Context, began time.Time) error {
	raw, err := k.fetch(ctx)
	if err != nil {
		return fmt.Errorf("reading the token keys: %w", err)
	}
	old := k.set.Load()
	if old != nil && bytes.Equal(old.raw, raw) {
		k.set.Store(&keySet{old.raw, old.keys, began})
		return nil
	}
	set, complaints, err := parseKeySet(raw, began)
	for _, complaint := range complaints {
		k.log.WarnContext(ctx, "token key left out", slog.String("reason", complaint))
	}
	if err != nil {
		return err
	}
	set.keepFrom(old)
	k.set.Store(set)
	k.log.InfoContext(ctx, "token keys read", slog.Any("keys", slices.Sorted(maps.Keys(set.keys))))
	return nil
}

// keepFrom keeps keys that were known before as they were, so that what was
// verified with them stays verified.
func (s *keySet) keepFrom(old *keySet) {
	if old == nil {
		return
	}
	for id, k := range s.keys {
		if was := old.keys[id]; was != nil && was.public.Equal(k.public) {
			s.keys[id] = was
		}
	}
}

// lastError returns why the last reading failed, or nil if it has not ended.
func (k *keys) lastError() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil || !isClosed(k.last.done) {
		return nil
	}
	return k.last.err
}

// nextWait returns how long to wait before the key set is read again, after a
// number of failures in a row.
func (k *keys) nextWait(failures int) time.Duration {
	if failures == 0 {
		return k.every
	}
	wait := k.atLeast
	for n := 1; n < failures && wait < k.every; n++ {
		wait *= 2
	}
	return min(wait, k.every)
}

// ready returns why nothing can be verified yet. With reviews a failed reading
// will do, since a cluster may keep its keys to itself.
func (k *keys) ready(reviews bool) error {
	if k.ok.Load() > 0 || reviews && k.fail.Load() > 0 {
		return nil
	}
	if err := k.lastError(); err != nil {
		return fmt.Errorf("there are no token keys yet: %w", err)
	}
	return errors.New("the token keys have not been read yet")
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

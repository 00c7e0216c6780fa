package ztunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The numbers in brackets are sections of the contract that the tests are about:
// README.md.

func named(account string) Identity { return Identity{"cluster.local", "shop", account} }

// living is a certificate that is good for so long before and after now.
func living(id Identity, before, after time.Duration) *Certificate {
	at := time.Now()
	return &Certificate{Identity: id, Leaf: &x509.Certificate{NotBefore: at.Add(-before), NotAfter: at.Add(after)}}
}

// An authority answers as it is told, and knows when it was asked for what.
type authority struct {
	answer func(ctx context.Context, id Identity, nth int) (*Certificate, error) // nth counts from 1

	mu     sync.Mutex
	begun  time.Time
	asked  map[Identity][]time.Duration
	open   int
	widest int
}

func (a *authority) fetch(ctx context.Context, id Identity) (*Certificate, error) {
	a.mu.Lock()
	a.asked[id] = append(a.asked[id], time.Since(a.begun))
	a.open++
	a.widest = max(a.widest, a.open)
	nth := len(a.asked[id])
	a.mu.Unlock()
	defer func() { a.mu.Lock(); a.open--; a.mu.Unlock() }()
	return a.answer(ctx, id, nth)
}

// at returns when an identity was asked for.
func (a *authority) at(id Identity) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked[id])
}

// count returns how many requests there were.
func (a *authority) count() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.asked {
		n += len(times)
	}
	return n
}

// most returns how many requests there were at once.
func (a *authority) most() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.widest
}

// run starts a manager until the bubble ends. It never draws a pause that is
// longer or shorter than the middle one.
func run(t *testing.T, answer func(context.Context, Identity, int) (*Certificate, error)) (*Manager, *authority) {
	t.Helper()
	a := &authority{answer: answer, begun: time.Now(), asked: map[Identity][]time.Duration{}}
	m := NewManager(a.fetch, nil)
	m.random = func() float64 { return 0.5 }
	go m.Run(t.Context())
	return m, a
}

func inBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func day(_ context.Context, id Identity, _ int) (*Certificate, error) {
	return living(id, 0, 24*time.Hour), nil
}

var errRefused = errors.New("refused")

func refuse(context.Context, Identity, int) (*Certificate, error) { return nil, errRefused }

// pass lets time pass, and what is then due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// rest lets time pass, or the test end.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// slow has a fetch take a second.
func slow(answer func(context.Context, Identity, int) (*Certificate, error)) func(context.Context, Identity, int) (*Certificate, error) {
	return func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
		rest(ctx, time.Second)
		return answer(ctx, id, nth)
	}
}

// ask asks in the background, and returns what came of it once that is settled.
func ask(t *testing.T, m *Manager, id Identity, p Priority) func() (*Certificate, error) {
	t.Helper()
	var cert *Certificate
	var err error
	done := make(chan struct{})
	go func() { cert, err = m.Get(t.Context(), id, p); close(done) }()
	synctest.Wait()
	return func() (*Certificate, error) { <-done; return cert, err }
}

func TestManager(t *testing.T) {
	inBubble(t, "all who ask for an identity share one fetch [3.1]", func(t *testing.T) {
		m, a := run(t, slow(day))
		first, second := ask(t, m, named("cart"), Warmup), ask(t, m, named("cart"), RealTime)
		one, err := first()
		two, err2 := second()
		if err != nil || err2 != nil || one != two || a.count() != 1 {
			t.Errorf("%d fetches, %v, %v", a.count(), err, err2)
		}
		if third, err := m.Get(t.Context(), named("cart"), RealTime); third != one || err != nil || a.count() != 1 {
			t.Errorf("who asks later: %v after %d fetches", err, a.count())
		}
	})
	inBubble(t, "8 fetches run at once, and no more [3.1]", func(t *testing.T) {
		m, a := run(t, slow(day))
		for i := range 30 {
			ask(t, m, named(fmt.Sprint(i)), RealTime)
		}
		pass(3500 * time.Millisecond)
		if a.most() != 8 || a.count() != 30 {
			t.Errorf("%d at once, %d in all after 3.5 s", a.most(), a.count())
		}
	})
	inBubble(t, "a fetch that hangs holds a slot, and the other 7 go on [1.3]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if id == named("hangs") {
				<-ctx.Done()
			}
			return slow(day)(ctx, id, nth)
		})
		ask(t, m, named("hangs"), RealTime)
		for i := range 14 {
			ask(t, m, named(fmt.Sprint(i)), RealTime)
		}
		pass(24 * time.Hour / 4)
		if state := m.Dump()[named("hangs")].State; state != Initializing || a.count() != 15 || a.at(named("13"))[0] != time.Second {
			t.Errorf("%s after %d fetches, the last at %v", state, a.count(), a.at(named("13")))
		}
	})
	inBubble(t, "a connection goes before a prefetch, and that before a retry [3.1]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if id == named("failed") && nth == 1 {
				return nil, errRefused
			}
			return slow(slow(day))(ctx, id, nth)
		})
		ask(t, m, named("failed"), RealTime) // to be retried after 1 s, when there is no slot
		for i := range 8 {
			ask(t, m, named(fmt.Sprint("busy-", i)), RealTime)
		}
		pass(1500 * time.Millisecond)
		for i := range 9 {
			ask(t, m, named(fmt.Sprint("prefetch-", i)), Warmup)
		}
		ask(t, m, named("prefetch-8"), RealTime) // and is no longer one
		for i := range 7 {
			ask(t, m, named(fmt.Sprint("connection-", i)), RealTime)
		}
		pass(7 * time.Second)
		for account, want := range map[string][]time.Duration{
			"busy-7":       {0},
			"connection-6": {2 * time.Second},
			"prefetch-8":   {2 * time.Second},
			"prefetch-7":   {4 * time.Second},
			"failed":       {0, 6 * time.Second},
		} {
			if got := a.at(named(account)); !slices.Equal(got, want) {
				t.Errorf("%s was fetched at %v, want %v", account, got, want)
			}
		}
	})
	inBubble(t, "after an error all are told it at once, and nobody makes another fetch happen [3.2]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if nth == 1 {
				return nil, errRefused
			}
			return day(ctx, id, nth)
		})
		for range 3 {
			if _, err := m.Get(t.Context(), named("cart"), RealTime); !errors.Is(err, errRefused) {
				t.Errorf("told %v", err)
			}
		}
		pass(999 * time.Millisecond)
		if a.count() != 1 || m.Dump()[named("cart")].State != Unavailable {
			t.Errorf("%d fetches", a.count())
		}
		pass(time.Millisecond)
		if _, err := m.Get(t.Context(), named("cart"), RealTime); err != nil || a.count() != 2 {
			t.Errorf("after a second: %v, %d fetches", err, a.count())
		}
	})
	inBubble(t, "an identity that is always refused delays no other [3.2]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if id == named("denied") {
				return nil, errRefused
			}
			return day(ctx, id, nth)
		})
		ask(t, m, named("denied"), RealTime)
		pass(time.Hour)
		if _, err := m.Get(t.Context(), named("cart"), Warmup); err != nil || a.at(named("cart"))[0] != time.Hour {
			t.Errorf("fetched at %v: %v", a.at(named("cart")), err)
		}
	})
}

func TestRetries(t *testing.T) {
	inBubble(t, "1, 2, 4 ... 128, 150, 150 s, for any error [3.2]", func(t *testing.T) {
		m, a := run(t, refuse)
		ask(t, m, named("cart"), RealTime)
		pass(2 * time.Hour)
		var want []time.Duration
		at := 0
		for _, pause := range []int{0, 1, 2, 4, 8, 16, 32, 64, 128, 150, 150, 150, 150} {
			at += pause
			want = append(want, time.Duration(at)*time.Second)
		}
		if diff := cmp.Diff(want, a.at(named("cart"))[:len(want)]); diff != "" {
			t.Error(diff)
		}
	})
	inBubble(t, "a success begins it anew [3.2]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if nth == 3 {
				return living(id, 0, 10*time.Second), nil
			}
			return nil, errRefused
		})
		ask(t, m, named("cart"), RealTime)
		pass(10 * time.Second)
		// Half of the certificate's life passes, then it fails and waits a second.
		want := []time.Duration{0, time.Second, 3 * time.Second, 8 * time.Second, 9 * time.Second}
		if diff := cmp.Diff(want, a.at(named("cart"))); diff != "" {
			t.Error(diff)
		}
	})
	inBubble(t, "forgetting does not begin it anew [3.2]", func(t *testing.T) {
		m, a := run(t, refuse)
		ask(t, m, named("cart"), RealTime)
		pass(7 * time.Second) // 0, 1, 3 and 7 s
		m.Forget(named("cart"))
		pass(time.Minute)
		ask(t, m, named("cart"), RealTime)
		pass(20 * time.Second)
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 67 * time.Second, 83 * time.Second}
		if diff := cmp.Diff(want, a.at(named("cart"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRetry(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		random float64
		after  time.Duration
		pauses int // before it
		want   time.Duration
	}{
		{"a fifth less", 0, 0, 0, 800 * time.Millisecond},
		{"nearly a fifth more", 0.75, 0, 0, 1100 * time.Millisecond},
		{"the last is spread, too", 0, 10 * time.Minute, 20, 120 * time.Second},
		{"and still is after 15 minutes", 0, 15 * time.Minute, 20, 120 * time.Second},
		{"and then no longer", 0, 15*time.Minute + 1, 20, 150 * time.Second},
		{"not even if it has failed twice", 0, 16 * time.Minute, 1, 150 * time.Second},
	} {
		t.Run(tt.name+" [3.2]", func(t *testing.T) {
			r := newRetry(begin)
			for range tt.pauses {
				r.next(begin, 0.5)
			}
			if got := r.next(begin.Add(tt.after), tt.random); got.Round(time.Microsecond) != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestRefresh(t *testing.T) {
	inBubble(t, "at the midpoint, exactly and for all alike [3.3]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, _ int) (*Certificate, error) {
			return living(id, 2*time.Minute, 24*time.Hour), nil
		})
		for i := range 20 {
			ask(t, m, named(fmt.Sprint(i)), RealTime)
		}
		half := 11*time.Hour + 59*time.Minute // [2.4] has this figure
		pass(half - 1)
		if a.count() != 20 {
			t.Errorf("%d fetches before it", a.count())
		}
		pass(1)
		if a.count() != 40 {
			t.Errorf("%d fetches at it", a.count())
		}
	})
	inBubble(t, "a valid certificate stays when it cannot be renewed, and is retried at its end at the latest [3.3]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if nth == 1 {
				return living(id, 0, 20*time.Second), nil
			}
			return nil, errRefused
		})
		cert, _ := ask(t, m, named("cart"), RealTime)()
		pass(20*time.Second - 1)
		if got, err := m.Get(t.Context(), named("cart"), RealTime); got != cert || err != nil {
			t.Errorf("just before its end: %v", err)
		}
		pass(1)
		if _, err := m.Get(t.Context(), named("cart"), RealTime); !errors.Is(err, errRefused) {
			t.Errorf("at its end: %v", err)
		}
		// Renewal at 10 s, then after 1, 2 and 4 s; the next would be at 25 s.
		want := []time.Duration{0, 10 * time.Second, 11 * time.Second, 13 * time.Second, 17 * time.Second, 20 * time.Second}
		if diff := cmp.Diff(want, a.at(named("cart"))); diff != "" {
			t.Error(diff)
		}
	})
	inBubble(t, "an expired one goes with the next failure, and not before [2.4]", func(t *testing.T) {
		hang := make(chan struct{})
		m, _ := run(t, func(ctx context.Context, id Identity, nth int) (*Certificate, error) {
			if nth == 1 {
				return living(id, 0, 20*time.Second), nil
			}
			<-hang
			return nil, errRefused
		})
		cert, _ := ask(t, m, named("cart"), RealTime)()
		pass(time.Hour)
		if got, err := m.Get(t.Context(), named("cart"), RealTime); got != cert || err != nil {
			t.Errorf("expired for an hour, while a fetch runs: %v", err)
		}
		close(hang)
		synctest.Wait()
		if _, err := m.Get(t.Context(), named("cart"), RealTime); !errors.Is(err, errRefused) {
			t.Errorf("after it: %v", err)
		}
	})
	inBubble(t, "a midpoint in the past is fetched again and again, at the speed of the answers [2.4]", func(t *testing.T) {
		m, a := run(t, func(ctx context.Context, id Identity, _ int) (*Certificate, error) {
			rest(ctx, 5*time.Millisecond)
			return living(id, time.Minute, time.Minute-time.Second), nil
		})
		ask(t, m, named("cart"), RealTime)
		pass(time.Second - 1)
		if got := a.count(); got != 200 {
			t.Errorf("%d fetches in a second", got)
		}
	})
}

func TestForget(t *testing.T) {
	inBubble(t, "what waits in the queue is not fetched, and who waits for it is told [3.4]", func(t *testing.T) {
		m, a := run(t, slow(day))
		for i := range 8 {
			ask(t, m, named(fmt.Sprint(i)), RealTime)
		}
		wait := ask(t, m, named("queued"), RealTime)
		m.Forget(named("queued"))
		if _, err := wait(); !errors.Is(err, ErrForgotten) {
			t.Errorf("told %v", err)
		}
		pass(time.Minute)
		if a.count() != 8 {
			t.Errorf("%d fetches", a.count())
		}
	})
	inBubble(t, "a fetch that runs goes on, for nothing [3.4]", func(t *testing.T) {
		m, a := run(t, slow(day))
		wait := ask(t, m, named("cart"), RealTime)
		m.Forget(named("cart"))
		if _, err := wait(); !errors.Is(err, ErrForgotten) {
			t.Errorf("told %v", err)
		}
		pass(24 * time.Hour)
		if len(m.Dump()) != 0 || a.count() != 1 {
			t.Errorf("%v after %d fetches", m.Dump(), a.count())
		}
	})
	inBubble(t, "unless somebody asks again before its end [3.4]", func(t *testing.T) {
		m, a := run(t, slow(day))
		ask(t, m, named("cart"), RealTime)
		m.Forget(named("cart"))
		if _, err := ask(t, m, named("cart"), RealTime)(); err != nil || a.count() != 1 {
			t.Errorf("%v after %d fetches", err, a.count())
		}
	})
	inBubble(t, "what was fetched is not renewed [3.4]", func(t *testing.T) {
		m, a := run(t, day)
		ask(t, m, named("cart"), RealTime)
		m.Forget(named("cart"))
		pass(48 * time.Hour)
		if a.count() != 1 {
			t.Errorf("%d fetches", a.count())
		}
	})
}

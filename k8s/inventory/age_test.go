package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/bailiwick-ca/bailiwick/authz"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func at(minute int) time.Time { return noon().Add(time.Duration(minute) * time.Minute) }

func TestTheViewIsAsYoungAsTheNewestReadThatTheWatchHasReached(t *testing.T) {
	saw := func(minute int, version string) func(*age) {
		return func(a *age) { _ = a.saw(read{at(minute), version}) }
	}
	reached := func(version string) func(*age) { return func(a *age) { a.reached(version) } }
	listed := func(minute int, consistent bool, version string) func(*age) {
		return func(a *age) {
			a.lists(at(minute), consistent)
			a.listed(version)
		}
	}
	tests := []struct {
		name  string
		steps []func(*age)
		want  time.Time
	}{
		{"nothing", nil, time.Time{}},
		{"events prove nothing", []func(*age){reached("5"), reached("6")}, time.Time{}},
		{"a read proves nothing by itself", []func(*age){saw(1, "5")}, time.Time{}},
		{"a version before the read's", []func(*age){saw(1, "10"), reached("9")}, time.Time{}},
		{"the read's version", []func(*age){saw(1, "10"), reached("10")}, at(1)},
		{"a version past the read's", []func(*age){saw(1, "9"), reached("10")}, at(1)},
		{"a read whose version was reached before", []func(*age){reached("10"), saw(1, "10")}, at(1)},
		{"the newest of two reached", []func(*age){saw(1, "5"), saw(2, "7"), reached("8")}, at(2)},
		{"one of two reached", []func(*age){saw(1, "5"), saw(2, "9"), reached("8")}, at(1)},
		{"two reads of one version", []func(*age){saw(1, "5"), saw(2, "5"), reached("5")}, at(2)},
		{"a late answer to an early read", []func(*age){saw(2, "5"), reached("5"), saw(1, "5")}, at(2)},
		{"a consistent list", []func(*age){listed(1, true, "5")}, at(1)},
		{"a list that a cache may have answered", []func(*age){listed(1, false, "5")}, time.Time{}},
		{"a list that a cache answered, past a read's version", []func(*age){saw(1, "5"), listed(2, false, "6")}, at(1)},
		{"each list speaks for itself", []func(*age){listed(1, true, "5"), listed(2, false, "6"), func(a *age) { a.listed("7") }}, at(1)},
		{"a consistent list that broke off, and then another", []func(*age){func(a *age) { a.lists(at(1), true) }, listed(2, false, "6")}, time.Time{}},
		{"a store that was restored to an older version", []func(*age){listed(1, true, "500"), listed(2, true, "7"), saw(3, "8"), reached("8")}, at(3)},
		{"a version that is none", []func(*age){saw(1, "abc"), saw(1, ""), saw(1, "0"), reached("abc")}, time.Time{}},
		{"the watch is at a version that is none", []func(*age){saw(1, "5"), reached("")}, time.Time{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var a age
			for _, step := range test.steps {
				step(&a)
			}
			if got := a.since(); !got.Equal(test.want) {
				t.Errorf("proven as of %v, want %v", got, test.want)
			}
		})
	}
}

// A watch that is stuck must not gather reads for ever; and the day it moves,
// both the oldest and the newest count.
func TestReadsThatWaitAreBounded(t *testing.T) {
	var a age
	for i := range 10 * maxReads {
		must(t, a.saw(read{at(i), strconv.Itoa(1000 + i)}))
	}
	if len(a.reads) != maxReads {
		t.Errorf("%d reads wait, want %d", len(a.reads), maxReads)
	}
	a.reached("1000")
	if !a.since().Equal(at(0)) {
		t.Errorf("proven as of %v, want the oldest", a.since())
	}
	a.reached("9999")
	if newest := at(10*maxReads - 1); !a.since().Equal(newest) {
		t.Errorf("proven as of %v, want %v", a.since(), newest)
	}
	if len(a.reads) > 0 {
		t.Errorf("%d reads wait that were reached", len(a.reads))
	}
}

func TestNothingIsSaidFromAViewThatIsNotKnownToBeYoung(t *testing.T) {
	v := newTestInventory(t, func(c *Config) { c.Now = noon })
	look := func(now time.Time, want authz.Reason) {
		t.Helper()
		_, err := v.Look(now, cart())
		wantReason(t, err, want)
	}
	look(noon(), authz.NotSynced)
	must(t, v.pods.Replace(nil, "100"))
	must(t, v.nodes.Replace(nil, "100"))
	look(noon(), authz.NotSynced)
	if v.Synced() {
		t.Error("synced without accounts")
	}
	must(t, v.accounts.Replace(nil, "100"))
	if !v.Synced() {
		t.Error("not synced with all three")
	}
	look(noon(), authz.Stale) // no list was consistent
	v.sync(t)
	look(noon(), "")
	look(at(-1), "") // asked a moment before the list ended
	look(at(5), "")
	look(at(5).Add(1), authz.Stale)

	// Bookmarks alone do not help, and neither does one resource of three.
	v.pods.UpdateResourceVersion("200")
	look(at(6), authz.Stale)
	for i, r := range v.resources() {
		must(t, r.age.saw(read{at(4), "150"}))
		if i == 1 {
			look(at(6), authz.Stale)
		}
	}
	look(at(6), authz.Stale) // nodes and accounts have not reached 150
	v.nodes.UpdateResourceVersion("150")
	v.accounts.UpdateResourceVersion("151")
	look(at(6), "")
}

func wantReason(t testing.TB, err error, want authz.Reason) {
	t.Helper()
	got := authz.Reason("")
	if u, ok := errors.AsType[*authz.Undecided](err); ok {
		got = u.Reason
	} else if err != nil {
		t.Fatalf("the error is a %T: %v", err, err)
	}
	if got != want {
		t.Errorf("reason %q, want %q (%v)", got, want, err)
	}
}

// A store that was restored from a backup has an older version than we have seen.
func TestAStoreThatWentBackProvesNothing(t *testing.T) {
	for _, tt := range []struct {
		name, reached, version string
		back                   bool
	}{
		{"a newer version", "100", "101", false},
		{"the same", "100", "100", false},
		{"an older one", "100", "99", true},
		{"an older one of fewer digits", "1000", "500", true},
		{"before anything was reached", "", "5", false},
		{"a version that is none", "100", "abc", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newResource("pods", slog.New(slog.DiscardHandler), time.Now)
			r.age.lists(time.Now(), true)
			r.age.listed(tt.reached)
			err := r.probeOnce(t.Context(), time.Second, func(context.Context, metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
				return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: tt.version}}, nil
			})
			if back := strings.Contains(fmt.Sprint(err), "restored from a backup"); back != tt.back || r.age.since().IsZero() != tt.back || (len(r.anew) == 1) != tt.back {
				t.Errorf("%v; proven %v, to be listed anew %d; want back = %v", err, r.age.since(), len(r.anew), tt.back)
			}
		})
	}
}

// TestReadsFromBeforeARestoreProveNothing has a read whose version the restored
// store comes to have too, much later, and a view that comes from a cache.
func TestReadsFromBeforeARestoreProveNothing(t *testing.T) {
	var a age
	began := time.Unix(1, 0)
	a.listed("100")
	must(t, a.saw(read{began, "120"}))
	if !a.wentBack("100", read{began, "50"}) {
		t.Fatal("version 50 after 100 is no way back")
	}
	a.lists(began, false)
	a.listed("130")
	if since := a.since(); !since.IsZero() {
		t.Errorf("the view is proven to be of %v", since)
	}
}

// TestElapsedByEitherClock has a machine that was suspended for an hour, and one
// whose clock was set back by an hour.
func TestElapsedByEitherClock(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name string
		now  time.Time
		want time.Duration
	}{
		{"both agree", now.Add(time.Minute), time.Minute},
		{"the monotonic clock stood still", suspended(t, now.Add(time.Hour), time.Hour), time.Hour},
		{"the wall clock was set back", suspended(t, now, -time.Hour), time.Hour},
	} {
		if got := elapsed(tt.now, now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// suspended returns at with a monotonic reading that is d behind, as clocks read
// after a machine was suspended for d. No function of package time makes one: the
// reading is the second word of a Time.
func suspended(t *testing.T, at time.Time, d time.Duration) time.Time {
	late := at
	*(*int64)(unsafe.Add(unsafe.Pointer(&late), 8)) -= int64(d)
	if at.Sub(late) != d || !late.Round(0).Equal(at.Round(0)) {
		t.Fatalf("%v is not %v with a monotonic reading that is %v behind", late, at, d)
	}
	return late
}

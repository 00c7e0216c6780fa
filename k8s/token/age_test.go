package token

import (
	"testing"
	"time"
	"unsafe"
)

// TestAgeByEitherClock has a machine that was suspended for an hour, and one
// whose clock was set back by an hour.
func TestAgeByEitherClock(t *testing.T) {
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
		if got := (&keySet{readAt: now}).age(tt.now); got != tt.want {
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

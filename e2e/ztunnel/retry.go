package ztunnel

import "time"

const (
	firstPause = time.Second
	lastPause  = 150 * time.Second
	spread     = 0.2              // to either side, also of the last
	exactAfter = 15 * time.Minute // of failing, after which the pause is the last one, and not spread
)

// A retry is how long an identity has failed, and by that how long it waits. No
// error makes it shorter or longer than another does.
type retry struct {
	began time.Time
	pause time.Duration
}

func newRetry(at time.Time) *retry { return &retry{at, firstPause} }

// next returns how long to wait after a failure; random is in [0,1).
func (r *retry) next(at time.Time, random float64) time.Duration {
	if at.Sub(r.began) > exactAfter {
		return lastPause
	}
	pause := time.Duration(float64(r.pause) * (1 - spread + 2*spread*random))
	r.pause = min(2*r.pause, lastPause)
	return pause
}

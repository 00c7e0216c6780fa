package token

import "time"

// A Status is what a [Verifier] has and has done.
type Status struct {
	Keys       int           // keys in the key set
	KeysReadAt time.Time     // when they were last asked for; zero if never answered
	KeysAge    time.Duration // since then

	KeyReadings, FailedKeyReadings uint64

	Remembered   int    // verified tokens
	Hits, Misses uint64 // requests whose token was, or was not, among them

	// Reviews by what came of them.
	ReviewsAccepted, ReviewsRefused, ReviewsFailed, ReviewsOverBudget uint64

	Verdicts int // reviews whose verdict is remembered

	// Requests by their clusterid: none, the configured one, or another.
	ClusterAbsent, ClusterKnown, ClusterOther uint64
}

// Status returns what the verifier has and has done. It makes no call.
func (v *Verifier) Status() Status {
	s := Status{
		KeyReadings:       v.keys.ok.Load(),
		FailedKeyReadings: v.keys.fail.Load(),
		Remembered:        v.seen.len(),
		Hits:              v.hits.Load(),
		Misses:            v.misses.Load(),
		ClusterAbsent:     v.clusters.absent.Load(),
		ClusterKnown:      v.clusters.known.Load(),
		ClusterOther:      v.clusters.other.Load(),
	}
	if set := v.keys.set.Load(); set != nil {
		s.Keys, s.KeysReadAt, s.KeysAge = len(set.keys), set.readAt, set.age(v.now())
	}
	if r := v.reviews; r != nil {
		s.ReviewsAccepted, s.ReviewsRefused = r.accepted.Load(), r.refused.Load()
		s.ReviewsFailed, s.ReviewsOverBudget = r.failed.Load(), r.overBudget.Load()
		s.Verdicts = r.verdicts.len()
	}
	return s
}

// Ready returns why no token can be verified yet, or nil. It makes no call.
// Keys that have become too old are no reason: a client that is told to try
// again finds another replica, or this one when the API server is back.
func (v *Verifier) Ready() error { return v.keys.ready(v.reviews != nil) }

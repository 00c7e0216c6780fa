package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// A Config says what to judge, and how.
type Config struct {
	Target Target
	World  World

	// Sign signs tokens with the cluster's own key. Nil means that nobody can,
	// and cases that need it are not run, or take minutes.
	Sign Sign

	// Keys reads the cluster's public keys, a JWK Set (RFC 7517, Section 5) as
	// the API server gives one at /openid/v1/jwks. Nil: nobody can.
	Keys func(context.Context) ([]byte, error)

	// Drain has the authority drained as its operator would, and returns once
	// one serves at its address again. Nil: nobody can.
	Drain func(context.Context) error

	// Freeze has the API server give no answers and no news, with connections
	// left open, and Thaw has it go on. Nil: nobody can.
	Freeze, Thaw func(context.Context) error

	Slow  bool       // also run what takes minutes
	Cases []Case     // which to run, all if nil
	Began func(Case) // told before each case, if not nil
	Ended func(Result)
}

// A Result is what came of one case.
type Result struct {
	ID       string        `json:"id"`
	Level    Level         `json:"level"`
	Says     string        `json:"says"`
	Source   string        `json:"source"`
	Outcome  Outcome       `json:"outcome"`
	Evidence []string      `json:"evidence,omitempty"` // failures first
	Took     time.Duration `json:"nanoseconds"`
}

// Run runs the cases, one after another, and removes what it made. An error says
// that the suite could not be run, or not clean up; what was found until then is
// returned in any case.
func Run(ctx context.Context, c Config) (results []Result, err error) {
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if closing := c.World.Close(last); closing != nil {
			err = errors.Join(err, fmt.Errorf("removing what was made: %w", closing))
		}
	}()
	stage, err := newStage(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("preparing the cluster: %w", err)
	}
	defer stage.conn.Close() //nolint:errcheck // all is over
	if err := stage.ready(ctx); err != nil {
		return nil, err
	}
	cases := c.Cases
	if cases == nil {
		cases = Cases()
	}
	for _, one := range cases {
		if ctx.Err() != nil {
			return results, context.Cause(ctx)
		}
		if c.Began != nil {
			c.Began(one)
		}
		r := stage.play(ctx, one)
		results = append(results, r)
		if c.Ended != nil {
			c.Ended(r)
		}
	}
	return results, nil
}

// ready returns once an agent gets what it must be able to get. Without that
// nothing is worth judging: most cases would pass because nothing is issued.
func (s *stage) ready(ctx context.Context) error {
	t := &T{ctx: ctx, stage: s, id: "stage"}
	run(t, func(t *T) {
		t.granted(t.agent1, t.cart.id())
		t.granted(t.agent2, t.pay.id())
	})
	if outcome, why := t.outcome(); outcome != Passed {
		return fmt.Errorf("the authority gives a node agent nothing, so there is nothing to judge: %s", why[0])
	}
	return nil
}

// play runs one case.
func (s *stage) play(ctx context.Context, c Case) Result {
	began := time.Now() //nolint:forbidigo // for how long it took
	t := &T{ctx: ctx, stage: s, id: c.ID}
	if c.Slow && !s.slow {
		t.notRun = "it takes minutes, and slow cases were not asked for"
	} else {
		run(t, c.run)
	}
	r := Result{ID: c.ID, Level: c.Level, Says: c.Says, Source: c.Source, Took: time.Since(began)}
	if r.Outcome, r.Evidence = t.outcome(); ctx.Err() != nil && r.Outcome == Failed {
		r.Outcome = NotRun // an interrupt looks like a failure of the authority
	}
	return r
}

// run runs a case in a goroutine of its own, which it may end at any point.
func run(t *T, f func(*T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				t.errorf("the suite has a fault: %v\n%s", p, debug.Stack())
			}
		}()
		f(t)
	}()
	<-done
}

package conformance

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A T is one run of a case. Its methods that end the case must be called from
// the goroutine in which the case runs.
type T struct {
	ctx context.Context
	*stage

	id string

	mu       sync.Mutex
	failures []string
	evidence []string
	notRun   string
	made     int // how many objects the case made, for their names
}

// An Outcome is what came of a case.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	NotRun Outcome = "not run"
)

// note adds to the evidence, which is in the report whatever comes of the case.
func (t *T) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evidence = append(t.evidence, withoutTokens(fmt.Sprintf(format, args...)))
}

// errorf says that what the case claims is not so, and goes on.
func (t *T) errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, withoutTokens(fmt.Sprintf(format, args...)))
}

// withoutTokens takes out what looks like a token: an authority may well send
// back what it was sent, and a report is read by others.
func withoutTokens(text string) string {
	return regexp.MustCompile(`eyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?`).ReplaceAllString(text, "[token]")
}

// fatalf says that what the case claims is not so, and ends it.
func (t *T) fatalf(format string, args ...any) {
	t.errorf(format, args...)
	runtime.Goexit()
}

// cannot ends the case as one that could not be run.
func (t *T) cannot(format string, args ...any) {
	t.mu.Lock()
	t.notRun = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// check ends the case as not run if the suite itself could not do something,
// which says nothing about the authority.
func (t *T) check(doing string, err error) {
	if err != nil {
		t.cannot("%s: %v", doing, err)
	}
}

// pause waits, unless all is over.
func (t *T) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.cannot("stopped: %v", context.Cause(t.ctx))
	}
}

// outcome returns what came of the case. A failure counts even if something
// else could not be run after it.
func (t *T) outcome() (Outcome, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.failures) > 0:
		return Failed, append(t.failures, t.evidence...)
	case t.notRun != "":
		return NotRun, append([]string{t.notRun}, t.evidence...)
	}
	return Passed, t.evidence
}

// name returns a name for an object of this case.
func (t *T) name(kind string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made++
	return fmt.Sprintf("%s-%s-%s-%d", t.prefix, strings.ToLower(t.id), kind, t.made)
}

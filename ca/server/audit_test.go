package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"google.golang.org/grpc/codes"
)

var noon = time.Date(2026, time.January, 2, 12, 0, 0, 0, time.UTC)

// lines returns the lines of an audit log.
func lines(t *testing.T, b *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for d := json.NewDecoder(b); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

func refused(want, pod, reason string) (*record, outcome) {
	r := &record{id: "id", peer: "10.0.0.1:5000", want: want, err: errors.New("why")}
	if pod != "" {
		r.caller = authz.Caller{ServiceAccount: authz.ServiceAccount{Namespace: "a", Name: "b"}, PodUID: pod}
	}
	return r, outcome{code: codes.PermissionDenied, reason: reason}
}

// TestRepeatsAreCounted writes refusals and lets time pass in between.
func TestRepeatsAreCounted(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 100, AuditLinesPerCaller: 100})
	write := func(at time.Duration, want, pod, reason string) {
		r, out := refused(want, pod, reason)
		if err := a.write(t.Context(), noon.Add(at), r, out); err != nil {
			t.Error(err)
		}
	}
	flush := func(at time.Duration) { flushed(t, a, noon.Add(at), false) }
	expect := func(what string, repeats ...any) {
		t.Helper()
		got := lines(t, &b)
		if len(got) != len(repeats) {
			t.Fatalf("%s: %d lines, want %d: %v", what, len(got), len(repeats), got)
		}
		for i, line := range got {
			if line["repeats"] != repeats[i] {
				t.Errorf("%s: line %d has repeats %v, want %v", what, i, line["repeats"], repeats[i])
			}
		}
	}

	write(0, "x", "p1", "not-on-node")
	expect("the first refusal is written", nil)
	for i := range 5 {
		write(time.Duration(i)*time.Second, "x", "p1", "not-on-node")
	}
	flush(59 * time.Second)
	expect("repeats within a minute are not")
	write(10*time.Second, "y", "p1", "not-on-node")
	write(10*time.Second, "x", "p2", "not-on-node")
	write(10*time.Second, "x", "p1", "evicted")
	expect("another identity, caller or reason is no repeat", nil, nil, nil)
	flush(61 * time.Second)
	expect("after a minute the repeats are summed up", 5.0)
	write(62*time.Second, "x", "p1", "not-on-node")
	expect("one that goes on after that is a repeat still")
	flush(120 * time.Second)
	expect("it is not summed up before another minute")
	flush(121 * time.Second)
	expect("it is after another minute", 1.0)
	flush(10 * time.Minute)
	flush(20 * time.Minute)
	expect("without repeats there is nothing to sum up")
	if len(a.repeats) != 0 || a.oldest.Len() != 0 {
		t.Errorf("%d refusals are still remembered", len(a.repeats))
	}
	write(21*time.Minute, "x", "p1", "not-on-node")
	expect("long after, it is a first one again", nil)
}

// TestRepeatsWithoutCaller are told apart by address, but not by port.
func TestRepeatsWithoutCaller(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 100, AuditLinesPerCaller: 100})
	for _, peer := range []string{"10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"} {
		r, out := refused("", "", "no-token")
		r.peer = peer
		written(t, a, r, out)
	}
	if got := lines(t, &b); len(got) != 2 {
		t.Errorf("%d lines, want one for each address", len(got))
	}
}

// TestRepeatsAreBounded refuses more pairs than are remembered.
func TestRepeatsAreBounded(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 3, AuditLinesPerCaller: 100})
	for _, want := range []string{"1", "2", "3", "4", "2", "1"} {
		r, out := refused(want, "p", "not-on-node")
		written(t, a, r, out)
	}
	var got []any
	for _, line := range lines(t, &b) {
		got = append(got, line["identity"])
	}
	// 1 had been forgotten for 4 when it came again. So 2, which had been
	// repeated, was forgotten for 1, and written before.
	if fmt.Sprint(got) != "[1 2 3 4 2 1]" || len(a.repeats) != 3 {
		t.Errorf("wrote %v and remembers %d, want [1 2 3 4 2 1] and 3", got, len(a.repeats))
	}
}

// TestOneCallerCannotFloodTheLog asks for a thousand identities, of which three
// are told apart.
func TestOneCallerCannotFloodTheLog(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 100, AuditLinesPerCaller: 3})
	for i := range 1000 {
		r, out := refused(fmt.Sprint(i), "greedy", "not-on-node")
		written(t, a, r, out)
	}
	r, out := refused("x", "modest", "not-on-node")
	written(t, a, r, out)
	got := lines(t, &b)
	if len(got) != 5 || got[4]["identity"] != "x" {
		t.Errorf("%d lines, want three, one for all others, and the modest caller's", len(got))
	}
	flushed(t, a, noon.Add(time.Minute), false)
	if got = lines(t, &b); len(got) != 1 || got[0]["repeats"] != 996.0 {
		t.Errorf("after a minute: %v", got)
	}
}

// TestNothingIsLostAtTheEnd has a repeat that was not written when the server
// stops.
func TestNothingIsLostAtTheEnd(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 100, AuditLinesPerCaller: 3})
	for range 3 {
		r, out := refused("x", "p", "not-on-node")
		written(t, a, r, out)
	}
	flushed(t, a, noon.Add(time.Second), true)
	got := lines(t, &b)
	if len(got) != 2 || got[1]["repeats"] != 2.0 || len(a.repeats)+len(a.callers)+a.oldest.Len() != 0 {
		t.Errorf("wrote %v", got)
	}
}

func written(t *testing.T, a *audit, r *record, out outcome) {
	t.Helper()
	if err := a.write(t.Context(), noon, r, out); err != nil {
		t.Error(err)
	}
}

func flushed(t *testing.T, a *audit, now time.Time, all bool) {
	t.Helper()
	if err := a.flush(t.Context(), now, all); err != nil {
		t.Error(err)
	}
}

func TestLongTextIsCut(t *testing.T) {
	var b bytes.Buffer
	a := newAudit(slog.NewJSONHandler(&b, nil), Limits{AuditRepeats: 3, AuditLinesPerCaller: 100})
	r, out := refused(string(bytes.Repeat([]byte("x"), 60<<10)), "p", "bad-identity")
	r.err = errors.New(r.want)
	written(t, a, r, out)
	if b.Len() > 4096 {
		t.Errorf("a line of %d bytes", b.Len())
	}
}

func TestBounded(t *testing.T) {
	for n, want := range map[int]int{maxText: maxText, maxText + 1: maxText + len("...")} {
		if got := bounded(string(bytes.Repeat([]byte("x"), n))); len(got) != want {
			t.Errorf("%d bytes became %d, want %d", n, len(got), want)
		}
	}
}

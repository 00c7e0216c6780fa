package server

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/bailiwick-ca/bailiwick/authz"
	"github.com/bailiwick-ca/bailiwick/ca"
	"google.golang.org/grpc/codes"
)

// repeatEvery is how often a refusal that goes on is recorded.
const repeatEvery = time.Minute

// A record is what one request leaves in the audit log. It never holds a token,
// a CSR, or a key.
type record struct {
	id     string
	peer   string // address and port
	caller authz.Caller
	want   string // the identity asked for, "" for the caller's own
	grant  authz.Grant
	issued *ca.Issued
	err    error
}

// An audit writes one line for each certificate, and for each refusal the
// first and then one a minute with the number of repeats in between.
type audit struct {
	out   slog.Handler
	turn  chan struct{} // holds one while a line is written
	max   int           // refusals that are remembered
	lines int           // refusals of one caller that are told apart

	mu      sync.Mutex
	repeats map[refusal]*list.Element // of *repeat
	oldest  *list.List                // by when they were last written
	callers map[origin]int            // how many of each are remembered
}

// An origin is who was refused.
type origin struct{ account, podUID, host string }

// A refusal is what repeats are counted of.
type refusal struct {
	origin
	want, reason string
}

// others stands for the identities of one caller beyond those that are told
// apart.
const others = "(others)"

type repeat struct {
	of      refusal
	written time.Time
	count   int // since written
	last    []slog.Attr
}

func newAudit(out slog.Handler, l Limits) *audit {
	return &audit{
		out: out, turn: make(chan struct{}, 1), max: l.AuditRepeats, lines: l.AuditLinesPerCaller,
		repeats: make(map[refusal]*list.Element), oldest: list.New(), callers: make(map[origin]int),
	}
}

// write records what came of a request. The error says that it is not on record.
func (a *audit) write(ctx context.Context, now time.Time, r *record, out outcome) error {
	if out.code == codes.OK {
		return a.line(ctx, now, slog.LevelInfo, "issued", append(r.attrs(), r.issuedAttrs()...))
	}
	attrs := append(r.attrs(), r.refusedAttrs(out)...)
	first, forgotten := a.count(now, r.refusal(out), attrs)
	err := a.sumUp(ctx, now, forgotten)
	if first {
		err = errors.Join(err, a.line(ctx, now, slog.LevelWarn, "refused", attrs))
	}
	return err
}

// flush writes the refusals that were repeated and last written a minute ago,
// and forgets those that were not repeated. With all set, it writes what is
// left, whenever that was.
func (a *audit) flush(ctx context.Context, now time.Time, all bool) error {
	var err error
	for _, rep := range a.due(now, all) {
		err = errors.Join(err, a.sumUp(ctx, now, rep))
	}
	return err
}

// due returns what was repeated and is to be written now.
func (a *audit) due(now time.Time, all bool) []*repeat {
	a.mu.Lock()
	defer a.mu.Unlock()
	var due []*repeat
	for e := a.oldest.Front(); e != nil && (all || now.Sub(value(e).written) >= repeatEvery); e = a.oldest.Front() {
		rep := a.forget(e)
		if rep.count == 0 {
			continue
		}
		due = append(due, rep)
		if !all {
			a.remember(&repeat{of: rep.of, written: now})
		}
	}
	return due
}

// count counts a refusal. It reports whether it is the first of its kind, which
// is to be written; forgotten, if not nil, is what had to make room for it.
func (a *audit) count(now time.Time, of refusal, attrs []slog.Attr) (first bool, forgotten *repeat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.repeats[of]; !ok && a.callers[of.origin] >= a.lines {
		of.want = others
	}
	if e, ok := a.repeats[of]; ok {
		rep := value(e)
		rep.count++
		rep.last = attrs
		return false, nil
	}
	if len(a.repeats) >= a.max {
		forgotten = a.forget(a.oldest.Front())
	}
	a.remember(&repeat{of: of, written: now})
	return true, forgotten
}

func (a *audit) remember(rep *repeat) {
	a.repeats[rep.of] = a.oldest.PushBack(rep)
	a.callers[rep.of.origin]++
}

func (a *audit) forget(e *list.Element) *repeat {
	rep := value(e)
	delete(a.repeats, rep.of)
	if a.callers[rep.of.origin]--; a.callers[rep.of.origin] == 0 {
		delete(a.callers, rep.of.origin)
	}
	a.oldest.Remove(e)
	return rep
}

func value(e *list.Element) *repeat { return e.Value.(*repeat) }

// sumUp writes the last of some repeats, with their number.
func (a *audit) sumUp(ctx context.Context, now time.Time, rep *repeat) error {
	if rep == nil || rep.count == 0 {
		return nil
	}
	return a.line(ctx, now, slog.LevelWarn, "refused", append(rep.last, slog.Int("repeats", rep.count)))
}

// line writes one line, or fails when ctx is done: whoever reads the log may have
// stopped reading, and then writing would not end.
func (a *audit) line(ctx context.Context, now time.Time, level slog.Level, msg string, attrs []slog.Attr) error {
	r := slog.NewRecord(now, level, msg, 0)
	r.AddAttrs(attrs...)
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return errBlocked
	}
	written := make(chan error, 1)
	go func() {
		defer func() { <-a.turn }()
		written <- a.out.Handle(ctx, r)
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return errBlocked
	}
}

var errBlocked = errors.New("writing the audit log does not end: nobody reads it")

func (r *record) refusal(out outcome) refusal {
	of := refusal{want: bounded(r.want), reason: out.reason}
	of.account, of.podUID = r.caller.ServiceAccount.String(), r.caller.PodUID
	if of.podUID == "" {
		of.host, _, _ = net.SplitHostPort(r.peer) // a port would make each connection another caller
	}
	return of
}

// attrs returns the fields that every line has; docs/audit.md lists them.
func (r *record) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("requestId", r.id),
		slog.String("peer", r.peer),
		slog.Group("caller",
			slog.String("namespace", r.caller.ServiceAccount.Namespace),
			slog.String("serviceAccount", r.caller.ServiceAccount.Name),
			slog.String("pod", r.caller.Pod),
			slog.String("podUid", r.caller.PodUID),
			slog.String("node", r.caller.Node),
			slog.String("nodeUid", r.caller.NodeUID),
			slog.String("tokenId", r.caller.TokenID)),
	}
}

func (r *record) issuedAttrs() []slog.Attr {
	evidence := r.grant.Evidence()
	return []slog.Attr{
		slog.String("identity", r.grant.ID().String()),
		slog.String("serial", fmt.Sprintf("%x", r.issued.Leaf.SerialNumber)),
		slog.Time("notAfter", r.issued.Leaf.NotAfter),
		slog.Group("evidence", slog.Int("pods", evidence.Pods), slog.String("podUid", evidence.PodUID)),
	}
}

func (r *record) refusedAttrs(out outcome) []slog.Attr {
	return []slog.Attr{
		slog.String("identity", bounded(r.want)),
		slog.String("reason", out.reason),
		slog.String("code", out.code.String()),
		slog.String("detail", bounded(r.err.Error())),
	}
}

// maxText bounds what a caller can make us remember or write. An identity that
// parses is shorter.
const maxText = 1024

func bounded(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}

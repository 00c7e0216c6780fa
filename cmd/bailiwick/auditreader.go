package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"google.golang.org/grpc/status"
)

// An auditReader takes in an audit log, to know why each answer was given.
type auditReader struct {
	mu    sync.Mutex
	lines []auditLine
}

// An auditLine is what the demonstration reads of a line of the audit log.
type auditLine struct {
	RequestID string `json:"requestId"`
	Serial    string `json:"serial"`
	Reason    string `json:"reason"`
	Detail    string `json:"detail"`
	Evidence  struct {
		Pods int `json:"pods"`
	} `json:"evidence"`
}

// Write implements [io.Writer] for one line at a time, as slog writes them.
func (a *auditReader) Write(line []byte) (int, error) {
	var l auditLine
	if err := json.Unmarshal(line, &l); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, l)
	return len(line), nil
}

// reason returns why the request was refused.
func (a *auditReader) reason(requestID string) (reason, detail string) {
	l := a.find(func(l auditLine) bool { return l.RequestID == requestID })
	detail = strings.TrimPrefix(l.Detail, fmt.Sprintf("denied (%s): ", l.Reason))
	return l.Reason, detail
}

// evidence returns what justified the certificate.
func (a *auditReader) evidence(serial *big.Int) string {
	hex := fmt.Sprintf("%x", serial)
	l := a.find(func(l auditLine) bool { return l.Serial == hex })
	if l.Evidence.Pods == 1 {
		return "1 live pod of it on the node"
	}
	return fmt.Sprintf("%d live pods of it on the node", l.Evidence.Pods)
}

func (a *auditReader) find(is func(auditLine) bool) auditLine {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lines {
		if is(l) {
			return l
		}
	}
	return auditLine{}
}

// refusal completes the row of a question that was refused. The error says that
// the refusal is not the right one.
func (a *auditReader) refusal(r demoAnswer, q question, err error) (demoAnswer, error) {
	_, id := told(status.Convert(err))
	reason, detail := a.reason(id)
	if reason == "" {
		return r, fmt.Errorf("%s: %w", r.who(), err)
	}
	r.Reason, r.Detail = reason, detail
	if reason != string(q.want) {
		return r, fmt.Errorf("%s was refused %s (%s), and must get: %q", r.who(), orOwn(q.identity), reason, q.want)
	}
	return r, nil
}

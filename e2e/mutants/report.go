package main

import (
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
)

// A report is what came of the mutants, by package. Faults are written as they
// are found.
type report struct {
	out   io.Writer
	known map[string]string

	mu           sync.Mutex
	packages     []*tally
	done, faults int
}

// A tally is a line of the report.
type tally struct {
	name                                            string
	mutants, killed, timedOut, equivalent, survived int
}

func newReport(out io.Writer, known map[string]string, mutants []*mutant) *report {
	r := &report{out: out, known: known}
	for _, m := range mutants {
		if r.of(m) == nil {
			r.packages = append(r.packages, &tally{name: m.dir})
		}
	}
	return r
}

func (r *report) of(m *mutant) *tally {
	for _, t := range r.packages {
		if t.name == m.dir {
			return t
		}
	}
	return nil
}

// add returns how many mutants have been tried.
func (r *report) add(m *mutant, f fate) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.of(m)
	_, known := r.known[m.key()]
	t.mutants++
	switch {
	case f == survived && known:
		t.equivalent++
	case f == survived:
		t.survived++
		r.fault("survived", m)
	default:
		t.killed++
		if f == timedOut {
			t.timedOut++
		}
		if known {
			r.fault("listed as equivalent, but killed", m)
		}
	}
	r.done++
	return r.done
}

func (r *report) fault(what string, m *mutant) {
	r.faults++
	_, _ = fmt.Fprintf(r.out, "%s: line %d of %s\n", what, m.line, m.key())
}

// write writes the report, and returns an error if not all is well.
func (r *report) write() error {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "mutants\tkilled\tby timeout\tequivalent\tsurvived\t  package")
	for _, t := range r.packages {
		_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t  %s\n", t.mutants, t.killed, t.timedOut, t.equivalent, t.survived, t.name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.faults > 0 {
		return fmt.Errorf("%d mutants are not as they should be", r.faults)
	}
	return nil
}

// Mutants breaks the product in one place after the other, and tells which
// breaks the tests that need no cluster do not notice. It knows of the product
// nothing but its text: comparisons, connectives, the least and the greatest,
// cases, constants, fields of certificates and of our own types, elements of
// tables, assignments.
//
// All mutants of all packages are compiled at once, each behind a switch, and
// every test is run once to learn which mutants it reaches. Then each mutant is
// switched on for the tests that reach it. Any failure of any of them is a kill,
// a panic and a test that does not end too; the last are counted by themselves.
// The checkout is never written to.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync/atomic"
)

// scopes are the folders and files whose mutants the tests must kill.
func scopes() []string {
	return []string{
		"authz", "ca", "ca/material", "ca/server", "k8s/token", "k8s/inventory",
		"cmd/bailiwick/config.go", "cmd/bailiwick/validate.go", "cmd/bailiwick/derive.go",
	}
}

// A job is what to break, where, and who sees it.
type job struct {
	root     string
	scopes   []string
	known    map[string]string // equivalent mutants, and why they are
	only     *regexp.Regexp    // of keys
	own      bool              // only the tests of the mutant's package
	parallel int
	progress io.Writer
}

func main() {
	root := flag.String("C", ".", "the root of the module")
	only := flag.String("run", "", "only mutants whose file, function and change match this `pattern`")
	listOnly := flag.Bool("list", false, "list the mutants, and run nothing")
	own := flag.Bool("own", false, "only the tests of a mutant's own package, which takes less time and kills less")
	parallel := flag.Int("p", runtime.NumCPU(), "how many run at once")
	flag.Parse()
	if err := run(*root, *only, *listOnly, *own, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:forbidigo // a program
	}
}

func run(root, only string, listOnly, own bool, parallel int) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	known, err := equivalents(filepath.Join(root, "e2e", "mutants", "equivalent.txt"))
	if err != nil {
		return err
	}
	j := &job{root: root, scopes: scopes(), known: known, only: pattern, own: own, parallel: parallel, progress: io.Discard}
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		j.progress = os.Stderr
	}
	if listOnly {
		return j.list(os.Stdout)
	}
	return j.do(os.Stdout)
}

// find returns the sources that have mutants to try, and these.
func (j *job) find() ([]*writer, []*mutant, error) {
	sources, err := load(j.root, j.scopes)
	if err != nil {
		return nil, nil, err
	}
	var writers []*writer
	var tried []*mutant
	all := make(map[string]bool)
	first := 1
	for _, s := range sources {
		w := mutate(s, first)
		before := len(tried)
		for _, m := range w.mutants {
			all[m.key()] = true
			if j.only.MatchString(m.key()) {
				tried = append(tried, m)
			}
		}
		if len(tried) > before {
			writers = append(writers, w)
			first += len(w.mutants)
		}
	}
	for key := range j.known {
		if !all[key] {
			err = errors.Join(err, fmt.Errorf("listed as equivalent, but there is no such mutant: %s", key))
		}
	}
	if len(tried) == 0 {
		err = errors.Join(err, fmt.Errorf("no mutant matches %q", j.only))
	}
	return writers, tried, err
}

func (j *job) list(out io.Writer) error {
	_, tried, err := j.find()
	for _, m := range tried {
		_, _ = fmt.Fprintln(out, m.key())
	}
	return err
}

// do tries the mutants, and returns an error if one survives that should not.
func (j *job) do(out io.Writer) error {
	writers, tried, err := j.find()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // nothing depends on it
	j.say("compiling %d mutants", len(tried))
	binaries, err := build(j.root, tmp, writers, j.own)
	if err != nil {
		return err
	}
	tests, err := j.tests(tmp, binaries)
	if err != nil {
		return err
	}
	r := newReport(out, j.known, tried)
	err = each(j.parallel, tried, func(m *mutant) error {
		f, err := judge(m, tests)
		if err != nil {
			return err
		}
		j.say("%d of %d mutants", r.add(m, f), len(tried))
		return nil
	})
	j.say("")
	return errors.Join(err, r.write())
}

// tests runs all tests once.
func (j *job) tests(tmp string, binaries []*binary) ([]*test, error) {
	var all []*test
	for _, b := range binaries {
		tests, err := b.tests()
		if err != nil {
			return nil, err
		}
		all = append(all, tests...)
	}
	var done atomic.Int64
	return all, each(j.parallel, all, func(t *test) error {
		j.say("%d of %d tests", done.Add(1), len(all))
		return t.try(tmp)
	})
}

// say shows how far it is, on one line.
func (j *job) say(format string, args ...any) {
	_, _ = fmt.Fprintf(j.progress, "\r\x1b[K"+format, args...)
}

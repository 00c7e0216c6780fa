package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed overlay.go.txt
var overlay string

// A test is one test of a package, and what it took without a mutant.
type test struct {
	binary  *binary
	name    string
	took    time.Duration
	reaches map[int]bool
}

// A binary is the compiled tests of a package, with all mutants in it.
type binary struct {
	file, dir, importPath string
	own                   string // the package from the root of the module
}

// build compiles the tests of every package that has to do with the sources.
// Nothing is written outside tmp.
func build(root, tmp string, sources []*writer, own bool) ([]*binary, error) {
	last := sources[len(sources)-1]
	replace := make(map[string]string)
	put := func(path string, text []byte) error {
		name := filepath.Join(tmp, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, path)] = name
		return os.WriteFile(name, text, 0o600)
	}
	for _, w := range sources {
		if err := put(w.path, w.written()); err != nil {
			return nil, err
		}
		helper := strings.NewReplacer("package PACKAGE", "package "+w.file.Name.Name, "[MUTANTS]", fmt.Sprintf("[%d]", last.next())).Replace(overlay)
		if path := filepath.Join(w.dir, "zz_mutants.go"); replace[filepath.Join(root, path)] == "" {
			if err := put(path, []byte(helper)); err != nil {
				return nil, err
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	return compile(root, tmp, file, sources, own)
}

func compile(root, tmp, overlay string, sources []*writer, own bool) ([]*binary, error) {
	touched := make(map[string]bool)
	var patterns []string
	if !own {
		patterns = append(patterns, "./...")
	}
	for _, w := range sources {
		touched[w.importPath] = true
		patterns = append(patterns, "./"+w.dir)
	}
	listed, err := list(root, append([]string{"-test", "-json=ImportPath,Dir,Deps,ForTest"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var all []*binary
	for _, p := range listed {
		path, isTest := strings.CutSuffix(p.ImportPath, ".test")
		// Deps has "x [y.test]" for what is compiled again for the tests of y.
		if !isTest || !slices.ContainsFunc(p.Deps, func(d string) bool { d, _, _ = strings.Cut(d, " "); return touched[d] }) {
			continue
		}
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		b := &binary{file: filepath.Join(tmp, fmt.Sprintf("%d.test", len(all))), dir: p.Dir, importPath: path, own: dir}
		cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", b.file, path) //nolint:gosec // arguments of our own
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compiling the tests of %s with all mutants: %w\n%s", path, err, out)
		}
		all = append(all, b)
	}
	return all, nil
}

// tests lists what can run without -bench.
func (b *binary) tests() ([]*test, error) {
	out, err := b.command(context.Background(), time.Minute, "-test.list=.").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tests of %s: %w", b.importPath, err)
	}
	var all []*test
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Benchmark") {
			all = append(all, &test{binary: b, name: name})
		}
	}
	return all, nil
}

// try runs a test by itself and without a mutant, to learn which it reaches.
func (t *test) try(tmp string) error {
	f, err := os.CreateTemp(tmp, "reached")
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	cmd := t.binary.command(context.Background(), 5*time.Minute, "-test.run=^"+t.name+"$")
	cmd.Env = append(os.Environ(), "MUTANT_REACHED="+f.Name())
	start := time.Now() //nolint:forbidigo // a program
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of %s fails without any mutant: %w\n%s", t.name, t.binary.importPath, err, out)
	}
	t.took = time.Since(start)
	reached, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	t.reaches = make(map[int]bool)
	for line := range strings.FieldsSeq(string(reached)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return fmt.Errorf("reading what %s reaches: %w", t.name, err)
		}
		t.reaches[id] = true
	}
	return nil
}

// try runs tests, all of one binary, with the mutant.
func try(tests []*test, m *mutant) (fate, error) {
	var names []string
	patience := 10 * time.Second
	for _, t := range tests {
		names = append(names, t.name)
		patience += 5 * t.took
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience+30*time.Second)
	defer cancel()
	cmd := tests[0].binary.command(ctx, patience, "-test.failfast", "-test.run=^("+strings.Join(names, "|")+")$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("MUTANT=%d", m.id))
	start := time.Now()                   //nolint:forbidigo // a program
	switch err := cmd.Run(); err.(type) { //nolint:errorlint // of one type or another, and never wrapped
	case nil:
		return survived, nil
	case *exec.ExitError:
		if time.Since(start) >= patience {
			return timedOut, nil
		}
		return killed, nil
	default:
		return survived, fmt.Errorf("running the tests of %s: %w", tests[0].binary.importPath, err)
	}
}

// command runs tests where "go test" would, and keeps a mutant from taking all
// the memory of the machine.
func (b *binary) command(ctx context.Context, patience time.Duration, args ...string) *exec.Cmd {
	const run = `ulimit -v 8388608 2>/dev/null; exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", run, "sh", b.file, "-test.timeout=" + patience.String()}, args...)...) //nolint:gosec // arguments of our own
	cmd.Dir, cmd.WaitDelay = b.dir, time.Second
	return cmd
}

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tiny = "e2e/mutants/testdata/tiny"

func tinyJob(t *testing.T, only string, equivalent ...string) *job {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]string)
	for _, key := range equivalent {
		known[key] = "a reason"
	}
	return &job{root: root, scopes: []string{tiny}, known: known, only: regexp.MustCompile(only), parallel: 1, progress: io.Discard}
}

// TestFinds has a mutant of each kind.
func TestFinds(t *testing.T) {
	var out strings.Builder
	if err := tinyJob(t, "").list(&out); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`table: "a" => left out`,
		`table: "b" => left out`,
		`operators: a == 9 || a < b && a > 0 => a == 9 && a < b && a > 0`,
		`operators: a == 9 => a != 9`,
		`operators: a < b && a > 0 => a < b || a > 0`,
		`operators: a < b => a >= b`,
		`operators: a < b => a <= b`,
		`operators: a > 0 => a <= 0`,
		`operators: a > 0 => a >= 0`,
		`bare: x => !x`,
		`bare: odd(3) => !odd(3)`,
		`odd: n > 1 => n <= 1`,
		`odd: n > 1 => n >= 1`,
		`odd: n -= 2 => left out`,
		`odd: n == 1 => n != 1`,
		`tagged: case 1 => taken away`,
		`tagged: case 2 => taken away`,
		`tagged: some => the zero value`,
		`tagless: case n > 7 => taken away`,
		`tagless: n > 7 => n <= 7`,
		`tagless: n > 7 => n >= 7`,
		`tagless: word = "many" => left out`,
		`typed: case string => taken away`,
		`typed: true => false`,
		`typed: x == nil => x != nil`,
		`typed: false => true`,
		`literals: Name: name => left out`,
		`literals: good: true => left out`,
		`literals: "one": 1 => left out`,
		`literals: "two": 2 => left out`,
		`survivor: n >= 5 => n < 5`,
		`survivor: n >= 5 => n > 5`,
		`unreached: true => false`,
		`clamp: max(1, min(n, 9)) => min(1, min(n, 9))`,
		`clamp: min(n, 9) => max(n, 9)`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), tiny+"/tiny.go ", "")), "\n")); diff != "" {
		t.Errorf("mutants (-want +got):\n%s", diff)
	}
}

// TestTries runs all mutants. One survives a test, one has none, and one never
// ends.
func TestTries(t *testing.T) {
	const bound, unreached = tiny + "/tiny.go survivor: n >= 5 => n > 5", tiny + "/tiny.go unreached: true => false"
	for _, tt := range []struct {
		name       string
		only       string
		equivalent []string
		want       string
		err        string
	}{
		{"all", "", nil, `
survived: line 71 of ` + bound + `
survived: line 74 of ` + unreached + `
  mutants  killed  by timeout  equivalent  survived  package
       35      33           1           0         2  ` + tiny + "\n", "2 mutants are not as they should be"},
		{"those of a function, all equivalent or killed", " survivor: ", []string{bound}, `
  mutants  killed  by timeout  equivalent  survived  package
        2       1           0           1         0  ` + tiny + "\n", ""},
		{"one that is killed and listed as equivalent", "typed: true", []string{tiny + "/tiny.go typed: true => false"}, `
listed as equivalent, but killed: line 59 of ` + tiny + `/tiny.go typed: true => false
  mutants  killed  by timeout  equivalent  survived  package
        1       1           0           0         0  ` + tiny + "\n", "1 mutants are not as they should be"},
		{"one that there is not, and is listed as equivalent", " survivor: ", []string{tiny + "/tiny.go survivor: n >= 6 => n > 6"}, "\n",
			"listed as equivalent, but there is no such mutant: " + tiny + "/tiny.go survivor: n >= 6 => n > 6"},
		{"none", "no such function", nil, "\n", `no mutant matches "no such function"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := tinyJob(t, tt.only, tt.equivalent...).do(&out)
			if diff := cmp.Diff(tt.want, "\n"+out.String()); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if got := message(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestEquivalents(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       map[string]string
		err        string
	}{
		{"two", "# why\n\na.go f: x => y\n    because\nb.go g: x => y #2\n    therefore\n", map[string]string{"a.go f: x => y": "because", "b.go g: x => y #2": "therefore"}, ""},
		{"no reason at the end", "a.go f: x => y\n", nil, "a.go f: x => y has no reason"},
		{"no reason between", "a.go f: x => y\nb.go g: x => y\n    therefore\n", nil, ":2: "},
		{"a reason of nothing", "    because\n", nil, ":1: "},
		{"the same twice", "a.go f: x => y\n    because\na.go f: x => y\n    because\n", nil, ":4: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "equivalent.txt")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := equivalents(file)
			if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.err == "") || !strings.Contains(message(err), tt.err) {
				t.Errorf("equivalents: %v, want %q; (-want +got):\n%s", err, tt.err, diff)
			}
		})
	}
}

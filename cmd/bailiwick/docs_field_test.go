package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fieldReports are the ids of docs/field-reports.md, in its order.
const fieldReports = `
	CSR-1 CSR-2 CSR-3 CSR-4 CSR-5 CSR-6 CSR-7 CSR-8 CSR-9
	CA-1 CA-2 CA-3 CA-4 CA-5 CA-6 CA-7 CA-8 CA-9 CA-10 CA-11
	TOK-1 TOK-2 TOK-3 TOK-4 TOK-5 TOK-6 TOK-7
	NODE-1 NODE-2 NODE-3 NODE-4 NODE-5
	ROT-1 ROT-2 ROT-3 ROT-4 ROT-5 ROT-6 ROT-7 ROT-8 ROT-9 ROT-10 ROT-11 ROT-12 ROT-13 ROT-14
	SRV-1 SRV-2 SRV-3 SRV-4 SRV-5
	OPS-1 OPS-2 OPS-3 OPS-4 OPS-5 OPS-6`

// TestFieldReports compares docs/field-reports.md with the tests.
func TestFieldReports(t *testing.T) {
	named := namedReports(t)
	state := regexp.MustCompile(`^(tested|by design \[\d{4}\]\((decisions/\d{4}-[a-z0-9-]+\.md)\)|later: (chart|keeper|publishing|reload))$`)
	test := regexp.MustCompile("`([a-z0-9/]+/Test\\w+|e2e/scenario/testdata/[a-z-]+\\.txt)`")
	var ids []string
	for _, row := range tableRows(readFile(t, "../../docs/field-reports.md"), "id") {
		if len(row) != 6 {
			t.Fatalf("a row with %d cells: %q", len(row), row)
		}
		id, tests := row[0], test.FindAllString(row[4], -1)
		if strings.Join(tests, ", ") != row[4] {
			t.Errorf("%s: these are not names of tests: %s", id, row[4])
		}
		ids = append(ids, id)
		for _, name := range tests {
			if !slices.Contains(named[unquoted(name)], id) {
				t.Errorf("%s: %s is not there, or does not name it", id, name)
			}
		}
		switch m := state.FindStringSubmatch(row[5]); {
		case m == nil:
			t.Errorf("%s: there is no state %q", id, row[5])
		case len(tests) == 0 && m[3] == "":
			t.Errorf("%s is %s, by no test", id, m[1])
		case m[2] != "":
			if _, err := os.Stat(filepath.Join("..", "..", "docs", m[2])); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if diff := cmp.Diff(strings.Fields(fieldReports), ids); diff != "" {
		t.Errorf("ids (-want +page):\n%s", diff)
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		for _, id := range named[name] {
			if !slices.Contains(ids, id) {
				t.Errorf("%s names %s, which the page has not", name, id)
			}
		}
	}
}

// TestFieldReportsAreFound looks into files that are made up.
func TestFieldReportsAreFound(t *testing.T) {
	const source = "package x\n\n// CSR-1: a comment.\nfunc TestA(t *testing.T) {\n\tt.Run(\"TOK-10 a name\", nil) // TOK-10\n}\n\nfunc TestB() {}\n\n// SRV-2\nfunc helper() {}\n"
	got := make(map[string][]string)
	for name, text := range map[string]string{"x/a_test.go": source, "x/testdata/s.txt": "# [NODE-1] one\n# XCSR-1 CSR-1x\n"} {
		addReports(t, got, name, text)
	}
	want := map[string][]string{"x/TestA": {"CSR-1", "TOK-10"}, "x/testdata/s.txt": {"NODE-1"}, "x/helper": {"SRV-2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

// namedReports returns the ids that each function of a test, as package/name, and
// each scenario file names, those of the other modules included.
func namedReports(t *testing.T) map[string][]string {
	t.Helper()
	named := make(map[string][]string)
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(name, "docs_field_test.go"):
			return nil
		case !strings.HasSuffix(name, "_test.go") && path.Dir(name) != "e2e/scenario/testdata":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		addReports(t, named, name, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return named
}

// addReports adds what a file names: in comments, in strings, wherever.
func addReports(t *testing.T, named map[string][]string, name, text string) {
	t.Helper()
	add := func(name, text string) {
		if ids := regexp.MustCompile(`\b(CSR|CA|TOK|NODE|ROT|SRV|OPS)-\d+\b`).FindAllString(text, -1); len(ids) > 0 {
			slices.Sort(ids)
			named[name] = slices.Compact(ids)
		}
	}
	if !strings.HasSuffix(name, ".go") {
		add(name, text)
		return
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			add(path.Dir(name)+"/"+f.Name.Name, text[files.Position(from).Offset:files.Position(f.End()).Offset])
		}
	}
}

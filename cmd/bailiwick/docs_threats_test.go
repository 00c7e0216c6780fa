package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// link is a link in Markdown: its text, and where it leads.
const link = `\[([^\]]+)\]\(([^)\s]+)\)`

// TestThreatsAreAnswered wants every threat on the page once, in a state that
// there is, with a reason where one is due, and an answer that names code.
func TestThreatsAreAnswered(t *testing.T) {
	page := readFile(t, "../../docs/threat-model.md")
	actors := map[string]bool{"–": true} // nobody in particular
	for _, row := range tableRows(page, "") {
		actors[row[0]] = true
	}
	var got, want []string
	for i := range 34 {
		want = append(want, fmt.Sprintf("T%d", i+1))
	}
	for _, row := range tableRows(page, "no") {
		got = append(got, row[0])
		if len(row) != 6 {
			t.Errorf("%s has %d columns", row[0], len(row))
			continue
		}
		by, answer, state, left := strings.Fields(row[2]), row[3], row[4], row[5]
		if len(by) == 0 || slices.ContainsFunc(by, func(a string) bool { return !actors[a] }) {
			t.Errorf("%s is by %q, and the actors are %v", row[0], by, actors)
		}
		names := len(codeLinks(answer))
		switch state {
		case "answered", "partly":
			if names == 0 {
				t.Errorf("%s is %s by nothing that is named", row[0], state)
			}
		case "accepted", "later":
		default:
			t.Errorf("%s is %q, which is no state", row[0], state)
		}
		if (left == "") != (state == "answered") {
			t.Errorf("%s is %s, and left is %q", row[0], state, left)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has %q", got)
	}
	for n := range 8 {
		if !actors[fmt.Sprintf("A%d", n+1)] {
			t.Errorf("there is no actor A%d", n+1)
		}
	}
}

// A codeLink names what a Go file declares.
type codeLink struct{ name, file string }

// codeLinks returns the links in text to Go files.
func codeLinks(text string) []codeLink {
	var all []codeLink
	for _, m := range regexp.MustCompile(link).FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(m[2], ".go") {
			all = append(all, codeLink{m[1], m[2]})
		}
	}
	return all
}

// TestNamedCodeIsThere looks up everything that a page says a Go file declares.
// A link whose text is no name is about the file.
func TestNamedCodeIsThere(t *testing.T) {
	name := regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	looked := 0
	for _, page := range pages(t) {
		for _, l := range codeLinks(readFile(t, page)) {
			path := filepath.Join(filepath.Dir(page), l.file)
			if !name.MatchString(l.name) {
				continue
			}
			looked++
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if !slices.Contains(declaredIn(t, path), l.name) {
				t.Errorf("%s: %s declares no %s", page, path, l.name)
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d names were looked up", looked)
	}
}

// declaredIn returns the names of the functions, methods, types and constants
// that a file declares.
func declaredIn(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// pages returns the paths of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

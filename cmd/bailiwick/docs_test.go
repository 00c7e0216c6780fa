package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/k8s/inventory"
	k8stoken "github.com/bailiwick-ca/bailiwick/k8s/token"
	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// reasons are the words that the code declares.
func reasons(t *testing.T) []string {
	t.Helper()
	all := append(constants(t, "../../authz/reason.go"), constants(t, "../../ca/reason.go")...)
	all = append(all, constants(t, "../../ca/server/status.go")...)
	return slices.DeleteFunc(all, func(word string) bool { return word == "bailiwick" }) // the error domain
}

// TestReasonsAreDocumented looks for every reason that the code declares in
// docs/troubleshooting.md, and for words there that no code declares.
func TestReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for line := range strings.Lines(string(page)) {
		if word, ok := strings.CutPrefix(line, "| `"); ok {
			documented[word[:strings.Index(word, "`")]] = true
		}
	}
	for _, word := range reasons(t) {
		if !documented[word] {
			t.Errorf("%s is not documented", word)
		}
		delete(documented, word)
	}
	for word := range documented {
		t.Errorf("%s is documented, and nothing has it", word)
	}
}

// constants returns the string constants of a file.
func constants(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					word, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					words = append(words, word)
				}
			}
		}
		return true
	})
	if len(words) == 0 {
		t.Fatalf("%s declares no words", path)
	}
	return words
}

// [OPS-4] TestPermissionsAreDocumented compares the ClusterRole on the page about
// running with what the code declares that it needs.
func TestPermissionsAreDocumented(t *testing.T) {
	_, page, _ := strings.Cut(readFile(t, "../../docs/running.md"), "```yaml\n")
	text, _, _ := strings.Cut(page, "```")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	want := append(inventory.Permissions(), k8stoken.Permissions(true)...)
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("docs/running.md (-code +page):\n%s", diff)
	}
}

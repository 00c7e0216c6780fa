package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A documentedField is a field of the configuration file, as a comment or a page
// has it.
type documentedField struct{ Name, Default string }

// comments returns the comments of a struct's fields in config.go, by the name
// that the file has for them, without the defaults with which they end.
func comments(t *testing.T, typ string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, f := range structFields(t, typ) {
		text := strings.Join(strings.Fields(f.Doc.Text()), " ")
		text, _, _ = strings.Cut(text, " Default ")
		all[commentedField(t, f).Name] = text
	}
	return all
}

// TestConfigIsDocumented wants the same fields with the same defaults in the
// comments of the structs and in the tables of docs/configuration.md.
func TestConfigIsDocumented(t *testing.T) {
	page := readFile(t, "../../docs/configuration.md")
	for _, tt := range []struct{ typ, heading string }{{"Config", "field"}, {"LimitsConfig", "field of `limits`"}} {
		var onPage []documentedField
		for _, row := range configRows(page, tt.heading) {
			onPage = append(onPage, documentedField{unquoted(row[0]), unquoted(row[1])})
		}
		if diff := cmp.Diff(commentedFields(t, tt.typ), onPage); diff != "" {
			t.Errorf("docs/configuration.md, of %s (-comments +page):\n%s", tt.typ, diff)
		}
	}
}

// configRows returns the rows of the table whose heading is just this one.
func configRows(page, heading string) [][]string {
	_, rest, _ := strings.Cut(page, "\n| "+heading+" | default |")
	text, _, _ := strings.Cut(rest, "\n\n")
	return tableRows("| field |"+text, "field")
}

// commentedFields returns the fields of a struct in config.go, and the defaults
// with which their comments end.
func commentedFields(t *testing.T, typ string) []documentedField {
	t.Helper()
	var fields []documentedField
	for _, f := range structFields(t, typ) {
		fields = append(fields, commentedField(t, f))
	}
	return fields
}

// structFields returns the fields of a struct in config.go.
func structFields(t *testing.T, typ string) []*ast.Field {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var fields []*ast.Field
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != typ {
			return true
		}
		fields = spec.Type.(*ast.StructType).Fields.List
		return false
	})
	return fields
}

func commentedField(t *testing.T, f *ast.Field) documentedField {
	t.Helper()
	if len(f.Names) != 1 || f.Tag == nil {
		t.Fatalf("%v: not one field with a tag", f.Names)
	}
	text := strings.Join(strings.Fields(f.Doc.Text()), " ")
	if name := f.Names[0].Name; !strings.HasPrefix(text, name+" ") {
		t.Errorf("the comment of %s does not begin with it: %q", name, text)
	}
	i := strings.LastIndex(text, " Default ")
	if i < 0 || !strings.HasSuffix(text, ".") {
		t.Fatalf("the comment of %s does not end in its default: %q", f.Names[0].Name, text)
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	return documentedField{reflect.StructTag(tag).Get("json"), strings.TrimSuffix(text[i+len(" Default "):], ".")}
}

// TestConfigDefaultsAreDocumented makes a configuration of the defaults on the
// page, and wants it to be that of an empty file.
func TestConfigDefaultsAreDocumented(t *testing.T) {
	page := readFile(t, "../../docs/configuration.md")
	var text strings.Builder
	var inWords []string
	add := func(indent, heading string) {
		for _, row := range configRows(page, heading) {
			if row[1] == "as below" {
				continue
			}
			if !strings.HasPrefix(row[1], "`") {
				inWords = append(inWords, row[1])
				continue
			}
			value := strings.ReplaceAll(unquoted(row[1]), "<istioNamespace>", "istio-system")
			text.WriteString(indent + unquoted(row[0]) + ": " + value + "\n")
		}
	}
	add("", "field")
	text.WriteString("limits:\n")
	add("  ", "field of `limits`")
	got, err := parseConfig([]byte(text.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	want, err := parseConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-real +page):\n%s", diff)
	}
	if n := strings.Count(text.String(), "\n"); n < 29 {
		t.Errorf("the page has only %d defaults:\n%s", n, text.String())
	}
	if !slices.Equal(inWords, []string{"that of the server's own token, and the API server's", "256 for each processor"}) ||
		len(want.Issuers) > 0 || want.Limits.InFlight != 256*runtime.GOMAXPROCS(0) {
		t.Errorf("the page says of defaults: %q", inWords)
	}
}

func TestConfigExampleParses(t *testing.T) {
	_, rest, _ := strings.Cut(readFile(t, "../../docs/configuration.md"), "```yaml\n")
	text, _, ok := strings.Cut(rest, "```")
	c, err := parseConfig([]byte(text))
	if err != nil || !ok {
		t.Fatalf("%v in\n%s", err, text)
	}
	if cmp.Equal(c, defaultConfig()) || c.TrustDomain != "example.org" {
		t.Errorf("the example changes nothing: %+v", c)
	}
}

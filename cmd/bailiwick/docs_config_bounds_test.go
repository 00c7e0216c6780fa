package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A boundedField is a row of docs/configuration.md.
type boundedField struct{ name, def, typ, bounds, meaning string }

// boundedFields returns the rows of both tables, with names as in "limits.hold".
func boundedFields(t *testing.T) []boundedField {
	t.Helper()
	page := readFile(t, "../../docs/configuration.md")
	var all []boundedField
	for prefix, heading := range map[string]string{"": "field", "limits.": "field of `limits`"} {
		for _, row := range configRows(page, heading) {
			if len(row) != 5 || row[4] == "" {
				t.Fatalf("%q is not a row of five columns with a meaning", row)
			}
			all = append(all, boundedField{prefix + unquoted(row[0]), unquoted(row[1]), row[2], row[3], row[4]})
		}
	}
	return all
}

// TestConfigTypesAreDocumented compares the types on the page with the struct.
func TestConfigTypesAreDocumented(t *testing.T) {
	real := make(map[string]string)
	typesOf(reflect.TypeFor[Config](), "", real)
	for _, f := range boundedFields(t) {
		if real[f.name] != f.typ {
			t.Errorf("%s is of type %q, the page says %q", f.name, real[f.name], f.typ)
		}
		delete(real, f.name)
	}
	if len(real) > 0 {
		t.Errorf("not on the page: %v", real)
	}
}

func typesOf(s reflect.Type, prefix string, all map[string]string) {
	words := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "bool", reflect.Slice: "list", reflect.Int64: "duration", reflect.Int: "integer",
		reflect.Float32: "number", reflect.Struct: "mapping",
	}
	for f := range s.Fields() {
		name := prefix + f.Tag.Get("json")
		all[name] = words[f.Type.Kind()]
		if f.Type.Kind() == reflect.Struct {
			typesOf(f.Type, name+".", all)
		}
	}
}

// TestConfigBoundsAreDocumented tries every bound on the page: what is just
// within is taken, and what is just beyond is refused or warned about.
func TestConfigBoundsAreDocumented(t *testing.T) {
	defaults := make(map[string]string)
	fields := boundedFields(t)
	for _, f := range fields {
		defaults[f.name] = f.def
	}
	tried := 0
	for _, f := range fields {
		for bound := range strings.SplitSeq(f.bounds, ", ") {
			if bound == "" {
				continue
			}
			tried++
			within, beyond := aroundBound(t, f, bound, defaults)
			mayWarn := strings.HasPrefix(bound, "warned")
			if within != nil {
				if refused, warned := try(t, f.name, within); refused || mayWarn && warned {
					t.Errorf("%s: %v is within %q, and refused (%t) or warned about (%t)", f.name, within, bound, refused, warned)
				}
			}
			if refused, warned := try(t, f.name, beyond); refused == mayWarn || warned != mayWarn {
				t.Errorf("%s: %v is beyond %q, and refused (%t) or warned about (%t)", f.name, beyond, bound, refused, warned)
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d bounds were tried", tried)
	}
}

// TestConfigZeroIsDocumented sets each field to nothing, and wants what comes of
// it to be what its bounds say, if they say anything of it.
func TestConfigZeroIsDocumented(t *testing.T) {
	zero := map[string]any{"string": "", "list": []string{}, "bool": false, "duration": "0s", "integer": 0, "number": 0}
	for _, f := range boundedFields(t) {
		nothing, ok := zero[f.typ]
		if !ok {
			continue
		}
		refused, warned := try(t, f.name, nothing)
		says := func(bounds string) bool { return regexp.MustCompile(bounds).MatchString(f.bounds) }
		if refused != says("not empty|at least|more than") || warned != says("warned if empty") {
			t.Errorf("%s: %v is refused (%t), or warned about (%t); its bounds are %q", f.name, nothing, refused, warned, f.bounds)
		}
	}
}

// aroundBound returns a value that a bound allows, or nil if none is known to be
// good beside the other defaults, and one that it does not.
func aroundBound(t *testing.T, f boundedField, bound string, defaults map[string]string) (within, beyond any) {
	t.Helper()
	kind, text, _ := strings.Cut(bound, " ")
	if kind == "at" || kind == "more" || kind == "warned" {
		var word string
		word, text, _ = strings.Cut(text, " ")
		kind += " " + word
	}
	if def, ok := defaults[text]; ok { // the bound is another field
		text = def
	}
	switch kind {
	case "not":
		return nil, map[string]any{"string": "", "list": []string{}}[f.typ]
	case "warned if":
		return nil, map[string]any{"true": true, "empty": []string{}}[text]
	case "at least", "warned below":
		return step(t, f, text, 0), step(t, f, text, -1)
	case "more than":
		return nil, step(t, f, text, 0)
	case "warned above":
		return step(t, f, text, 0), step(t, f, text, 1)
	case "below":
		return step(t, f, text, -1), step(t, f, text, 0)
	}
	t.Fatalf("%s has the bound %q, which nothing can try", f.name, bound)
	return nil, nil
}

// step returns the value that is some steps from the one that text has. A step
// is a second, or less where the value itself is not more, or 1.
func step(t *testing.T, f boundedField, text string, steps int) any {
	t.Helper()
	if f.typ != "duration" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		return n + steps
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", f.name, err)
	}
	size := time.Second
	if d <= size {
		size = time.Millisecond
	}
	return (d + time.Duration(steps)*size).String()
}

// try sets one field, and says whether that is refused, or warned about, by
// name.
func try(t *testing.T, name string, value any) (refused, warned bool) {
	t.Helper()
	config := map[string]any{name: value}
	if field, ok := strings.CutPrefix(name, "limits."); ok {
		config = map[string]any{"limits": map[string]any{field: value}}
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseConfig(text)
	if err != nil {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: refused without naming it: %v", text, err)
		}
		return true, false
	}
	for _, w := range c.warnings() {
		if !strings.Contains(w, name) {
			t.Errorf("%s: warned of something else: %s", text, w)
		}
		warned = true
	}
	return false, warned
}

// TestConfigNumbersAreDocumented wants every number in the comment of a field,
// its default aside, on the page too.
func TestConfigNumbersAreDocumented(t *testing.T) {
	rows := make(map[string]boundedField)
	for _, f := range boundedFields(t) {
		rows[f.name] = f
	}
	number := regexp.MustCompile(`\b\d+[hms]?\b`)
	found := 0
	for prefix, typ := range map[string]string{"": "Config", "limits.": "LimitsConfig"} {
		for name, comment := range comments(t, typ) {
			row := rows[prefix+name]
			onPage := fmt.Sprint(number.FindAllString(row.bounds+" "+row.meaning+" "+row.def, -1))
			for _, n := range number.FindAllString(comment, -1) {
				found++
				if !regexp.MustCompile(`[\[ ]` + n + `[\] ]`).MatchString(onPage) {
					t.Errorf("the comment of %s says %s, and the page has %s", prefix+name, n, onPage)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("the comments have only %d numbers", found)
	}
}

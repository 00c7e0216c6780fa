package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		name     string
		coloured bool
		rows     [][]cell
		want     string
	}{
		{"narrower than its headings", false, [][]cell{row("HOLDS", "RULE"), row("a", "b")}, "HOLDS  RULE\na      b\n"},
		{"wider than its headings", false, [][]cell{row("A", "B"), row("wide", "b")}, "A     B\nwide  b\n"},
		{"nothing in a corner, and nothing trailing", false, [][]cell{row("", "NAME", "X"), row("leaf", "n", ""), row("leaf", "", "x")}, "      NAME  X\nleaf  n\nleaf        x\n"},
		{"letters of several bytes", false, [][]cell{row("é", "x"), row("ab", "y")}, "é   x\nab  y\n"},
		{"what would move the cursor", false, [][]cell{row("a\tb\n\x1b[31m", "x")}, `"a\tb\n\x1b[31m"  x` + "\n"},
		{"colours on a terminal", true, [][]cell{{{"yes", green}, {"a", noColour}}, {{"NO", red}, {"b", noColour}}}, "\x1b[32myes\x1b[0m  a\n\x1b[31mNO\x1b[0m   b\n"},
		{"no colours elsewhere", false, [][]cell{{{"yes", green}, {"a", noColour}}, {{"NO", red}, {"b", noColour}}}, "yes  a\nNO   b\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := sheet{coloured: tt.coloured}
			if s.table(tt.rows); s.String() != tt.want {
				t.Errorf("got  %q\nwant %q", s.String(), tt.want)
			}
		})
	}
}

func TestWantsColours(t *testing.T) {
	for _, tt := range []struct {
		terminal      bool
		noColor, term string
		want          bool
	}{
		{true, "", "xterm-256color", true},
		{false, "", "xterm-256color", false},
		{true, "1", "xterm-256color", false},
		{true, "0", "xterm-256color", false},
		{true, "", "dumb", false},
		{true, "", "", false},
	} {
		getenv := func(name string) string { return map[string]string{"NO_COLOR": tt.noColor, "TERM": tt.term}[name] }
		if got := wantsColours(tt.terminal, getenv); got != tt.want {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // nothing was written
	getenv := func(name string) string { return map[string]string{"TERM": "xterm"}[name] }
	if _, ok := onTerminal(file, getenv).(colourful); ok {
		t.Error("a file is taken for a terminal")
	}
}

// TestColoursOnlyColour runs commands for a terminal and for a file: they differ
// by the colours, and in JSON not at all.
func TestColoursOnlyColour(t *testing.T) {
	d := serveDemo(t, io.Discard)
	explain := []string{"explain", "--objects", d.dir + "/cluster.yaml", "--node", "node-a", "--identity"}
	sgr := regexp.MustCompile("\x1b\\[[0-9]+m")
	for _, args := range [][]string{
		append(explain[:6:6], "spiffe://cluster.local/ns/shop/sa/pay"), append(explain[:6:6], "spiffe://cluster.local/ns/shop/sa/cart"),
		{"check", "--config", d.dir + "/config.yaml"},
	} {
		var plain, coloured, document bytes.Buffer
		codes := [3]int{
			run(t.Context(), args, &plain, io.Discard),
			run(t.Context(), args, colourful{&coloured}, io.Discard),
			run(t.Context(), append(args, "-o", "json"), colourful{&document}, io.Discard),
		}
		if codes[0] != codes[1] || codes[1] != codes[2] {
			t.Errorf("%q: exit codes %v", args, codes)
		}
		if strings.Contains(plain.String(), "\x1b") || strings.Contains(document.String(), "\x1b") {
			t.Errorf("%q has colours in\n%q\n%q", args, plain.String(), document.String())
		}
		if got := sgr.ReplaceAllString(coloured.String(), ""); got != plain.String() || got == coloured.String() {
			t.Errorf("%q prints for a terminal\n%q\nand otherwise\n%q", args, coloured.String(), plain.String())
		}
	}
}

func TestPrintableLines(t *testing.T) {
	for text, want := range map[string]string{
		"a\n\tb é\n":          "a\n\tb é\n",
		"a\x1b[31m\r\u009b\"": `a\x1b[31m\r\u009b"`,
		"a\xffb":              `a\xffb`,
	} {
		if got := printableLines(text); got != want {
			t.Errorf("printableLines(%q) = %q, want %q", text, got, want)
		}
	}
	objects := t.TempDir() + "/o.yaml"
	if err := os.WriteFile(objects, []byte(`{apiVersion: v1, kind: Pod, metadata: {namespace: a, name: b, uid: u}, spec: {serviceAccountName: "x\e[2J"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if run(t.Context(), []string{"explain", "--objects", objects, "--as", "a/b"}, &out, &out); !strings.Contains(out.String(), `a/x\x1b[2J`) {
		t.Errorf("%q", out.String())
	}
}

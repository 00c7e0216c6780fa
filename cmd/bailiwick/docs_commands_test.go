package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-ca/bailiwick/ca"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// TestCommandsAreDocumented compares docs/commands.md with the commands that
// there are: their names, flags and defaults.
func TestCommandsAreDocumented(t *testing.T) {
	page := readFile(t, "../../docs/commands.md")
	var names, sections []string
	for _, cmd := range newRoot().Commands() {
		names = append(names, cmd.Name())
		_, rest, _ := strings.Cut(page, "\n## `bailiwick "+cmd.Name()+"`\n")
		section, _, _ := strings.Cut(rest, "\n## ")
		checkFlags(t, cmd, section)
	}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## `bailiwick "); ok {
			sections = append(sections, unquoted(name))
		}
	}
	slices.Sort(names)
	slices.Sort(sections)
	if diff := cmp.Diff(names, sections); diff != "" {
		t.Errorf("sections (-commands +page):\n%s", diff)
	}
}

func checkFlags(t *testing.T, cmd *cobra.Command, section string) {
	t.Helper()
	real, onPage := make(map[string]string), make(map[string]string)
	for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
		name := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "-o, "))[0]
		real[name] = cmd.LocalFlags().Lookup(strings.TrimPrefix(name, "--")).DefValue
	}
	for _, row := range tableRows(section, "flag") {
		name, _, _ := strings.Cut(row[0], ",") // a short one may follow
		name, value := unquoted(name), unquoted(row[1])
		// What is empty, or 0, until somebody sets it is told in words.
		if (real[name] == "" || real[name] == "0s") && row[1] != "" && !strings.HasPrefix(row[1], "`") {
			value = real[name]
		}
		onPage[name] = value
	}
	if diff := cmp.Diff(real, onPage); diff != "" {
		t.Errorf("flags of %s (-real +page):\n%s", cmd.Name(), diff)
	}
}

func TestExitCodesAreDocumented(t *testing.T) {
	var got []string
	for _, row := range tableRows(readFile(t, "../../docs/commands.md"), "exit code") {
		got = append(got, unquoted(row[0]))
	}
	var want []string
	for _, code := range []int{exitOK, exitFailed, exitUsage, exitRefused, exitUnknown} {
		want = append(want, strconv.Itoa(code))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exit codes (-real +page):\n%s", diff)
	}
}

// TestToldReasonsAreDocumented compares docs/commands.md with what a server tells
// its clients: the words on the page with those in the code of the server, and
// three of them with answers.
func TestToldReasonsAreDocumented(t *testing.T) {
	documented := make(map[string]string) // codes by word
	_, section, _ := strings.Cut(readFile(t, "../../docs/commands.md"), "\n### Reasons told\n")
	for _, row := range tableRows(section, "`error.reason`") {
		for word := range strings.SplitSeq(row[0], "`, `") {
			documented[unquoted(word)] = row[1]
		}
	}
	want := map[string]string{"not-on-node": "", "node-mismatch": "", "bad-metadata": ""}
	_, code, _ := strings.Cut(readFile(t, "../../ca/server/status.go"), "\nfunc (s *Server) outward(")
	code, _, _ = strings.Cut(code, "\n}\n")
	for _, m := range regexp.MustCompile(`return "([^"]+)"`).FindAllStringSubmatch(code, -1) {
		want[m[1]] = ""
	}
	for _, r := range []ca.Reason{ca.BadCSR, ca.BadKey, ca.NoPossession, ca.CSRNamesAnother, ca.BadLifetime} {
		want[string(r)] = ""
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("(-code +page):\n%s", diff)
	}
	d := serveDemo(t, io.Discard)
	bad := filepath.Join(d.dir, "bad.token")
	if err := os.WriteFile(bad, []byte("a.b.c"), 0o600); err != nil {
		t.Fatal(err)
	}
	for word, args := range map[string][]string{
		"not-on-node":     d.request("ztunnel-a", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"),
		"denied":          d.request("cart-1", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"),
		"unauthenticated": d.request("cart-1", "--token", bad),
		"bad-lifetime":    d.request("cart-1", "--life", "1s"),
	} {
		var out bytes.Buffer
		run(t.Context(), append(args, "-o", "json"), &out, io.Discard)
		var f failureReport
		if err := json.Unmarshal(out.Bytes(), &f); err != nil {
			t.Fatal(err)
		}
		if f.Error.Reason != word || unquoted(documented[word]) != f.Error.Code {
			t.Errorf("told %q with %s, want %q, and the page has %s", f.Error.Reason, f.Error.Code, word, documented[word])
		}
	}
}

// TestReadmeShowsTheDemo wants every line of the demonstration that the README
// shows to be one that it prints. Columns may be narrower there.
func TestReadmeShowsTheDemo(t *testing.T) {
	_, rest, ok := strings.Cut(readFile(t, "../../README.md"), "    WHO ASKS")
	text, _, _ := strings.Cut("    WHO ASKS"+rest, "\n\n")
	var out bytes.Buffer
	if code := run(t.Context(), []string{"demo"}, &out, &out); code != 0 || !ok {
		t.Fatalf("exit code %d\n%s", code, out.String())
	}
	printed := make(map[string]bool)
	for line := range strings.Lines(out.String()) {
		printed[words(line)] = true
	}
	shown := 0
	for line := range strings.Lines(text) {
		if words(line) == "[...]" {
			continue
		}
		shown++
		if !printed[words(line)] {
			t.Errorf("README.md shows %q, which demo does not print", words(line))
		}
	}
	if shown < 4 {
		t.Errorf("README.md shows %d lines of the demo", shown)
	}
}

func words(line string) string { return fmt.Sprint(strings.Fields(line)) }

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/bailiwick-ca/bailiwick/e2e/conformance"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A served demonstration is one that can be asked, with the files for it.
type served struct {
	*demonstration

	dir string
}

func serveDemo(t *testing.T, audit io.Writer) *served {
	t.Helper()
	d, err := newDemonstration("127.0.0.1:0", audit, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.service.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s := &served{d, t.TempDir()}
	if err := d.invite(s.dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	return s
}

// request returns the arguments of a request with the token of a pod.
func (s *served) request(pod string, more ...string) []string {
	return append([]string{"request", "--address", s.address(), "--server-name", "localhost",
		"--root", filepath.Join(s.dir, "root-cert.pem"), "--token", filepath.Join(s.dir, pod+".token")}, more...)
}

// TestOutputIsOneDocument runs commands that end in every way with --output json,
// and compares the fields of all that they print with docs/commands.md.
func TestOutputIsOneDocument(t *testing.T) {
	d := serveDemo(t, io.Discard)
	material := cacerts(t)
	config := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(config, []byte("minLeafLife: 1m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const pay, cart = "spiffe://cluster.local/ns/shop/sa/pay", "spiffe://cluster.local/ns/shop/sa/cart"
	explain := []string{"explain", "--objects", filepath.Join(d.dir, "cluster.yaml"), "--node", "node-a", "--identity"}
	out := filepath.Join(t.TempDir(), "out")
	fields := make(map[string]map[string]bool) // by section of the page
	for _, tt := range []struct {
		args    []string
		code    int
		section string
	}{
		{[]string{"version"}, 0, "`bailiwick version`"},
		{[]string{"conformance", "--list"}, 0, "`bailiwick conformance`"},
		{[]string{"demo"}, 0, "`bailiwick demo`"},
		{d.request("ztunnel-a", "--identity", cart, "--out", out), 0, "`bailiwick request`"},
		{append(slices.Clone(explain), cart), 0, "`bailiwick explain`"},
		{append(slices.Clone(explain), pay), 3, "`bailiwick explain`"},
		{[]string{"check", "--config", config, "--material", material}, 0, "`bailiwick check`"},
		{d.request("ztunnel-a", "--identity", pay), 3, "Output"},
		{d.request("ztunnel-a", "--life", "1ms"), 2, "Output"},
		{[]string{"request", "--root", filepath.Join(d.dir, "root-cert.pem"), "--token", filepath.Join(d.dir, "ztunnel-a.token"), "--address", "127.0.0.1:1"}, 4, "Output"},
		{append(slices.Clone(explain), cart, "--as", "a/b"), 1, "Output"},
		{[]string{"check"}, 2, "Output"},
		{[]string{"check", "--material", out}, 3, "Output"},
		{[]string{"demo", "--keep-running"}, 2, "Output"},
		{[]string{"demo", "--listen", "nowhere"}, 1, "Output"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append(tt.args, "-o", "json"), &stdout, &stderr)
		if code != tt.code || stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, want %d, and on standard error: %s", tt.args, code, tt.code, stderr.String())
		}
		text := stdout.String()
		if strings.Contains(text, "PRIVATE KEY") || strings.Contains(text, "eyJ") {
			t.Errorf("%q prints a key or a token:\n%s", tt.args, text)
		}
		if fields[tt.section] == nil {
			fields[tt.section] = make(map[string]bool)
		}
		collect(fields[tt.section], "", oneDocumentOf(t, text))
	}
	// What a run finds depends on a cluster; what it is printed as does not.
	var text strings.Builder
	judged := &conformance.Report{Results: []conformance.Result{{Evidence: []string{"x"}}}}
	if err := (&printer{w: &text, format: asJSON}).print(&conformanceReport{judged, judged.Verdict()}); err != nil {
		t.Fatal(err)
	}
	collect(fields["`bailiwick conformance`"], "", oneDocumentOf(t, text.String()))
	page := "\n" + readFile(t, "../../docs/commands.md")
	for section, found := range fields {
		_, rest, _ := strings.Cut(page, "\n## "+section+"\n")
		rest, _, _ = strings.Cut(rest, "\n## ")
		documented := make(map[string]bool)
		for _, row := range tableRows(rest, "field") {
			documented[unquoted(row[0])] = true
		}
		if diff := cmp.Diff(found, documented); diff != "" {
			t.Errorf("section %s (-printed +page):\n%s", section, diff)
		}
	}
}

// oneDocumentOf returns what text is, if it is one JSON document and no more.
func oneDocumentOf(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Errorf("%v in %q", err, text)
	}
	return value
}

// collect adds the paths of the values in a document.
func collect(into map[string]bool, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			collect(into, strings.TrimPrefix(path+"."+name, "."), inner)
		}
	case []any:
		if len(v) == 0 {
			into[path+"[]"] = true
		}
		for _, inner := range v {
			collect(into, path+"[]", inner)
		}
	default:
		into[path] = true
	}
}

// TestBadFlagsAreToldInWords wants no half of a document.
func TestBadFlagsAreToldInWords(t *testing.T) {
	for _, args := range [][]string{{"check", "-o", "json", "--nope"}, {"check", "-o", "yaml"}, {"check", "-o", "json", "x"}, {"nope", "-o", "json"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 2 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "--help") {
			t.Errorf("%q: exit code %d, %q and %q", args, code, stdout.String(), stderr.String())
		}
	}
}

// TestErrorsAreTheSame wants the message of the JSON document to be what is
// printed without it, and nothing of a failure on standard output then.
func TestErrorsAreTheSame(t *testing.T) {
	for _, args := range [][]string{{"check"}, {"check", "--material", "no/such"}, {"explain", "--node", "n", "--objects", "no/such"}} {
		var stdout, stderr, document bytes.Buffer
		run(t.Context(), args, &stdout, &stderr)
		run(t.Context(), append(args, "--output", "json"), &document, io.Discard)
		var f failureReport
		if err := json.Unmarshal(document.Bytes(), &f); err != nil {
			t.Error(err)
		}
		if want := "bailiwick: " + f.Error.Message + "\n"; f.Error.Message == "" || stdout.Len() > 0 || stderr.String() != want {
			t.Errorf("%q prints %q and %q, want %q", args, stdout.String(), stderr.String(), want)
		}
	}
}

// TestCompletion asks as the scripts for shells do.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"completion", shell}, &out, io.Discard); code != 0 || !strings.Contains(out.String(), " __complete ") {
			t.Errorf("%s: exit code %d, and no script in %.200q", shell, code, out.String())
		}
	}
	const files, nothing, directories = ":0", ":4", ":16" // of cobra's ShellCompDirective
	for _, tt := range []struct{ args, want string }{
		{"che", "check\tCheck a configuration and key material before the server gets them\n:4"},
		{"check ", nothing},
		{"check --output ", "text\njson\n:4"},
		{"version -o ", "text\njson\n:4"},
		{"check --config ", files},
		{"check --material ", directories},
		{"demo --listen ", nothing},
		{"demo --output ", "text\njson\n:4"},
		{"request --address ", nothing},
		{"request --server-name ", nothing},
		{"request --identity ", nothing},
		{"request --life ", nothing},
		{"request --timeout ", nothing},
		{"request --root ", files},
		{"request --token ", files},
		{"request --out ", directories},
		{"explain --node ", nothing},
		{"explain --identity ", nothing},
		{"explain --as ", nothing},
		{"explain --objects ", files},
		{"explain --kubeconfig ", files},
		{"explain --config ", files},
		{"serve --config ", files},
		{"serve --kubeconfig ", files},
		{"serve --material ", directories},
		{"serve --listen ", nothing},
		{"serve --http ", nothing},
		{"request --ro", "--root\t`file` with the roots of its certificate, such as root-cert.pem\n:4"},
	} {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"__complete"}, strings.Split(tt.args, " ")...), &out, io.Discard)
		if code != 0 || out.String() != tt.want+"\n" {
			t.Errorf("%q completes to %q, exit code %d; want %q", tt.args, out.String(), code, tt.want)
		}
	}
}

// A full writer takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestFailedWritesAreTold has a standard output that takes nothing, and wants
// that on standard error, whatever the format and the answer.
func TestFailedWritesAreTold(t *testing.T) {
	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(cluster, demoCluster, 0o600); err != nil {
		t.Fatal(err)
	}
	denied := []string{"explain", "--objects", cluster, "--node", "node-a", "--identity", "spiffe://cluster.local/ns/shop/sa/pay"}
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"version"}, 1},
		{[]string{"version", "-o", "json"}, 1},
		{denied, 1},
		{append(slices.Clone(denied), "-o", "json"), 1},
		{[]string{"check", "-o", "json"}, 2}, // whose document is that of a failure
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), tt.args, full{}, &stderr); code != tt.code || stderr.String() != "bailiwick: no space left\n" {
			t.Errorf("%q: exit code %d, want %d, and %q", tt.args, code, tt.code, stderr.String())
		}
	}
}

// TestServersWordsAreQuoted has a server whose message would move the cursor, or
// look like a line of ours.
func TestServersWordsAreQuoted(t *testing.T) {
	err := &answerError{status.Error(codes.Unavailable, "x\n\x1b[2Jbailiwick: \u009bissued")}
	if got, want := err.Error(), `Unavailable: "x\n\x1b[2Jbailiwick: \u009bissued"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDocumentsHaveNoControlCharacters wants what a terminal would obey to be
// escaped in JSON too, and to mean the same.
func TestDocumentsHaveNoControlCharacters(t *testing.T) {
	var out bytes.Buffer
	want := versionReport{Version: "\x1b \u009b31m \x7f é \u0085", Go: "<&>"}
	if err := (&printer{w: &out, format: asJSON}).print(&want); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
		t.Errorf("%q", out.String())
	}
	var got versionReport
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

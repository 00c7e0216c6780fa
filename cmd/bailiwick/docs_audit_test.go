package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAuditIsDocumented compares docs/audit.md, its table and its examples, with
// the fields of lines that requests leave.
func TestAuditIsDocumented(t *testing.T) {
	page := readFile(t, "../../docs/audit.md")
	real := auditLines(t)
	table := make(map[string][]string) // by kind of line
	for _, row := range tableRows(page, "field") {
		for kind := range strings.SplitSeq(row[1], ", ") {
			if kind == "every" {
				for kind := range real {
					table[kind] = append(table[kind], unquoted(row[0]))
				}
				continue
			}
			table[kind] = append(table[kind], unquoted(row[0]))
		}
	}
	examples := make(map[string][]string)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "{") {
			kind, fields := fieldsOf(t, []byte(line))
			examples[kind] = fields
		}
	}
	for kind, want := range real {
		slices.Sort(table[kind])
		if diff := cmp.Diff(want, table[kind]); diff != "" {
			t.Errorf("the table, of %q lines (-real +page):\n%s", kind, diff)
		}
		if diff := cmp.Diff(want, examples[kind]); diff != "" {
			t.Errorf("the example of %q lines (-real +page):\n%s", kind, diff)
		}
	}
	if kinds := slices.Sorted(maps.Keys(table)); len(kinds) != len(real) {
		t.Errorf("the page has lines of the kinds %q", kinds)
	}
}

// auditLines returns the fields of each kind of line that requests leave: one
// that is granted, and one that is refused and then repeated.
func auditLines(t *testing.T) map[string][]string {
	t.Helper()
	var audit bytes.Buffer
	d, err := newDemonstration("127.0.0.1:0", &audit, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	ask := asker(t, d)
	for identity, granted := range map[string]bool{"cart": true, "pay": false} {
		for range 2 {
			if err := ask("spiffe://cluster.local/ns/shop/sa/" + identity); (err == nil) != granted {
				t.Errorf("%s: %v", identity, err)
			}
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	kinds := make(map[string][]string)
	for line := range strings.Lines(audit.String()) {
		kind, fields := fieldsOf(t, []byte(line))
		kinds[kind] = fields
	}
	if names := slices.Sorted(maps.Keys(kinds)); !slices.Equal(names, []string{"issued", "refused", "repeats"}) {
		t.Fatalf("there are lines of the kinds %q", names)
	}
	return kinds
}

// TestBadTokenLine asks for an identity with a token that is not accepted, and
// wants the line that the page shows: nobody is known, and what was asked for was
// not looked at.
func TestBadTokenLine(t *testing.T) {
	var audit bytes.Buffer
	d, err := newDemonstration("127.0.0.1:0", &audit, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	_, err = clientOf(t, d).request(t.Context(), ask{token: "a.b.c", identity: cartIdentity})
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if reason, _ := told(status.Convert(err)); reason != "unauthenticated" {
		t.Errorf("the client is told %q", reason)
	}
	steady := regexp.MustCompile(`"(time|requestId|peer)":"[^"]*"`)
	got := steady.ReplaceAllString(audit.String(), "")
	for line := range strings.Lines(readFile(t, "../../docs/audit.md")) {
		if steady.ReplaceAllString(line, "") == got {
			return
		}
	}
	t.Errorf("the page does not show %s", audit.String())
}

// TestTooLargeLeavesNothing is what docs/audit.md and docs/wire.md say of a
// message over 64 KiB.
func TestTooLargeLeavesNothing(t *testing.T) {
	var audit bytes.Buffer
	d, err := newDemonstration("127.0.0.1:0", &audit, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	s := status.Convert(asker(t, d)(strings.Repeat("x", 64<<10)))
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if s.Code() != codes.ResourceExhausted || len(s.Details()) > 0 || strings.Contains(s.Message(), "(request ") || audit.Len() > 0 {
		t.Errorf("answer %v with %v, and the audit record has: %s", s, s.Details(), audit.String())
	}
}

// asker returns what asks as the agent of node-a, and only whether it got it.
func asker(t *testing.T, d *demonstration) func(identity string) error {
	t.Helper()
	ask := replier(t, d)
	return func(identity string) error {
		_, err := ask(identity)
		return err
	}
}

// replier returns what asks as the agent of node-a.
func replier(t testing.TB, d *demonstration) func(identity string) (*reply, error) {
	t.Helper()
	caller, err := d.objects.caller("istio-system/ztunnel-a")
	if err != nil {
		t.Fatal(err)
	}
	token, err := goodToken(d, caller)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, d)
	return func(identity string) (*reply, error) {
		return c.request(t.Context(), ask{token: token, identity: identity})
	}
}

// clientOf returns a client of a demonstration.
func clientOf(t testing.TB, d *demonstration) *client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(d.authority.Root())
	c, err := dial(d.address(), "localhost", roots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.close() }) //nolint:errcheck // every answer is there
	return c
}

// fieldsOf returns the sorted names of the fields in a line, those of groups
// with a dot, and which kind of line it is.
func fieldsOf(t *testing.T, line []byte) (kind string, names []string) {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	for name, value := range fields {
		group, ok := value.(map[string]any)
		if !ok {
			names = append(names, name)
		}
		for inner := range group {
			names = append(names, name+"."+inner)
		}
	}
	slices.Sort(names)
	kind, _ = fields["msg"].(string)
	if slices.Contains(names, "repeats") {
		kind = "repeats"
	}
	return kind, names
}

// tableRows returns the rows of the tables on a page whose first column has a
// heading.
func tableRows(page, heading string) [][]string {
	var rows [][]string
	in := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			in = false
		case cells[0] == heading || strings.HasPrefix(cells[0], heading+" "):
			in = true
		case in && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func unquoted(cell string) string { return strings.Trim(cell, "`") }

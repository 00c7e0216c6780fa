package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bailiwick-ca/bailiwick/e2e/conformance"
)

// TestReportIsOfTheSuite compares the report in docs/conformance.md with the
// cases that there are. What came of them is what was measured; the tests of
// e2e/kubernetes see to it that it stays so.
func TestReportIsOfTheSuite(t *testing.T) {
	var got, want [][]string
	for _, row := range tableRows(readFile(t, "../../docs/conformance.md"), "case") {
		got = append(got, []string{unquoted(row[0]), row[1], row[3]})
		if row[2] != "passed" && row[2] != "not run" {
			t.Errorf("%s %s", row[0], row[2])
		}
	}
	for _, c := range conformance.Cases() {
		want = append(want, []string{c.ID, string(c.Level), strings.ReplaceAll(c.Says, "<", "&lt;")})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cases (-suite +page):\n%s", diff)
	}
}

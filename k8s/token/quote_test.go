package token

import (
	"strings"
	"testing"
)

// TestQuote has texts and lists at their bounds, and one more.
func TestQuote(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, tt := range []struct{ got, want string }{
		{quote(""), `""`},
		{quote("a\nb"), `"a\nb"`},
		{quote(x(128)), `"` + x(128) + `"`},
		{quote(x(129)), `"` + x(128) + `"...`},
		{quoteAll(nil), "[]"},
		{quoteAll(four()), `["a" "b" "c" "d"]`},
		{quoteAll(append(four(), "e")), `["a" "b" "c" "d" 1 more]`},
		{quoteAll(append(four(), "e", "f")), `["a" "b" "c" "d" 2 more]`},
		{redact("no aa, no bb, and c", "aa.bb.dd"), `"no (redacted), no (redacted), and c"`},
		{redact("a text", ".."), `"a text"`},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}

func four() []string { return []string{"a", "b", "c", "d"} }

// TestIsJust has what a review may say of a claim.
func TestIsJust(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   string
		just   bool
	}{
		{nil, "", true},
		{[]string{""}, "", true},
		{[]string{"a"}, "", false},
		{[]string{"", ""}, "", false},
		{[]string{"", "a"}, "", false},
		{nil, "a", false},
		{[]string{"a"}, "a", true},
		{[]string{"b"}, "a", false},
		{[]string{"a", "a"}, "a", false},
		{[]string{"a", "b"}, "a", false},
	} {
		if got := isJust(tt.values, tt.want); got != tt.just {
			t.Errorf("isJust(%q, %q) = %v", tt.values, tt.want, got)
		}
	}
}

package tiny

import (
	"slices"
	"testing"
)

func TestOperators(t *testing.T) {
	for _, tt := range []struct {
		a, b int
		want bool
	}{{9, 1, true}, {1, 2, true}, {2, 1, false}, {1, 1, false}, {0, 1, false}} {
		if operators(tt.a, tt.b) != tt.want {
			t.Error(tt)
		}
	}
}

func TestBare(t *testing.T) {
	if bare(true) != 1 || bare(false) != 3 || !odd(1) || !odd(3) || odd(0) || odd(2) {
		t.Error("bare or odd is wrong")
	}
}

func TestSwitches(t *testing.T) {
	if tagged(1) != some || tagged(2) != some || tagged(3) != none {
		t.Error("tagged is wrong")
	}
	if tagless(7) != "" || tagless(8) != "many" {
		t.Error("tagless is wrong")
	}
	if !typed("") || !typed(nil) || typed(1) {
		t.Error("typed is wrong")
	}
}

func TestLiterals(t *testing.T) {
	if p, m := literals("x"); p != (pair{"x", true}) || len(m) != 2 || !slices.Equal(table, []string{"a", "b"}) {
		t.Error("literals is wrong")
	}
}

func TestSurvivor(t *testing.T) {
	if survivor(4) || !survivor(6) {
		t.Error("survivor is wrong")
	}
}

func TestClamp(t *testing.T) {
	if clamp(0) != 1 || len(scales().steps) != 2 {
		t.Error("clamp or scales is wrong")
	}
}

// Package tiny has a mutant of each kind. Its tests kill those that they are
// meant to.
package tiny

type (
	word string
	pair struct {
		Name string
		good bool
	}
)

const (
	none word = ""
	some word = "some"
)

var table = []string{"a", "b"}

func operators(a, b int) bool { return a == 9 || a < b && a > 0 }

func bare(x bool) int {
	if x {
		return 1
	}
	if !odd(3) {
		return 2
	}
	return 3
}

func odd(n int) bool {
	for n > 1 {
		n -= 2
	}
	return n == 1
}

func tagged(n int) word {
	switch n {
	case 1, 2:
		return some
	default:
		return none
	}
}

func tagless(n int) (word string) {
	switch {
	case n > 7:
		word = "many"
	}
	return word
}

func typed(x any) bool {
	switch x := x.(type) {
	case string:
		return true
	case nil:
		return x == nil
	}
	return false
}

func literals(name string) (pair, map[string]int) {
	return pair{Name: name, good: true}, map[string]int{"one": 1, "two": 2}
}

// survivor is tested, but for its bound.
func survivor(n int) bool { return n >= 5 }

// unreached is not tested.
func unreached() bool { return true }

func clamp(n int) int { return max(1, min(n, 9)) }

type scale struct{ steps []float64 }

// scales has no mutant.
func scales() scale { return scale{steps: []float64{.1, 1}} }

package conformance

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A Report is what a run found, and about what.
type Report struct {
	Suite      string    `json:"suite"`      // version of the program with the suite
	Kubernetes string    `json:"kubernetes"` // version of the API server
	Address    string    `json:"address"`    // of the authority
	Began      time.Time `json:"began"`
	Results    []Result  `json:"results"`
}

// A Verdict is what a report comes to.
type Verdict string

// The verdicts. What is only expected, or promised by Bailiwick alone, does not
// count.
const (
	Conforms     Verdict = "conforms"         // every MUST held
	Violates     Verdict = "does not conform" // a MUST did not hold
	Undetermined Verdict = "undetermined"     // a MUST was not run, and none was seen not to hold
)

// Verdict returns what the report comes to. A case which is not in it was not
// run.
func (r *Report) Verdict() Verdict {
	outcomes := make(map[string]Outcome)
	for _, one := range r.Results {
		outcomes[one.ID] = one.Outcome
	}
	verdict := Conforms
	for _, c := range Cases() {
		switch o := outcomes[c.ID]; {
		case c.Level != Must:
		case o == Failed:
			return Violates
		case o != Passed:
			verdict = Undetermined
		}
	}
	return verdict
}

// A tally counts the outcomes of a group or a level.
type tally map[Outcome]int

// tallies counts by a property of the results, in the order in which it occurs.
func (r *Report) tallies(by func(Result) string) (order []string, counts map[string]tally) {
	counts = make(map[string]tally)
	for _, one := range r.Results {
		key := by(one)
		if counts[key] == nil {
			counts[key] = make(tally)
			order = append(order, key)
		}
		counts[key][one.Outcome]++
	}
	return order, counts
}

func byGroup(r Result) string { return Case{ID: r.ID}.Group() }
func byLevel(r Result) string { return string(r.Level) }

// WriteTable writes what did not pass, and how many did, for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	for _, one := range r.Results {
		if one.Outcome == Passed {
			continue
		}
		fmt.Fprintf(w, "%s %s (%s): %s\n", one.ID, strings.ToUpper(string(one.Outcome)), one.Level, one.Says) //nolint:errcheck // Flush tells
		for _, line := range one.Evidence {
			fmt.Fprintf(w, "    %s\n", line) //nolint:errcheck // Flush tells
		}
		fmt.Fprintf(w, "    required by: %s\n\n", one.Source) //nolint:errcheck // Flush tells
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, by := range []func(Result) string{byGroup, byLevel} {
		order, counts := r.tallies(by)
		fmt.Fprintln(t, "\tPASSED\tFAILED\tNOT RUN") //nolint:errcheck // Flush tells
		for _, key := range order {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", key, counts[key][Passed], counts[key][Failed], counts[key][NotRun]) //nolint:errcheck // Flush tells
		}
		fmt.Fprintln(t) //nolint:errcheck // Flush tells
	}
	return t.Flush()
}

// WriteMarkdown writes the report as a page.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance report: %s\n\n", r.Verdict())
	fmt.Fprintf(&b, "Suite %s, Kubernetes %s, %s.\n\n", r.Suite, r.Kubernetes, r.Began.UTC().Format(time.DateOnly))
	for _, by := range []func(Result) string{byLevel, byGroup} {
		order, counts := r.tallies(by)
		b.WriteString("| | passed | failed | not run |\n|---|---|---|---|\n")
		for _, key := range order {
			fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", key, counts[key][Passed], counts[key][Failed], counts[key][NotRun])
		}
		b.WriteString("\n")
	}
	b.WriteString("| case | level | outcome | what must be so | required by |\n|---|---|---|---|---|\n")
	for _, one := range r.Results {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", one.ID, one.Level, one.Outcome, cell(one.Says), cell(one.Source))
	}
	for _, one := range r.Results {
		if one.Outcome == Passed {
			continue
		}
		fmt.Fprintf(&b, "\n## `%s` %s\n\n", one.ID, one.Outcome)
		for _, line := range one.Evidence {
			fmt.Fprintf(&b, "* %s\n", cell(line))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell makes text fit for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}

package main

import "strings"

// A document is one of the YAML documents in a file.
type document struct {
	line int // of the file, where it begins
	text string
}

// documents takes apart what may be several YAML documents, which a parser of
// one cuts after the first without a word. Those that have nothing but comments
// in them are left out.
//
// A line that begins with "---" or "..." ends a document wherever it stands, in
// a quoted text too (YAML 1.2.2, Section 9.1.2, rule c-forbidden).
func documents(text string) []document {
	var all []document
	var b strings.Builder
	begin, number, some := 1, 0, false
	end := func() {
		if some {
			all = append(all, document{begin, b.String()})
		}
		b.Reset()
		some = false
	}
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\r\n")
		if rest, ok := afterMarker(line); ok {
			end()
			begin, line = number, rest
		}
		some = some || !isBlank(line)
		b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	end()
	return all
}

// afterMarker returns what follows a marker on its line.
func afterMarker(line string) (rest string, ok bool) {
	rest, start := strings.CutPrefix(line, "---")
	if !start {
		rest, ok = strings.CutPrefix(line, "...")
	}
	return rest, (start || ok) && (rest == "" || strings.ContainsAny(rest[:1], " \t\n\r"))
}

// isBlank reports whether a line has no more than a comment, or a directive
// about the document that follows.
func isBlank(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#' || line[0] == '%'
}

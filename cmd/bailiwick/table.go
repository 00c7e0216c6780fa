package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A colour is the number of an SGR parameter (ECMA-48, Section 8.3.117).
type colour int

const (
	noColour colour = 0
	red      colour = 31
	green    colour = 32
	yellow   colour = 33
)

// A sheet is text for people, before it is written.
type sheet struct {
	strings.Builder

	coloured bool
}

// A painted text is one of ours, with its colour in it.
type painted string

// printf formats what is ours. Texts among the arguments may be somebody else's,
// and are [printable] then.
func (s *sheet) printf(format string, args ...any) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = printable(text)
		}
	}
	fmt.Fprintf(s, format, args...) //nolint:errcheck // a Builder takes everything
}

// paint returns text in a colour, if the sheet has colours.
func (s *sheet) paint(c colour, text string) painted {
	text = printable(text)
	if !s.coloured || c == noColour {
		return painted(text)
	}
	return painted(fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, text))
}

// A cell is a text in a table.
type cell struct {
	text   string
	colour colour
}

// row returns cells without a colour.
func row(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i].text = text
	}
	return cells
}

// table writes rows of equally many cells, each column as wide as its widest
// text. Unlike text/tabwriter it knows that colours take no room.
func (s *sheet) table(rows [][]cell) {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(printable(cells[i].text)))
		}
	}
	for _, cells := range rows {
		blank := 0 // owed before the next text; nothing trails
		for i, c := range cells {
			text := printable(c.text)
			if text != "" {
				s.printf("%*s%s", blank, "", s.paint(c.colour, text))
				blank = 0
			}
			blank += widths[i] - utf8.RuneCountInString(text) + 2
		}
		s.printf("\n")
	}
}

// printable returns text as it is, or quoted if it has something in it that
// would move the cursor: names may come from a file.
func printable(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// printableLines is printable for several lines: what would move the cursor, but
// for the ends of lines and tabs, is escaped where it stands.
func printableLines(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if one := text[:size]; r == '\n' || r == '\t' || printable(one) == one {
			b.WriteString(one)
		} else {
			b.WriteString(strings.Trim(strconv.Quote(one), `"`))
		}
		text = text[size:]
	}
	return b.String()
}

// A colourful writer shows colours.
type colourful struct{ io.Writer }

// onTerminal returns f as a writer, a colourful one if colours are wanted there.
func onTerminal(f *os.File, getenv func(string) string) io.Writer {
	if wantsColours(term.IsTerminal(int(f.Fd())), getenv) {
		return colourful{f}
	}
	return f
}

// wantsColours reports whether somebody looks at a terminal and has not said
// that it shall be plain, as on https://no-color.org.
func wantsColours(terminal bool, getenv func(string) string) bool {
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && getenv("TERM") != ""
}

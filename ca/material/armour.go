package material

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// A block is a PEM block, and where it is in its file.
type block struct {
	label     string
	der       []byte
	line      int  // of its BEGIN marker
	encrypted bool // as in RFC 1421, Section 4.6.1.1
}

// A fileError says what is wrong with a line of a file.
type fileError struct {
	file string
	line int
	err  error
}

func (e *fileError) Error() string { return fmt.Sprintf("%s:%d: %v", e.file, e.line, e.err) }
func (e *fileError) Unwrap() error { return e.err }

func fault(file string, line int, format string, args ...any) error {
	return &fileError{file, line, fmt.Errorf(format, args...)}
}

// parseBlocks returns the PEM blocks of a file (RFC 7468). Text and blank lines
// around them are comments. Unlike encoding/pem, which passes over what it
// cannot read, it accounts for every marker: a certificate that silently is not
// there shows as an outage. No line is ever quoted, since it may be of a key.
func parseBlocks(file, data string) ([]block, error) {
	var blocks []block
	var open *block // the block that the line is in
	var body strings.Builder
	line := 0
	for text := range strings.Lines(data) {
		line++
		text = strings.TrimSpace(text)
		kind, label, err := parseMarker(text)
		switch {
		case err != nil:
			return nil, fault(file, line, "%w", err)
		case kind == begin && open != nil:
			return nil, fault(file, line, "a block begins before the one from line %d has ended", open.line)
		case kind == begin:
			open = &block{label: label, line: line}
			body.Reset()
		case kind == end && open == nil:
			return nil, fault(file, line, "an END marker without its BEGIN marker")
		case kind == end && label != open.label:
			return nil, fault(file, line, "the block from line %d is labelled %q, but ends as %q", open.line, open.label, label)
		case kind == end:
			if open.der, err = decode(body.String()); err != nil {
				return nil, fault(file, open.line, "%w", err)
			}
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			if err := open.read(text, &body); err != nil {
				return nil, fault(file, line, "%w", err)
			}
		}
	}
	if open != nil {
		return nil, fault(file, open.line, "the block is cut off: it has no END marker")
	}
	return blocks, nil
}

// read takes in a line between the markers.
func (b *block) read(text string, body *strings.Builder) error {
	switch {
	case strings.HasPrefix(text, "Proc-Type:"):
		b.encrypted = strings.Contains(text, "ENCRYPTED")
		return nil
	case strings.HasPrefix(text, "DEK-Info:"):
		return nil
	// Trim stops at the first other character from either side.
	case strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != "":
		return errors.New("the line is not base64")
	}
	body.WriteString(text)
	return nil
}

func decode(body string) ([]byte, error) {
	der, err := base64.StdEncoding.Strict().DecodeString(body)
	switch {
	case err != nil:
		return nil, errors.New("the base64 of the block is damaged")
	case len(der) == 0:
		return nil, errors.New("the block is empty")
	}
	return der, nil
}

// The kinds of line that parseMarker tells apart.
const (
	noMarker = iota
	begin
	end
)

func parseMarker(text string) (kind int, label string, err error) {
	const dashes = "-----"
	if !strings.Contains(text, "--BEGIN") && !strings.Contains(text, "--END") {
		return noMarker, "", nil
	}
	if inner, ok := strings.CutSuffix(text, dashes); ok {
		if label, ok := strings.CutPrefix(inner, dashes+"BEGIN "); ok && isLabel(label) {
			return begin, label, nil
		}
		if label, ok := strings.CutPrefix(inner, dashes+"END "); ok && isLabel(label) {
			return end, label, nil
		}
	}
	return noMarker, "", errors.New("a BEGIN or END marker is damaged, or shares its line with something else, as happens when a file without a final newline is joined with another")
}

// isLabel reports whether s is a label as people use them: words in upper case.
func isLabel(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789# ") == ""
}

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere follows every relative link on every page, to the file
// and to the heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	followed := 0
	linked := make(map[string]bool)
	for _, page := range pages(t) {
		for _, m := range regexp.MustCompile(link).FindAllStringSubmatch(prose(readFile(t, page)), -1) {
			if strings.Contains(m[2], "://") {
				continue
			}
			followed++
			file, anchor, _ := strings.Cut(m[2], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			linked[target] = linked[target] || target != page
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: [%s](%s): %v", page, m[1], m[2], err)
			} else if anchor != "" && !slices.Contains(anchors(readFile(t, target)), anchor) {
				t.Errorf("%s: [%s](%s): the page has the headings %q", page, m[1], m[2], anchors(readFile(t, target)))
			}
		}
	}
	for _, page := range pages(t) {
		if !linked[page] && page != "../../README.md" {
			t.Errorf("nothing leads to %s", page)
		}
	}
	if followed < 200 {
		t.Errorf("only %d links were followed", followed)
	}
}

// prose returns a page without what is code on it.
func prose(page string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if !code {
			out.WriteString(line)
		}
	}
	return out.String()
}

// anchors returns the names by which the headings of a page are linked, as
// GitHub makes them.
func anchors(page string) []string {
	var all []string
	for line := range strings.Lines(prose(page)) {
		hashes, text, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.Trim(hashes, "#") != "" || hashes == "" {
			continue
		}
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(text), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

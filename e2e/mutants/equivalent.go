package main

import (
	"fmt"
	"os"
	"strings"
)

// equivalents reads the list of mutants that no test can tell from the program:
// a line with the key of a mutant, and below it, indented, the reason.
func equivalents(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	key := ""
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch indented := line != trimmed; {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case !indented && key == "":
			key = trimmed
		case indented && key != "" && all[key] == "":
			all[key] = trimmed
			key = ""
		default:
			return nil, fmt.Errorf("%s:%d: a key must have a reason below it, indented, and no key may come twice", file, i+1)
		}
	}
	if key != "" {
		return nil, fmt.Errorf("%s: %s has no reason", file, key)
	}
	return all, nil
}

package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// checkArgs refuses, before anything is made of them, arguments that a message
// must not repeat: a token, which was given in the place of its file, and control
// characters, which could make one message look like two. The error names the
// flag, and not what it has.
func checkArgs(args []string) error {
	name := regexp.MustCompile(`^--?[a-z-]+$`)
	// RFC 7515, Section 7.1, of a header that begins with {" as all do.
	token := regexp.MustCompile(`eyJ[\w-]*\.[\w-]+\.[\w-]*`)
	flag := ""
	for _, arg := range args {
		if before, _, ok := strings.Cut(arg, "="); ok && name.MatchString(before) {
			flag = before
		}
		where := flag
		if where == "" {
			where = "an argument"
		}
		if token.MatchString(arg) {
			return &exitError{exitUsage, fmt.Errorf("%s has a token itself, which belongs into no command line; write it into a file, and name that", where)}
		}
		if i := strings.IndexFunc(arg, unicode.IsControl); i >= 0 {
			return &exitError{exitUsage, fmt.Errorf("%s has the control character %U in it", where, []rune(arg[i:])[0])}
		}
		if flag = ""; name.MatchString(arg) {
			flag = arg
		}
	}
	return nil
}

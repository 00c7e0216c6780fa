package token

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	maxQuoted = 128 // bytes of a text in a message
	maxListed = 4   // texts of a list
)

// quote makes text that anybody may have written fit for a message: bounded, on
// one line, and in ASCII.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// quoteAll is quote for a list.
func quoteAll(list []string) string {
	quoted := make([]string, 0, maxListed+1)
	for i, s := range list {
		if i == maxListed {
			quoted = append(quoted, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		quoted = append(quoted, quote(s))
	}
	return "[" + strings.Join(quoted, " ") + "]"
}

// redact quotes a text that another program wrote about token, without what may
// be a part of it.
func redact(text, token string) string {
	for segment := range strings.SplitSeq(token, ".") {
		if segment != "" {
			text = strings.ReplaceAll(text, segment, "(redacted)")
		}
	}
	return quote(text)
}

// Package conformance judges a certificate authority that gives node proxies the
// identities of the pods on their node, as Istio's ambient mesh needs one. It
// sees what a client sees: an address, the roots that vouch for it, and a
// cluster in which it may make and remove objects.
//
// Each [Case] is one sentence that must be true of any such authority, or
// should be, with the document that says so. A case that cannot be run is
// reported as not run, and never as passed.
//
// The package shares nothing with our own authority but the generated messages
// of the protocol, and reads certificates in its own way, so that neither can
// hide the other's mistakes.
package conformance

import (
	"slices"
	"strings"
)

// A Level is how much depends on a case.
type Level string

const (
	// Must is for what keeps a node from speaking for another, and for what
	// breaks a client if it is not so.
	Must Level = "MUST"
	// Should is for what operators and clients have good reason to expect.
	Should Level = "SHOULD"
	// Profile is for what Bailiwick promises beyond that.
	Profile Level = "PROFILE"
)

// A Case is one sentence about the authority.
type Case struct {
	ID     string `json:"id"` // its group and a number, such as "token-04"; never given to another case
	Level  Level  `json:"level"`
	Says   string `json:"says"`   // what is so, in one sentence
	Source string `json:"source"` // the document that requires it, or the report of who was hurt
	Slow   bool   `json:"slow"`   // it takes minutes

	run func(*T)
}

// Group returns what the case is about.
func (c Case) Group() string {
	group, _, _ := strings.Cut(c.ID, "-")
	return group
}

// Cases returns all cases, in the order in which they run.
func Cases() []Case {
	return slices.Concat(wireCases(), certificateCases(), nodeCases(), tokenCases(), csrCases(), lifetimeCases(), errorCases(), connectionCases(), raceCases(), loadCases())
}

// Package scenario reads the files in testdata, which specify the node rule:
// small clusters, what happens in them, and the answers that must be given.
//
// One set of files runs at three levels, each a [World]: against authz in
// memory, against the server in process, and against the built binary on a live
// cluster. A world that cannot express a line fails; it never skips one.
//
//	agent istio-system/ztunnel
//	pod istio-system/zt-1 sa=ztunnel node=n1
//	pod shop/cart-1       sa=cart    node=n1
//	pod shop/pay-1        sa=pay     node=n2
//
//	# a node agent may have an identity that runs on its node
//	as istio-system/zt-1
//	allow spiffe://cluster.local/ns/shop/sa/cart
//	# ...but not one that runs only elsewhere
//	deny not-on-node spiffe://cluster.local/ns/shop/sa/pay
//
// Lines are executed from top to bottom. The lines are:
//
//	agent NS/NAME        a service account whose pods are node agents
//	protect NS/NAME      a service account whose identity no node agent may have
//	evict NODE           nothing is issued to this node
//	unbound              tokens bound to no pod are accepted
//	node NODE            make a node
//	account NS/NAME      make a service account
//	pod NS/NAME sa=NAME [node=NODE] [phase=PHASE] [hostnetwork] [mirror]
//	                     make a pod, and its account and node if missing
//	finish NS/NAME PHASE set the pod's phase to Succeeded or Failed
//	terminate NS/NAME DURATION
//	                     delete the pod with this grace period; it stays
//	delete pod|node|account NAME
//	                     remove the object at once
//	wait DURATION        let time pass
//	as NS/NAME           take a token bound to the pod, and ask with it from here on
//	as account NS/NAME   take a token bound to nothing, and ask with it from here on
//	allow ID|own         the identity asked for, which must be granted
//	deny REASON ID|own   the identity asked for, which must be denied for this reason
//
// The first four must come before all others. A comment names the cases that
// follow it. It is a language for cases: the day it wants a loop, write Go.
package scenario

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
)

//go:embed testdata/*.txt
var files embed.FS

// A Scenario is one file.
type Scenario struct {
	Name      string
	Agents    []string // NS/NAME of the node agents' accounts
	Protected []string // NS/NAME of the protected accounts
	Evicted   []string // names of the evicted nodes
	Unbound   bool     // tokens bound to no pod are accepted
	Steps     []Step
}

// A Verb is what a [Step] does.
type Verb string

// The verbs of steps, as in the files.
const (
	MakeNode    Verb = "node"
	MakeAccount Verb = "account"
	MakePod     Verb = "pod"
	Finish      Verb = "finish"
	Terminate   Verb = "terminate"
	Delete      Verb = "delete"
	Wait        Verb = "wait"
	As          Verb = "as"
	Allow       Verb = "allow"
	Deny        Verb = "deny"
)

// A Step is one line that is executed.
type Step struct {
	Line int
	Case string // the comment above
	Verb Verb

	Pod      Pod           // of pod; of finish, terminate and as, the name and phase
	Kind     string        // of delete and as: "pod", "node" or "account"
	Name     string        // of node, account, delete and as: NODE or NS/NAME
	Duration time.Duration // of wait and terminate
	Want     string        // of allow and deny: the identity asked for, "" for one's own
	Reason   string        // of deny
}

// A Pod is a pod as a scenario describes it.
type Pod struct {
	Namespace, Name, Account, Node string
	Phase                          string // "Running" unless the line says otherwise
	HostNetwork, Mirror            bool
}

// All returns every scenario in testdata.
func All() ([]Scenario, error) {
	names, err := fs.Glob(files, "testdata/*.txt")
	if err != nil {
		return nil, err
	}
	var all []Scenario
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		s, err := Parse(strings.TrimSuffix(path.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Parse parses the text of a scenario file. Errors name the file and the line.
func Parse(name, text string) (Scenario, error) {
	s := Scenario{Name: name}
	p := parser{scenario: &s}
	for i, line := range strings.Split(text, "\n") {
		if err := p.line(i+1, strings.TrimSpace(line)); err != nil {
			return Scenario{}, fmt.Errorf("%s.txt:%d: %w", name, i+1, err)
		}
	}
	return s, nil
}

type parser struct {
	scenario *Scenario
	comment  string
	as       bool // there is somebody to ask as
}

func (p *parser) line(n int, line string) error {
	if comment, ok := strings.CutPrefix(line, "#"); ok {
		p.comment = strings.TrimSpace(comment)
		return nil
	}
	f := strings.Fields(line)
	if len(f) == 0 {
		return nil
	}
	if policy, err := p.policy(f); policy || err != nil {
		return err
	}
	step, err := parseStep(f)
	if err != nil {
		return err
	}
	switch step.Verb {
	case As:
		p.as = true
	case Allow, Deny:
		if !p.as {
			return fmt.Errorf("%s before any as", step.Verb)
		}
	}
	step.Line, step.Case = n, p.comment
	p.scenario.Steps = append(p.scenario.Steps, step)
	return nil
}

// policy parses the lines that configure the server. It reports whether f is
// one of them.
func (p *parser) policy(f []string) (bool, error) {
	s := p.scenario
	var list *[]string
	switch f[0] {
	case "agent":
		list = &s.Agents
	case "protect":
		list = &s.Protected
	case "evict":
		list = &s.Evicted
	case "unbound":
	default:
		return false, nil
	}
	switch {
	case len(s.Steps) > 0:
		return true, fmt.Errorf("%s after the first step", f[0])
	case list == nil && len(f) == 1:
		s.Unbound = true
	case list != nil && len(f) == 2:
		*list = append(*list, f[1])
	default:
		return true, fmt.Errorf("%s with %d words", f[0], len(f)-1)
	}
	return true, nil
}

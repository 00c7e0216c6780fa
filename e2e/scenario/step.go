package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// parseStep parses a line that is executed.
func parseStep(f []string) (Step, error) {
	verb, args := Verb(f[0]), f[1:]
	s := Step{Verb: verb}
	var err error
	switch n := len(args); {
	case verb == MakePod && n >= 1:
		s.Pod, err = parsePod(args[0], args[1:])
	case verb == MakeNode && n == 1, verb == MakeAccount && n == 1:
		s.Name = args[0]
	case verb == Finish && n == 2:
		s.Pod, err = parsePod(args[0], []string{"phase=" + args[1]})
	case verb == Terminate && n == 2:
		if s.Pod, err = parsePod(args[0], nil); err == nil {
			s.Duration, err = time.ParseDuration(args[1])
		}
	case verb == Delete && n == 2 && slices.Contains([]string{"pod", "node", "account"}, args[0]):
		s.Kind, s.Name = args[0], args[1]
	case verb == Wait && n == 1:
		s.Duration, err = time.ParseDuration(args[0])
	case verb == As && n == 1:
		s.Kind, s.Name = "pod", args[0]
	case verb == As && n == 2 && args[0] == "account":
		s.Kind, s.Name = "account", args[1]
	case verb == Allow && n == 1:
		s.Want = identity(args[0])
	case verb == Deny && n == 2:
		s.Reason, s.Want = args[0], identity(args[1])
	default:
		err = fmt.Errorf("cannot parse %q", strings.Join(f, " "))
	}
	return s, err
}

// identity turns the word "own" into how one asks for one's own.
func identity(word string) string {
	if word == "own" {
		return ""
	}
	return word
}

func parsePod(name string, fields []string) (Pod, error) {
	p := Pod{Phase: "Running"}
	var ok bool
	if p.Namespace, p.Name, ok = strings.Cut(name, "/"); !ok {
		return Pod{}, fmt.Errorf("pod %q has no namespace", name)
	}
	for _, field := range fields {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case key == "sa" && value != "":
			p.Account = value
		case key == "node" && value != "":
			p.Node = value
		case key == "phase" && slices.Contains([]string{"Pending", "Running", "Succeeded", "Failed", "Unknown"}, value):
			p.Phase = value
		case field == "hostnetwork":
			p.HostNetwork = true
		case field == "mirror":
			p.Mirror = true
		default:
			return Pod{}, fmt.Errorf("unknown field %q", field)
		}
	}
	return p, nil
}

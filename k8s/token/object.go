package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// An object is a JSON object that is being taken apart. The first thing that is
// not as it should be is its error; what is read after that means nothing.
// Errors name members, and say nothing of their values.
type object struct {
	path    string // of the object, for errors; ends in a dot, or is empty
	members map[string]json.RawMessage
	failure *error // shared with the objects within
}

// parseObject reads a JSON object strictly: names as they are written, no name
// twice (RFC 8259, Section 4, calls what else happens unpredictable), valid
// UTF-8, nothing after it.
func parseObject(data []byte) object {
	members, err := parseMembers(data)
	return object{members: members, failure: &err}
}

func parseMembers(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	members := make(map[string]json.RawMessage)
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("not a JSON object")
		}
		if _, ok := members[name]; ok {
			return nil, fmt.Errorf("%s is there twice", quote(name))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s is not JSON", quote(name))
		}
		members[name] = value
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("a JSON object without an end")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something after the JSON object")
	}
	return members, nil
}

func (o object) err() error { return *o.failure }

// fail notes that a member is not as it should be.
func (o object) fail(name, format string, args ...any) {
	if *o.failure == nil {
		*o.failure = fmt.Errorf("%s %s", quote(o.path+name), fmt.Sprintf(format, args...))
	}
}

func (o object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// others returns the names of all members but some.
func (o object) others(some ...string) []string {
	names := slices.Sorted(maps.Keys(o.members))
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(some, name) })
}

// object returns a member that is an object.
func (o object) object(name string) object {
	inner := object{path: o.path + name + ".", failure: o.failure}
	if !o.has(name) {
		o.fail(name, "is missing")
		return inner
	}
	members, err := parseMembers(o.members[name])
	if err != nil {
		o.fail(name, "is %v", err)
	}
	inner.members = members
	return inner
}

// text returns a member that is a string and not empty.
func (o object) text(name string) string {
	s := o.optionalText(name)
	if s == "" {
		o.fail(name, "is missing or empty")
	}
	return s
}

// optionalText returns a member that is a string, or missing.
func (o object) optionalText(name string) string {
	if !o.has(name) {
		return ""
	}
	s, ok := parseText(o.members[name])
	if !ok {
		o.fail(name, "is not a string")
	}
	return s
}

// texts returns a member that is an array of strings, or one string, which
// means the same (RFC 7519, Section 4.1.3).
func (o object) texts(name string) []string {
	if s, ok := parseText(o.members[name]); ok {
		return []string{s}
	}
	var values []json.RawMessage
	if json.Unmarshal(o.members[name], &values) != nil || len(values) == 0 {
		o.fail(name, "is neither a string nor an array of strings")
	}
	all := make([]string, len(values))
	for i, value := range values {
		s, ok := parseText(value)
		if !ok {
			o.fail(name, "is neither a string nor an array of strings")
		}
		all[i] = s
	}
	return all
}

// time returns a member that is a time in whole seconds, as the API server
// writes them, in the years 1970 to 9999.
func (o object) time(name string) time.Time {
	const year10000 = 253402300800
	n, err := strconv.ParseInt(string(o.members[name]), 10, 64)
	if err != nil || n <= 0 || n >= year10000 {
		o.fail(name, "is not a time in seconds")
	}
	return time.Unix(n, 0)
}

// parseText returns the JSON string that data is. Unlike encoding/json it does
// not take null for an empty one.
func parseText(data json.RawMessage) (string, bool) {
	var s string
	if len(data) == 0 || data[0] != '"' || json.Unmarshal(data, &s) != nil {
		return "", false
	}
	return s, true
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// A format is how a command says what it found.
type format string

const (
	asText format = "text"
	asJSON format = "json"

	formats = string(asText + "|" + asJSON)
)

// String implements [pflag.Value], as do the other two.
func (f *format) String() string { return string(*f) }

// Type implements [pflag.Value].
func (f *format) Type() string { return formats }

// Set implements [pflag.Value].
func (f *format) Set(text string) error {
	if *f = format(text); *f != asText && *f != asJSON {
		return fmt.Errorf("it is neither %s nor %s", asText, asJSON)
	}
	return nil
}

// A report is what a command found. In JSON it is as its struct says.
type report interface {
	text(s *sheet) // for people
}

// A printer prints reports.
type printer struct {
	w      io.Writer
	format format
	tried  bool  // to print
	failed error // why that did not work
}

// print prints a report: in JSON, the only document there is.
func (p *printer) print(r report) error {
	if p.format == asJSON {
		return p.document(r)
	}
	var s sheet
	_, s.coloured = p.w.(colourful)
	r.text(&s)
	return p.write(s.String())
}

// document prints the JSON document.
func (p *printer) document(value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return err
	}
	return p.write(escapeControls(b.String()))
}

func (p *printer) write(text string) error {
	p.tried = true
	_, p.failed = io.WriteString(p.w, text)
	return p.failed
}

// escapeControls escapes in a JSON document the control characters that JSON
// itself lets be (RFC 8259, Section 7), and that a terminal obeys.
func escapeControls(document string) string {
	var b strings.Builder
	for _, r := range document {
		if r >= 0x7f && unicode.IsControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// reports makes a command that runs with a printer for its standard output, and
// has the flag --output. In JSON, a failure is a document too, unless there is
// a report already; that it could not be printed is told on standard error.
func reports(cmd *cobra.Command, run func(cmd *cobra.Command, p *printer) error) *cobra.Command {
	p := &printer{format: asText}
	cmd.Flags().VarP(&p.format, "output", "o", "print for people, or one JSON document for programs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p.w = cmd.OutOrStdout()
		err := run(cmd, p)
		if err == nil || p.format == asText {
			return err
		}
		f := failureOf(err)
		if !p.tried {
			p.failed = p.document(f)
		}
		return &exitError{f.Error.ExitCode, errors.Join(errSilent, p.failed)}
	}
	return cmd
}

// errSilent says nothing: what there is to say has been printed.
var errSilent = errors.New("")

// A failureReport says why a command did not do what it was told.
type failureReport struct {
	Error failure `json:"error"`
}

type failure struct {
	Message  string `json:"message"`
	ExitCode int    `json:"exitCode"`

	// What a certificate authority answered.
	Code      string `json:"code,omitempty"`
	Reason    string `json:"reason,omitempty"` // as far as it tells clients
	RequestID string `json:"requestId,omitempty"`
}

func failureOf(err error) *failureReport {
	f := failure{Message: err.Error(), ExitCode: exitFailed}
	if e, ok := errors.AsType[*exitError](err); ok {
		f.ExitCode = e.code
	}
	if s, ok := status.FromError(err); ok {
		f.Code = s.Code().String()
		f.Reason, f.RequestID = told(s)
	}
	return &failureReport{f}
}

// told returns what a certificate authority's answer has for programs: the word
// for the client, and the ID of the request.
func told(s *status.Status) (reason, requestID string) {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason, requestID = info.GetReason(), info.GetMetadata()["requestId"]
		}
	}
	return reason, requestID
}

// completeValues has a shell complete the value of each flag by what its usage
// calls it: a file, a directory, one of several words, or nothing that it knows.
func completeValues(cmd *cobra.Command) {
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		how := cobra.NoFileCompletions
		switch name, _ := pflag.UnquoteUsage(f); name {
		case "file":
			how = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveDefault
			}
		case "directory":
			how = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
		case formats:
			how = cobra.FixedCompletions(strings.Split(formats, "|"), cobra.ShellCompDirectiveNoFileComp)
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, how) // fails for a flag that is not there, or was here before
	})
}

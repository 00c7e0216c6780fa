package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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
	w       io.Writer
	format  format
	printed bool
}

// print prints a report: in JSON, the only document there is.
func (p *printer) print(r report) error {
	p.printed = true
	if p.format == asJSON {
		e := json.NewEncoder(p.w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	var s sheet
	_, s.coloured = p.w.(colourful)
	r.text(&s)
	_, err := io.WriteString(p.w, s.String())
	return err
}

// reports makes a command that runs with a printer for its standard output, and
// has the flag --output. In JSON, a failure is a document too, unless there is
// a report already.
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
		if p.printed {
			return &exitError{f.Error.ExitCode, errSilent}
		}
		return &exitError{f.Error.ExitCode, errors.Join(errSilent, p.print(f))}
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
		for _, detail := range s.Details() {
			if info, ok := detail.(*errdetails.ErrorInfo); ok {
				f.Reason, f.RequestID = info.GetReason(), info.GetMetadata()["requestId"]
			}
		}
	}
	return &failureReport{f}
}

// text implements [report]. It is not called: as text, failures go to standard
// error.
func (f *failureReport) text(s *sheet) { s.printf("%s\n", f.Error.Message) }

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

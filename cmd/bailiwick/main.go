// Command bailiwick is a certificate authority for service meshes on
// Kubernetes that knows which pods run on which node.
//
// This package has flags, configuration and wiring, and nothing else: what is
// decided is decided in authz, what is signed in ca.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, as docs/commands.md has them.
const (
	exitOK      = 0
	exitFailed  = 1 // the command could not do what it was told
	exitUsage   = 2 // it was told something that makes no sense
	exitRefused = 3 // the certificate authority said no, or check found a problem
	exitUnknown = 4 // the certificate authority could not tell
)

// An exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := untilInterrupted(context.Background())
	code := run(ctx, os.Args[1:], onTerminal(os.Stdout, os.Getenv), os.Stderr)
	stop()
	os.Exit(code)
}

// untilInterrupted returns a context that is done once the process is told to
// end. It may be told again, by somebody who does not want to wait: by the time
// the context is done, the next signal ends the process at once.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx, cancel
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root, checkArgs(args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return exitOK
	}
	failure, ok := errors.AsType[*exitError](err)
	switch {
	case !ok && cmd == root: // which does nothing that could fail: there is no such command
		failure = &exitError{exitUsage, fmt.Errorf("%s\nsee: bailiwick --help", strings.TrimSpace(err.Error()))}
	case !ok:
		failure = &exitError{exitFailed, err}
	}
	if text := strings.TrimSpace(failure.Error()); text != "" {
		fmt.Fprintln(stderr, "bailiwick:", printableLines(text)) //nolint:errcheck // there is nowhere else to say so
	}
	return failure.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "bailiwick",
		Short: "A certificate authority that knows which node asks",
		Long: `Bailiwick is a certificate authority for service meshes on Kubernetes. A node
proxy may have the identities of the pods on its own node, and no others.

Start with: bailiwick demo`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &exitError{exitUsage, fmt.Errorf("%w\nsee: %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(newServe(), newDemo(), newRequest(), newExplain(), newCheck(), newConformance(), newVersion())
	for _, cmd := range root.Commands() {
		completeValues(cmd)
	}
	return root
}

// noArgs refuses arguments, with a word on what to do.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &exitError{exitUsage, fmt.Errorf("%q is one word too many\nsee: %s --help", args[0], cmd.CommandPath())}
}

// Package process runs the programs that the tests need: each with its output
// in a file, whose end is in every error, and none outliving the tests.
//
// It knows nothing of what the programs do.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A Process is a program that was started.
type Process struct {
	Name string // what errors call it
	Log  string // the file that has its standard error
	Out  string // the file that has its standard output

	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
	err  error         // how it ended; to be read after done
}

// Start starts a program with what it writes in dir/name.log and dir/name.out.
// A later program of the same name adds to the files.
func Start(dir, name, program string, args ...string) (*Process, error) {
	p := &Process{
		Name: name,
		Log:  filepath.Join(dir, name+".log"),
		Out:  filepath.Join(dir, name+".out"),
		done: make(chan struct{}),
	}
	stderr, err := open(p.Log)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer stderr.Close() //nolint:errcheck // the program has its own descriptor
	stdout, err := open(p.Out)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer stdout.Close()                   //nolint:errcheck // the program has its own descriptor
	p.cmd = exec.Command(program, args...) //nolint:gosec // running programs is what this is for
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	p.cmd.SysProcAttr = dieWithUs()
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

func open(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// run starts the program and waits for its end, all on one thread: the program
// is killed when the thread that started it ends (see dieWithUs), so that the
// thread must not be one that Go may end.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// Done is closed once the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is nil as long as the program runs, and then says how it ended, with the
// last lines of its output.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended (%s); the end of %s:\n%s", p.Name, how, p.Log, p.Tail(30))
}

// ExitCode is the program's exit code, and -1 if it was killed or still runs.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Tail returns the last lines of the program's standard error.
func (p *Process) Tail(lines int) string { return tail(p.Log, lines) }

// TailOut returns the last lines of the program's standard output.
func (p *Process) TailOut(lines int) string { return tail(p.Out, lines) }

func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimRight(text, "\n")), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Kill ends the program, also one that is stopped, and waits for its end.
func (p *Process) Kill() {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return // cannot be: it is our child
	}
	<-p.done
}

// Terminate asks the program to end. If it has not ended in time it is killed,
// and that is an error.
func (p *Process) Terminate(within time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return errors.Join(err, p.Err())
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s was still running %v after SIGTERM; the end of %s:\n%s", p.Name, within, p.Log, p.Tail(30))
	}
}

// Until asks again and again until there is no error. It gives up when the
// program ends or the time is over, and then says what was wrong last.
func (p *Process) Until(ctx context.Context, within time.Duration, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("waiting until %s: %w", what, p.Err())
		case <-ctx.Done():
			return fmt.Errorf("waiting %v until %s: %w; the end of %s:\n%s", within, what, err, p.Log, p.Tail(30))
		case <-tick.C:
		}
	}
}

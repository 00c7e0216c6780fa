package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stubbornEnv tells the test binary to be a process that does not end when it is
// told to.
const stubbornEnv = "BAILIWICK_STUBBORN"

func stubborn() {
	ctx, stop := untilInterrupted(context.Background())
	defer stop()
	fmt.Println("started")
	<-ctx.Done()
	fmt.Println("told")
	select {}
}

// [SRV-3] A signal tells a process to stop, and a second one ends it, should it go
// on all the same.
func TestSecondInterrupt(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), stubbornEnv+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for _, want := range []string{"started", "told"} {
			if !lines.Scan() || lines.Text() != want {
				t.Errorf("it said %q, want %q", lines.Text(), want)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Error(err)
			}
		}
		err = cmd.Wait()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			t.Fatalf("it ended: %v", err)
		}
		if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != sig {
			t.Errorf("it ended by %v, want %v", exit, sig)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"demo"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d, and on standard error: %s", code, errs.String())
	}
	if !strings.HasSuffix(out.String(), "\ndemo: 8 issued, 12 denied, all as expected\n") {
		t.Errorf("printed\n%s", out.String())
	}
}

// TestDemoNotices gives a pod another UID than the server knows, after which an
// answer is not the one that it must be.
func TestDemoNotices(t *testing.T) {
	audit := &auditReader{}
	d, err := newDemonstration("127.0.0.1:0", audit, discard())
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.objects.pods {
		if d.objects.pods[i].Name == "cart-1" {
			d.objects.pods[i].UID = "another" // so the token is not of the pod that the server knows
		}
	}
	var out bytes.Buffer
	err = d.run(t.Context(), audit, false, &printer{w: &out})
	if err == nil || !strings.Contains(err.Error(), "caller-gone") || strings.Contains(out.String(), "all as expected") {
		t.Errorf("run = %v after\n%s", err, out.String())
	}
}

// TestDemoInvitation runs the commands that demo --keep-running prints.
func TestDemoInvitation(t *testing.T) {
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- d.service.run(ctx) }()
	d.program = "/opt/bailiwick/bin/bailiwick"
	var text bytes.Buffer
	if err := d.invite(t.TempDir(), &text); err != nil {
		t.Fatal(err)
	}
	codes := []int{0, 3, 3}
	joined := strings.ReplaceAll(text.String(), "\\\n", " ")
	for line := range strings.Lines(joined) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), d.program+" ")
		if !ok {
			continue
		}
		if len(codes) == 0 {
			t.Fatalf("one command too many: %s", line)
		}
		if strings.HasPrefix(args, "explain ") && !strings.Contains(args, "--config ") {
			t.Errorf("%s: does not apply the demonstration's configuration", args)
		}
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &out, &out); code != codes[0] {
			t.Errorf("%s: exit code %d, want %d\n%s", args, code, codes[0], out.String())
		}
		codes = codes[1:]
	}
	if len(codes) > 0 {
		t.Errorf("%d commands are missing in\n%s", len(codes), text.String())
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestDemoNamesItself wants the commands to name the program that runs, which
// need not be on the PATH: here the binary of this test.
func TestDemoNamesItself(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &trigger{text: "Serving on", do: interrupt}
	var errs bytes.Buffer
	if code := run(ctx, []string{"demo", "--keep-running"}, out, &errs); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if n := strings.Count(out.written.String(), "\n  "+shellWord(program)+" "); n != 3 {
		t.Errorf("%d commands of %s in\n%s", n, program, out.written.String())
	}
}

// TestShellWord has a shell say what it takes for its first word.
func TestShellWord(t *testing.T) {
	for _, text := range []string{"bin/bailiwick", "/tmp/with space/b", "it's", "$HOME", "a;b", "~", "[::1]:80", "a\nb", "", "*", "a;id\x1b[31mX", "it's\\\n1\n", "\u009bé", "\xff0"} {
		out, err := exec.Command("bash", "-c", "printf %s "+shellWord(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("the shell reads %s as %q, %v; want %q", shellWord(text), out, err, text)
		}
	}
	if got := shellWord("/usr/bin/bailiwick-1.0"); got != "/usr/bin/bailiwick-1.0" {
		t.Errorf("a plain path became %s", got)
	}
}

// TestExplainAgreesWithDemo explains every question that the demonstration asks
// with a good token, with the files that it writes, and wants its answers.
func TestExplainAgreesWithDemo(t *testing.T) {
	d, err := newDemonstration("127.0.0.1:0", io.Discard, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer d.listener.Close() //nolint:errcheck // nobody has listened
	dir := t.TempDir()
	if err := d.invite(dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, q := range questions() {
		if q.token != nil {
			continue
		}
		code, want := exitOK, "answer: granted"
		if q.want != "" {
			code, want = exitRefused, "answer: denied ("+string(q.want)+")"
		}
		var out bytes.Buffer
		args := []string{"explain", "--config", filepath.Join(dir, "config.yaml"), "--objects", filepath.Join(dir, "cluster.yaml"), "--as", q.pod, "--identity", q.identity}
		if got := run(t.Context(), args, &out, &out); got != code || !strings.Contains(out.String(), want) {
			t.Errorf("%s for %s: exit code %d, want %d and %q in\n%s", q.pod, orOwn(q.identity), got, code, want, out.String())
		}
	}
}

// A trigger does something once some text has been written.
type trigger struct {
	text    string
	do      func()
	written bytes.Buffer
}

func (w *trigger) Write(p []byte) (int, error) {
	before := strings.Contains(w.written.String(), w.text)
	n, err := w.written.Write(p)
	if !before && strings.Contains(w.written.String(), w.text) {
		w.do()
	}
	return n, err
}

// TestDemoKeepsRunning ends the demonstration in each of the two ways, once it
// has printed its invitation, and looks what is left of its files.
func TestDemoKeepsRunning(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(interrupt func(), d *demonstration)
		want string
	}{
		{"until interrupted", func(interrupt func(), _ *demonstration) { interrupt() }, ""},
		{"until its server ends", func(_ func(), d *demonstration) { d.listener.Close() }, "has ended by itself"}, //nolint:errcheck // it shows
	} {
		t.Run(tt.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			audit := &auditReader{}
			d, err := newDemonstration("127.0.0.1:0", audit, discard())
			if err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var there []string
			out := &trigger{text: "Serving on", do: func() {
				there = filesIn(t, tmp)
				tt.end(interrupt, d)
			}}
			err = d.run(ctx, audit, true, &printer{w: out})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("run = %v, want %q", err, tt.want)
			}
			if len(there) < 10 {
				t.Errorf("while it ran there were %q", there)
			}
			if left := filesIn(t, tmp); len(left) > 0 {
				t.Errorf("it left %q behind", left)
			}
		})
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if path != "." {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

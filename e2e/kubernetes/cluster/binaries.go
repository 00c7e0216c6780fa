package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Binaries are the programs that a cluster is made of. They stay where they are
// until Close, whatever other processes build.
type Binaries struct {
	Etcd, APIServer string // paths

	inUse []*os.File
}

// Close lets others remove the programs.
func (b Binaries) Close() {
	for _, f := range b.inUse {
		f.Close() //nolint:errcheck // nothing was written
	}
}

// A source is a program and where it comes from.
type source struct {
	name, module, pkg string
	duration          string                      // of a build with an empty build cache, for people who wait
	ldflags           func(version string) string // nil for none
}

func etcdSource() source {
	return source{
		name: "etcd", module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3",
		duration: "under a minute",
	}
}

func apiServerSource() source {
	return source{
		name: "kube-apiserver", module: "k8s.io/kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-apiserver",
		duration: "about 5 minutes on 2 cores",
		ldflags:  apiServerVersion,
	}
}

// apiServerVersion has the API server say its version; without it clients see
// v0.0.0.
func apiServerVersion(version string) string {
	const in = "-X k8s.io/component-base/version."
	part := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return strings.Join([]string{
		in + "gitVersion=" + version,
		in + "gitMajor=" + part[0],
		in + "gitMinor=" + part[1],
	}, " ")
}

// Build returns the programs of the versions that build/go.mod names. What is
// not in the cache yet is built, one process at a time, and says so on
// progress: the first time takes minutes.
func Build(ctx context.Context, progress io.Writer) (Binaries, error) {
	b, err := newBuilder(ctx, progress)
	if err != nil {
		return Binaries{}, err
	}
	unlock, err := b.lock()
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	etcd, err := b.build(ctx, etcdSource())
	if err != nil {
		return Binaries{}, err
	}
	api, err := b.build(ctx, apiServerSource())
	if err != nil {
		etcd.Close() //nolint:errcheck // nothing was written
		return Binaries{}, err
	}
	return Binaries{Etcd: etcd.Name(), APIServer: api.Name(), inUse: []*os.File{etcd, api}}, nil
}

type builder struct {
	module   string // directory of build/go.mod
	cache    string
	common   []byte // what all the programs are made of and with
	progress io.Writer
}

func newBuilder(ctx context.Context, progress io.Writer) (*builder, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("looking for the directory of caches: %w", err)
	}
	b := &builder{
		module:   filepath.Join(root, "e2e", "kubernetes", "build"),
		cache:    filepath.Join(user, "bailiwick"),
		progress: progress,
	}
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(b.module, name))
		if err != nil {
			return nil, fmt.Errorf("reading the cluster's dependencies: %w", err)
		}
		b.common = append(b.common, text...)
	}
	with, err := b.goTool(ctx, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return nil, fmt.Errorf("asking for the version of Go: %w", err)
	}
	b.common = append(b.common, with...)
	return b, nil
}

// file returns where the program is, once it is built.
func (b *builder) file(s source, version, ldflags string) string {
	sum := sha256.Sum256(append(slices.Clip(b.common), ldflags...))
	return filepath.Join(b.cache, fmt.Sprintf("%s-%s-%s", s.name, version, hex.EncodeToString(sum[:])[:12]))
}

// Root returns the directory of this repository's main module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	for up := dir; ; up = filepath.Dir(up) {
		text, err := os.ReadFile(filepath.Join(up, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/bailiwick-ca/bailiwick\n") {
			return up, nil
		}
		if up == filepath.Dir(up) {
			return "", fmt.Errorf("looking for the repository: %s is not in it", dir)
		}
	}
}

// lock returns once no other process builds.
func (b *builder) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(b.cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the cache: %w", err)
	}
	fd := int(f.Fd())
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		b.say("another process is building the cluster's programs; waiting for it")
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the cache: %w", err), f.Close())
	}
	return func() { f.Close() }, nil //nolint:errcheck // nothing was written
}

// build returns the program, which nobody removes until the file is closed.
func (b *builder) build(ctx context.Context, s source) (*os.File, error) {
	version, err := b.version(ctx, s.module)
	if err != nil {
		return nil, err
	}
	var ldflags string
	if s.ldflags != nil {
		ldflags = s.ldflags(version)
	}
	path := b.file(s, version, ldflags)
	if f, err := use(path); !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	args := []string{"build", "-buildvcs=false", "-ldflags=" + ldflags, "-o", path + ".new"}
	stop := b.tell(fmt.Sprintf("building %s %s: once, %s with an empty build cache", s.name, version, s.duration))
	_, err = b.goTool(ctx, append(args, s.pkg)...)
	stop()
	if err != nil {
		return nil, fmt.Errorf("building %s %s: %w", s.name, version, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("building %s: %w", s.name, err)
	}
	b.prune(s.name, path)
	return use(path)
}

// use opens a program, so that [builder.prune] leaves it alone.
func use(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

// prune removes the programs of that name but one, and what is left of builds
// that were interrupted. The cache is locked, so that nobody builds or begins to
// use one; those in use stay until the next time.
func (b *builder) prune(name, but string) {
	others, err := filepath.Glob(filepath.Join(b.cache, name+"-v*"))
	if err != nil {
		b.say(err.Error())
		return
	}
	for _, other := range others {
		if other == but {
			continue
		}
		if err := removeUnused(other); err != nil {
			b.say(fmt.Sprintf("%s stays: %v", other, err))
		}
	}
}

func removeUnused(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func (b *builder) version(ctx context.Context, module string) (string, error) {
	out, err := b.goTool(ctx, "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return "", fmt.Errorf("looking up the version of %s: %w", module, err)
	}
	return strings.TrimSpace(out), nil
}

// goTool runs the go command in the programs' own module and nothing around it.
func (b *builder) goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are ours
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	var failed *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no go command; install Go (https://go.dev/doc/install) and put it on PATH")
	case errors.As(err, &failed):
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, failed.Stderr)
	case err != nil:
		return "", fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(out), nil
}

// tell says what is going on, now and every 15 seconds.
func (b *builder) tell(what string) (stop func()) {
	b.say(what)
	const every = 15 * time.Second
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-tick.C:
				b.say(fmt.Sprintf("%s; %v so far", what, time.Duration(n)*every))
			}
		}
	}()
	return func() { close(done); <-stopped }
}

func (b *builder) say(what string) {
	fmt.Fprintln(b.progress, "e2e/kubernetes:", what) //nolint:errcheck // nobody to tell
}

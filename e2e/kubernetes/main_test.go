// Package kubernetes_test runs Bailiwick, as built, against a real API server
// and etcd, as built by their authors' sources.
//
// All tests share one cluster, and each begins with an empty one: call begin.
package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

var (
	shared    *cluster.Cluster
	sharedDir string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bailiwick-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := runIn(dir, m); code != 0 {
		fmt.Fprintln(os.Stderr, "e2e/kubernetes: the cluster's logs are in", dir)
		return code
	}
	// Nobody writes there any more.
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runIn runs the tests with a cluster in dir, which has ended when it returns.
func runIn(dir string, m *testing.M) int {
	sharedDir = dir
	begun := time.Now()
	c, err := cluster.Start(context.Background(), dir, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	shared = c
	fmt.Fprintf(os.Stderr, "e2e/kubernetes: the cluster was up after %v\n", time.Since(begun).Round(100*time.Millisecond))
	return m.Run()
}

// begin returns the cluster, with nothing in it.
func begin(t *testing.T) *cluster.Cluster {
	t.Helper()
	t.Cleanup(func() { shared.Clear(t) })
	return shared
}

package cluster

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// Main runs a package's tests with one cluster that all of them share, and
// returns what the process should exit with. It hands the cluster, and a
// directory for what the tests build once, to use before the first test. The
// directory stays if a test fails: the cluster's logs are in it.
func Main(m *testing.M, name string, use func(c *Cluster, dir string)) int {
	dir, err := os.MkdirTemp("", "bailiwick-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := runIn(dir, m, name, use); code != 0 {
		fmt.Fprintf(os.Stderr, "%s: the cluster's logs are in %s\n", name, dir)
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
func runIn(dir string, m *testing.M, name string, use func(*Cluster, string)) int {
	begun := time.Now() //nolint:forbidigo // how long it took is all it is for
	c, err := Start(context.Background(), dir, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	use(c, dir)
	fmt.Fprintf(os.Stderr, "%s: the cluster was up after %v\n", name, time.Since(begun).Round(100*time.Millisecond))
	return m.Run()
}

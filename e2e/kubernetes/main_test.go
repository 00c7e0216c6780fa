// Package kubernetes_test runs Bailiwick, as built, against a real API server
// and etcd, as built by their authors' sources.
//
// All tests share one cluster, and each begins with an empty one: call begin.
package kubernetes_test

import (
	"os"
	"testing"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

var (
	shared    *cluster.Cluster
	sharedDir string
)

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, "e2e/kubernetes", func(c *cluster.Cluster, dir string) { shared, sharedDir = c, dir }))
}

// begin returns the cluster, with nothing in it.
func begin(t *testing.T) *cluster.Cluster {
	t.Helper()
	t.Cleanup(func() { shared.Clear(t) })
	return shared
}

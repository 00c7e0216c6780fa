// Package istio_test runs Istio's own client, as its authors publish it,
// against Bailiwick as built, on a real API server.
//
// Nothing here may import our proto: Istio's has the same messages, and a
// process can have them once.
package istio_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/bailiwick"
	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

var (
	shared    *cluster.Cluster
	sharedDir string
)

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, "e2e/istio", func(c *cluster.Cluster, dir string) { shared, sharedDir = c, dir }))
}

var built = sync.OnceValues(func() (string, error) {
	return bailiwick.Build(context.Background(), sharedDir)
})

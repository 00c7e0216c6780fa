// Prepare builds what the tests in e2e/kubernetes need, etcd and
// kube-apiserver, and shows its progress. The tests build them as well if they
// have to, but then "go test" shows nothing until it ends.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bailiwick-ca/bailiwick/e2e/kubernetes/cluster"
)

func main() {
	b, err := cluster.Build(context.Background(), os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1) //nolint:forbidigo // a program
	}
	defer b.Close()
	fmt.Println(b.APIServer)
	fmt.Println(b.Etcd)
}

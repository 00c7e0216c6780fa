package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bailiwick-ca/bailiwick/"

// layers is the import policy: which packages of ours each package of ours may
// import. It is a decision, not a description: see docs/decisions/0001.
func layers() map[string]string {
	return map[string]string{
		"authz":               "",
		"ca":                  "authz",
		"ca/material":         "ca",
		"ca/server":           "authz ca proto/istio/v1/auth",
		"k8s/inventory":       "authz",
		"k8s/token":           "authz",
		"proto/istio/v1/auth": "",
		"e2e/scenario":        "",
		"e2e/conformance":     "proto/istio/v1/auth",
		"e2e/mutants":         "",
		"e2e/ztunnel":         "proto/istio/v1/auth",
		"cmd/bailiwick":       "authz ca ca/material ca/server e2e/conformance k8s/inventory k8s/token proto/istio/v1/auth",

		"e2e/ztunnel/cmd/ztunnel-emulator": "e2e/ztunnel",
	}
}

// testLayers is what tests may import beyond that.
func testLayers() map[string]string {
	return map[string]string{
		"authz":         "e2e/scenario",
		"ca/server":     "ca/material",
		"ca":            "ca/material",
		"cmd/bailiwick": "e2e/scenario",
	}
}

// worlds says which packages may reach the outside worlds, directly or not.
func worlds() map[string]string {
	return map[string]string{
		"google.golang.org/grpc":         "ca/server cmd/bailiwick e2e/conformance e2e/ztunnel e2e/ztunnel/cmd/ztunnel-emulator proto/istio/v1/auth",
		"google.golang.org/protobuf":     "ca/server cmd/bailiwick e2e/conformance e2e/ztunnel e2e/ztunnel/cmd/ztunnel-emulator proto/istio/v1/auth k8s/inventory k8s/token",
		"k8s.io":                         "k8s/inventory k8s/token cmd/bailiwick",
		"github.com/golang-jwt/jwt":      "k8s/token cmd/bailiwick",
		"github.com/prometheus":          "ca/server cmd/bailiwick",
		"github.com/spf13":               "cmd/bailiwick k8s/inventory k8s/token", // client-go brings pflag
		"github.com/spiffe/go-spiffe/v2": "authz ca ca/material ca/server e2e/conformance e2e/ztunnel e2e/ztunnel/cmd/ztunnel-emulator k8s/inventory k8s/token cmd/bailiwick",
	}
}

// A listed package is what "go list" says of one.
type listed struct {
	ImportPath                               string
	Imports, TestImports, XTestImports, Deps []string
}

func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestLayers(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		seen[name] = true
		allowed, ok := layers()[name]
		if !ok {
			t.Errorf("package %s has no place in layers", name)
			continue
		}
		checkImports(t, name, p.Imports, allowed)
		checkImports(t, "the test of "+name, slices.Concat(p.TestImports, p.XTestImports), name+" "+allowed+" "+testLayers()[name])
		checkWorlds(t, name, p.Deps)
	}
	for name := range layers() {
		if !seen[name] {
			t.Errorf("layers has package %s, which there is not", name)
		}
	}
}

func checkImports(t *testing.T, name string, imports []string, allowed string) {
	t.Helper()
	for _, imp := range imports {
		if of, ours := strings.CutPrefix(imp, module); ours && !slices.Contains(strings.Fields(allowed), of) {
			t.Errorf("%s imports %s, which layers does not allow", name, of)
		}
	}
}

func checkWorlds(t *testing.T, name string, deps []string) {
	t.Helper()
	for world, may := range worlds() {
		if slices.Contains(strings.Fields(may), name) {
			continue
		}
		for _, dep := range deps {
			if dep == world || strings.HasPrefix(dep, world+"/") {
				t.Errorf("%s depends on %s", name, dep)
				break
			}
		}
	}
}

// TestPure has the packages that may use nothing but the standard library and
// spiffeid.
func TestPure(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !slices.Contains([]string{"authz", "ca", "ca/material", "e2e/scenario", "e2e/mutants"}, name) {
			continue
		}
		for _, dep := range p.Imports {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") && !strings.HasPrefix(dep, module) && dep != "github.com/spiffe/go-spiffe/v2/spiffeid" {
				t.Errorf("%s imports %s", name, dep)
			}
		}
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is what "go list" says of a package.
type pkg struct {
	ImportPath, Name, Dir, Export, ForTest string
	GoFiles, Deps                          []string
	Module                                 *struct{ Path string }
}

// list asks "go list" in dir.
func list(dir string, args ...string) ([]pkg, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...) //nolint:gosec // arguments of our own
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says: %w", err)
		}
		all = append(all, p)
	}
}

// A source is a parsed file whose mutants are wanted, with the types of all that
// is in it.
type source struct {
	path       string // from the root of the module
	dir        string // of its package, likewise
	importPath string
	text       []byte
	file       *ast.File
	set        *token.FileSet
	info       *types.Info
	home       string // the path of the module
}

// load reads the files that the scopes name, a folder or a file each, as paths
// from root.
func load(root string, scopes []string) ([]*source, error) {
	var folders []string
	for _, s := range scopes {
		folders = append(folders, "./"+folder(s))
	}
	listed, err := list(root, append([]string{"-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,Module"}, folders...)...)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for _, p := range listed {
		exports[p.ImportPath] = p.Export
	}
	var all []*source
	for _, p := range listed {
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil || !slices.Contains(folders, "./"+dir) {
			continue
		}
		srcs, err := check(dir, p, exports)
		if err != nil {
			return nil, err
		}
		for _, s := range srcs {
			if !ast.IsGenerated(s.file) && (slices.Contains(scopes, dir) || slices.Contains(scopes, s.path)) {
				all = append(all, s)
			}
		}
	}
	return all, nil
}

func folder(scope string) string {
	if strings.HasSuffix(scope, ".go") {
		return filepath.Dir(scope)
	}
	return scope
}

// check parses the files of a package and finds their types.
func check(dir string, p pkg, exports map[string]string) ([]*source, error) {
	set := token.NewFileSet()
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
	var files []*ast.File
	var all []*source
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(set, filepath.Join(p.Dir, name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
		all = append(all, &source{path: filepath.Join(dir, name), dir: dir, importPath: p.ImportPath, text: text, file: file, set: set, info: info, home: p.Module.Path})
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	if _, err := conf.Check(p.ImportPath, set, files, info); err != nil {
		return nil, fmt.Errorf("finding the types of %s: %w", p.ImportPath, err)
	}
	return all, nil
}

package lint_test

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var arch = flag.String("arch", "", "type-check the tree for this processor too, without a C compiler: make lint")

// listed is a package as `go list` prints it. Each package comes after those that it imports.
type listed struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // imports that stand for packages with other paths
	Module          *struct{ Main bool }
}

// Another processor may lack what this one has: a system call, a field of a struct, a constant. The
// types of the tree, its imports and its tests are read from source for that processor. Nothing is
// compiled, which would take minutes and find the same.
func TestTheTreeIsWellTypedForAnotherProcessor(t *testing.T) {
	if *arch == "" {
		t.Skip("it takes seconds: -args -arch arm64")
	}
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...")
	cmd.Dir, cmd.Stderr = moduleRoot(t), os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+*arch, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	known := map[string]*types.Package{"unsafe": types.Unsafe}
	own := 0
	for all := json.NewDecoder(strings.NewReader(string(out))); all.More(); {
		var p listed
		if err := all.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // the go command writes the latter
			continue
		}
		known[p.ImportPath] = p.check(t, known)
		if p.own() {
			own++
		}
	}
	if own < 50 {
		t.Errorf("%d packages of this tree were checked: that proves nothing", own)
	}
}

func (p *listed) own() bool { return p.Module != nil && p.Module.Main }

// check returns the types of a package whose imports are known. The bodies of functions are only
// checked in our own packages.
func (p *listed) check(t *testing.T, known map[string]*types.Package) *types.Package {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	cfg := types.Config{
		Importer: importer(func(path string) *types.Package {
			if other := p.ImportMap[path]; other != "" {
				path = other
			}
			return known[path]
		}),
		IgnoreFuncBodies: !p.own(),
		Sizes:            types.SizesFor("gc", *arch),
		Error:            func(err error) { t.Errorf("%s: %v", *arch, err) },
	}
	pkg, _ := cfg.Check(p.ImportPath, fset, files, nil) // Error has seen every error
	return pkg
}

// importer finds packages that were checked before.
type importer func(path string) *types.Package

func (f importer) Import(path string) (*types.Package, error) {
	if p := f(path); p != nil {
		return p, nil
	}
	return nil, &os.PathError{Op: "import", Path: path, Err: os.ErrNotExist}
}

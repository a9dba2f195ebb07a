package lint

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A tree is the source of one module.
type tree struct {
	module string   // the module's path
	goMod  []string // the lines of go.mod
	files  []*file
}

// A file is one source file. Rules on text apply to all files, the others only to files with
// syntax.
type file struct {
	path      string // slash-separated, relative to the root
	folder    string // "" is the root package
	lines     []string
	test      bool // its name ends in _test.go
	generated bool // it carries the standard comment of generated code
	fset      *token.FileSet
	syntax    *ast.File // nil unless it is Go
	imports   []imported
}

// imported is one line of an import declaration.
type imported struct {
	path string
	name string // as used in the file; "_" and "." too
	pos  token.Pos
}

// Extensions of files that are read. Only the rules on text apply to files other than Go, and only
// the rules on links and names of tests to pages.
var extensions = []string{".go", ".c", ".h", ".cu", ".cuh", ".s", ".proto", ".md"}

// load reads the tree at root. It leaves out what the go command leaves out (testdata, vendor,
// names with a leading dot or underscore, nested modules) and what the Makefile creates.
func load(root string) (*tree, error) {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	t := &tree{goMod: strings.Split(string(b), "\n")}
	if t.module, err = modulePath(t.goMod); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && skipped(p, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, path.Ext(rel)) || !d.Type().IsRegular() {
			return nil
		}
		f, err := readFile(p, rel)
		if err != nil {
			return err
		}
		t.files = append(t.files, f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the source below %s: %w", root, err)
	}
	return t, nil
}

func skipped(p, rel string) bool {
	base := path.Base(rel)
	if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' || rel == "bin" || rel == "runs" {
		return true
	}
	_, err := os.Stat(filepath.Join(p, "go.mod"))
	return err == nil // a nested module
}

func modulePath(goMod []string) (string, error) {
	for _, line := range goMod {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.Trim(strings.TrimSpace(name), `"`), nil
		}
	}
	return "", errors.New("find the module: go.mod has no module line")
}

func readFile(p, rel string) (*file, error) {
	src, err := os.ReadFile(p)
	if err != nil {
		return nil, err
	}
	f := &file{path: rel, folder: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), fset: token.NewFileSet()}
	if f.folder == "." {
		f.folder = ""
	}
	f.lines = strings.Split(string(bytes.TrimSuffix(src, []byte("\n"))), "\n")
	if path.Ext(rel) != ".go" {
		return f, nil
	}
	f.syntax, err = parser.ParseFile(f.fset, rel, src, parser.ParseComments)
	if err != nil {
		return nil, err // the error has the position
	}
	f.generated = ast.IsGenerated(f.syntax)
	for _, spec := range f.syntax.Imports {
		at, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: import %s: %w", rel, spec.Path.Value, err)
		}
		name := guessName(at)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		f.imports = append(f.imports, imported{path: at, name: name, pos: spec.Pos()})
	}
	return f, nil
}

// guessName returns the probable name of the package at an import path: the last element, without a
// version suffix such as v2. The rules use it for the standard library, where it is correct.
func guessName(importPath string) string {
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && base[1] >= '0' && base[1] <= '9' {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

// qualified reports which name of which imported package an expression is, as in time.Now. A
// variable that shadows the package is not a use of it.
func (f *file) qualified(e ast.Expr) (importPath, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok || id.Obj != nil {
		return "", ""
	}
	for _, i := range f.imports {
		if i.name == id.Name {
			return i.path, sel.Sel.Name
		}
	}
	return "", ""
}

// uses calls visit for each use of a name of an imported package.
func (f *file) uses(visit func(importPath, name string, at token.Pos)) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok {
			if importPath, name := f.qualified(e); name != "" {
				visit(importPath, name, e.Pos())
			}
		}
		return true
	})
}

// command reports whether the file belongs to a program rather than a library.
func (f *file) command() bool { return f.syntax.Name.Name == "main" }

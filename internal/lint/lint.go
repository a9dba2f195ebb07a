package lint

import (
	"cmp"
	"fmt"
	"go/token"
	"path"
	"slices"
)

// A Finding is one violation of one rule.
type Finding struct {
	Path    string // slash-separated, relative to the root of the tree
	Line    int    // from 1; 0 means the whole file or folder
	Rule    string // the name of the rule, one word
	Message string // what is wrong and what to do
}

// String returns the finding in the form that editors can jump to.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Path, f.Rule, f.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.Path, f.Line, f.Rule, f.Message)
}

// Check applies every rule to the tree of source files at root, the folder of go.mod. It returns the
// findings in the order of path and line; an error means that the tree could not be read or parsed.
func Check(root string) ([]Finding, error) {
	t, err := load(root)
	if err != nil {
		return nil, err
	}
	r := &report{}
	for _, f := range t.files {
		r.file = f
		if path.Ext(f.path) == ".md" {
			continue // see checkLinks
		}
		checkSize(r, f)
		checkWords(r, f)
		if f.syntax == nil || f.generated {
			continue
		}
		checkLayers(r, t.module, f)
		checkCores(r, t.module, f)
		checkUnsafe(r, f)
		checkCalls(r, f)
		checkErrorText(r, f)
	}
	checkFolders(r, t)
	checkLinks(r, root, t)
	checkNamedTests(r, t)
	checkModule(r, t)
	slices.SortStableFunc(r.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return r.findings, nil
}

// A report collects findings. It is passed from file to file.
type report struct {
	file     *file
	findings []Finding
}

// at adds a finding at a position of the current file.
func (r *report) at(p token.Pos, rule, format string, args ...any) {
	r.line(r.file.fset.Position(p).Line, rule, format, args...)
}

// line adds a finding in the current file.
func (r *report) line(line int, rule, format string, args ...any) {
	r.path(r.file.path, line, rule, format, args...)
}

// path adds a finding for any path.
func (r *report) path(path string, line int, rule, format string, args ...any) {
	r.findings = append(r.findings, Finding{Path: path, Line: line, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// The name of a test in prose. It needs four more letters, so that `go test -run TestX` may be used
// as an example.
var testName = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9_]{4,}\b`)

// checkNamedTests checks that the tests exist which pages and package comments name as a proof.
// Otherwise nobody would notice that such a test was renamed or deleted.
func checkNamedTests(r *report, t *tree) {
	have := make(map[string]bool)
	for _, f := range t.files {
		if f.syntax == nil || !f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				have[fn.Name.Name] = true
			}
		}
	}
	for _, f := range t.files {
		page := path.Ext(f.path) == ".md"
		if !page && path.Base(f.path) != "doc.go" {
			continue
		}
		r.file = f
		for i, line := range f.lines {
			if !page && !strings.HasPrefix(line, "//") {
				continue
			}
			for _, name := range testName.FindAllString(line, -1) {
				if !have[name] {
					r.line(i+1, "tests", "there is no %s: name the test that shows this now, or take the promise back", name)
				}
			}
		}
	}
}

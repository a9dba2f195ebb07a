package lint

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on length. A longer file or function does more than one thing: compose it of smaller ones.
// The limits are generous, so that no one has to split one idea to meet them.
const (
	maxFileLines     = 800 // lines, in any language
	maxFunctionLines = 80  // lines of Go; a table counts as one line
	maxTestLines     = 120 // the same for functions in test files, which often tell a story from start to end

	maxCommentColumns = 120 // of a comment line in Go, with a tab counted as four: prose should fit on the screen
)

// File names that say nothing about the content; such files keep growing.
var emptyNames = []string{"util.go", "utils.go", "common.go", "misc.go", "helper.go", "helpers.go", "types.go", "consts.go"}

func checkSize(r *report, f *file) {
	if f.generated {
		return
	}
	if n := len(f.lines); n > maxFileLines {
		r.line(0, "size", "the file has %d lines, the limit is %d: give each idea in it a file of its own, or move "+
			"a table into testdata", n, maxFileLines)
	}
	if slices.Contains(emptyNames, path.Base(f.path)) {
		r.line(0, "names", "a file is named by the noun inside it, and %s says none: move each part beside what it serves",
			path.Base(f.path))
	}
	if f.syntax == nil {
		return
	}
	limit := maxFunctionLines
	if f.test {
		limit = maxTestLines
	}
	for _, g := range f.syntax.Comments {
		if slices.ContainsFunc(g.List, func(c *ast.Comment) bool { return strings.HasSuffix(c.Text, "utput:") }) {
			continue // what an example prints
		}
		for _, c := range g.List {
			line := f.lines[f.fset.Position(c.Pos()).Line-1]
			text := strings.TrimLeft(line, "\t")
			n := utf8.RuneCountInString(text) + 4*(len(line)-len(text))
			if n > maxCommentColumns && strings.HasPrefix(text, "// ") {
				r.at(c.Pos(), "size", "the comment is %d columns wide, the limit is %d: wrap it", n, maxCommentColumns)
			}
		}
	}
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := f.lineCount(fn) - f.tableLines(fn); n > limit {
			r.at(fn.Pos(), "size", "function %s has %d lines (tables not counted), the limit is %d: name its parts and "+
				"make each a function", fn.Name.Name, n, limit)
		}
	}
}

// lineCount returns the number of lines that n covers.
func (f *file) lineCount(n ast.Node) int {
	return f.fset.Position(n.End()).Line - f.fset.Position(n.Pos()).Line + 1
}

// tableLines returns the number of lines in n that are inside literals of arrays, slices and maps: data,
// not code. A literal that holds a function is code.
func (f *file) tableLines(n ast.Node) int {
	lines := 0
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch lit.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
		default:
			return true
		}
		if holdsFunction(lit) {
			return true
		}
		lines += f.lineCount(lit) - 1
		return false
	})
	return lines
}

func holdsFunction(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		_, ok := n.(*ast.FuncLit)
		found = found || ok
		return !found
	})
	return found
}

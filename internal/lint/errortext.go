package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// A word at the beginning of an error: a capital followed by small letters only, so not GPU,
// OpenBLAS or CRC32C.
var capitalised = regexp.MustCompile(`^[A-Z][a-z]+\b`)

// Beginnings that say nothing, since every error could have them.
var noise = []string{"failed to ", "error ", "error: ", "unable to ", "could not "}

// checkErrorText checks the texts of errors. Callers join them with colons into one line, so each
// should be a lower-case phrase that says what was being done, and to what.
func checkErrorText(r *report, f *file) {
	if f.test {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		importPath, name := f.qualified(call.Fun)
		if importPath == "errors" && name == "New" || importPath == "fmt" && name == "Errorf" {
			if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, _ := strconv.Unquote(lit.Value) // the parser has checked the literal
				judgeText(r, call.Pos(), text)
			}
		}
		return true
	})
}

func judgeText(r *report, at token.Pos, text string) {
	if w := capitalised.FindString(text); w != "" {
		r.at(at, "errors", "the error %q starts with a capital, but it will stand after a colon: write %q",
			text, strings.ToLower(w[:1])+w[1:])
	}
	if strings.HasSuffix(text, "\n") || strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "...") {
		r.at(at, "errors", "the error %q ends like a sentence, but more may follow it: end with its last word", text)
	}
	for _, n := range noise {
		if strings.HasPrefix(text, n) {
			r.at(at, "errors", "the error %q starts with %q, which every error could: say what was being done, "+
				"and to what", text, strings.TrimSpace(n))
		}
	}
}

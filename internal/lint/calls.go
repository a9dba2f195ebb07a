package lint

import (
	"go/ast"
	"go/token"
	"slices"
)

// Calls that libraries must not make, and what to do instead. Programs (package main) and tests may
// make them. Packages of a program, below cmd, may read the environment.
var calls = []struct {
	path    string
	names   []string // nil: all of them
	instead string
}{
	{"fmt", []string{"Print", "Printf", "Println"}, "write to an io.Writer that the caller gives: standard output belongs to the program"},
	{"os", []string{"Exit"}, "return an error: only cmd/kintsugi knows which exit status it means, and deferred calls must run"},
	{"os", []string{"Getenv", "LookupEnv"}, "take a setting as a field: the environment only gives the default of a flag, in cmd/kintsugi"},
	{"log", nil, "take a *slog.Logger, and only in a shell; a library returns errors"},
	{"context", []string{"TODO"}, "take the context of the caller"},
	{"syscall", []string{"Exit"}, "return an error"},
}

func checkCalls(r *report, f *file) {
	for _, i := range f.imports {
		if i.name == "." {
			r.at(i.pos, "calls", "import of %s with a dot hides where names come from: import it by its name", i.path)
		}
	}
	// In a bubble of testing/synctest, sleeping takes no time, and is how a test lets time pass.
	bubble := slices.ContainsFunc(f.imports, func(i imported) bool { return i.path == "testing/synctest" })
	f.uses(func(importPath, name string, at token.Pos) {
		if f.test && importPath == "time" && name == "Sleep" && !bubble {
			r.at(at, "calls", "a test sleeps: wait for the event itself (a channel, an output, a condition with a "+
				"deadline), or run it in testing/synctest, where time jumps")
		}
		if f.test || f.command() {
			return
		}
		for _, c := range calls {
			if within(f.folder, "cmd") && slices.Contains(c.names, "Getenv") {
				continue
			}
			if c.path == importPath && (c.names == nil || slices.Contains(c.names, name)) {
				r.at(at, "calls", "%s.%s in a library: %s", c.path, name, c.instead)
			}
		}
	})
	if !f.test && !f.command() {
		checkBuiltinPrint(r, f)
	}
}

func checkBuiltinPrint(r *report, f *file) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); ok && id.Obj == nil && (id.Name == "print" || id.Name == "println") {
			r.at(call.Pos(), "calls", "%s writes to standard error: it was for debugging, delete it", id.Name)
		}
		return true
	})
}

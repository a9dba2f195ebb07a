package lint

import "strings"

// checkModule checks that others can use the module as it is: go install refuses one with replace or
// exclude lines, and a module that requires this one does not inherit them.
func checkModule(r *report, t *tree) {
	for i, line := range t.goMod {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "replace" || word == "exclude" {
			r.path("go.mod", i+1, "module", "go install refuses a module with %s, and modules that require it do not inherit that: "+
				"require another version", word)
		}
	}
}

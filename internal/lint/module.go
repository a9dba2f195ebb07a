package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// checkModule checks that others can use the module as it is: go install refuses one with replace or
// exclude lines, and a module that requires this one does not inherit them.
func checkModule(r *report, root string) error {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return fmt.Errorf("read the lines of go.mod: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if word == "replace" || word == "exclude" {
			r.path("go.mod", n, "module", "go install refuses a module with %s, and modules that require it do not inherit that: "+
				"require another version", word)
		}
	}
	return nil
}

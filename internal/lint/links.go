package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// A link or an image of Markdown, without a title.
var link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// checkLinks follows the links between the pages of the tree. Those that leave it are not followed: a
// test must not depend on what others serve.
func checkLinks(r *report, root string, f *file) {
	for i, line := range f.lines {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			to := path.Join(f.folder, target)
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
				r.line(i+1, "links", "the link leads to %s, which is not there: name what it should lead to, relative to "+
					"the page, or delete it", to)
			}
		}
	}
}

package lint

import (
	"path"
	"slices"
	"strings"
)

// checkFolders checks whole packages: each needs a line in the table and a package comment.
func checkFolders(r *report, t *tree) {
	var folders []string
	documented := map[string]*file{}
	first := map[string]*file{}
	for _, f := range t.files {
		if f.syntax == nil || f.test || f.generated {
			continue
		}
		if first[f.folder] == nil {
			first[f.folder] = f
			folders = append(folders, f.folder)
		}
		if f.syntax.Doc == nil {
			continue
		}
		if other := documented[f.folder]; other != nil {
			r.path(f.path, 0, "docs", "a second package comment beside that of %s: keep one, or leave an empty line "+
				"before the package clause", path.Base(other.path))
			continue
		}
		documented[f.folder] = f
	}
	slices.Sort(folders)
	for _, folder := range folders {
		f := first[folder]
		if lookup(folder) == nil {
			r.path(f.path, 0, "layers", "package %s has no line in the table of internal/lint: decide what it may import "+
				"and who may import it, and add it there with the reason", name(folder))
		}
		checkPackageComment(r, folder, f, documented[folder])
	}
}

func checkPackageComment(r *report, folder string, first, documented *file) {
	if documented == nil {
		r.path(first.path, 0, "docs", "%s has no package comment: say in doc.go what problem it solves and which "+
			"invariant it keeps", name(folder))
		return
	}
	want := "Package " + documented.syntax.Name.Name + " "
	if documented.command() {
		want = "Command " + path.Base(folder) + " "
	}
	text := documented.syntax.Doc.Text()
	if !strings.HasPrefix(text, want) {
		r.path(documented.path, 0, "docs", "the package comment starts with %q: start it with %q and go on in a sentence "+
			"that fits on the line", firstWords(text), want)
	}
}

// firstWords returns the start of a comment, for a message.
func firstWords(s string) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(3, len(words))], " ")
}

package lint

import "regexp"

// Marks of unfinished work. Code cannot keep the promise to come back. Describe what is missing in
// a Limitation paragraph of the doc comment, where users read it, or in an issue.
var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

const unfinishedMessage = "the comment says %s: finish it, delete it, or describe what is missing in a paragraph " +
	"that begins with \"Limitation:\""

func checkWords(r *report, f *file) {
	if f.generated {
		return
	}
	if f.syntax == nil {
		for i, line := range f.lines {
			if w := unfinished.FindString(line); w != "" {
				r.line(i+1, "words", unfinishedMessage, w)
			}
		}
		return
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if w := unfinished.FindString(c.Text); w != "" {
				r.at(c.Pos(), "words", unfinishedMessage, w)
			}
		}
	}
}

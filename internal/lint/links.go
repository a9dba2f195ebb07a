package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

var (
	// A link or an image in Markdown, without a title.
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)

	heading = regexp.MustCompile(`^#{1,6} +(.+)$`)

	// The text that is shown for a link.
	shown = regexp.MustCompile(`!?\[([^\]]*)\]\([^()\s]+\)`)
)

// checkLinks checks the links between the pages of the tree, including the heading if they name
// one. It does not follow links to other sites: a test must not depend on what others serve.
func checkLinks(r *report, root string, t *tree) {
	anchors := make(map[string]map[string]bool)
	for _, f := range t.files {
		if path.Ext(f.path) == ".md" {
			anchors[f.path] = anchorsOf(f.lines)
		}
	}
	for _, f := range t.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		r.file = f
		for i, line := range f.lines {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				target, anchor, named := strings.Cut(m[1], "#")
				if strings.Contains(target, ":") {
					continue
				}
				to := f.path
				if target != "" {
					to = path.Join(f.folder, target)
				}
				if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
					r.line(i+1, "links", "the link leads to %s, which is not there: name what it should lead to, relative to "+
						"the page, or delete it", to)
				} else if has := anchors[to]; named && has != nil && !has[anchor] {
					r.line(i+1, "links", "the link leads to #%s, and %s has no such heading: name the one that it has now", anchor, to)
				}
			}
		}
	}
}

// anchorsOf returns the anchors that GitHub gives to the headings of a page.
func anchorsOf(lines []string) map[string]bool {
	have, times, fenced := make(map[string]bool), make(map[string]int), false
	for _, line := range lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		m := heading.FindStringSubmatch(line)
		if m == nil || fenced {
			continue
		}
		a := anchorOf(m[1])
		n := times[a]
		times[a]++
		if n > 0 {
			a += "-" + strconv.Itoa(n)
		}
		have[a] = true
	}
	return have
}

// anchorOf returns the anchor of a heading, if no earlier heading has the same one.
func anchorOf(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, strings.TrimSpace(shown.ReplaceAllString(text, "$1")))
}

package kintsugi_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The terms of doc.go are those that readers look up in docs/glossary.md. A term that is only in
// one of them is not explained to its readers.
func TestTheGlossaryHasEveryWordOfTheCode(t *testing.T) {
	code, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := regexp.MustCompile(`(?m)^//\t([a-z, ]+?) {2,}\S`).FindAllStringSubmatch(string(code), -1)
	if len(entries) < 30 {
		t.Errorf("%d words were found in doc.go: they are written in another way now", len(entries))
	}
	for _, entry := range entries {
		for word := range strings.SplitSeq(entry[1], ", ") {
			if !strings.Contains(string(page), "**"+word+"**") {
				t.Errorf("docs/glossary.md does not explain %q", word)
			}
		}
	}
}

// Package lint checks the rules of this repository that a machine can check. Begin reading at Check
// and at the table of packages in layers.go.
//
// The architecture is a table of packages in layers, with the reason for each. Other lists limit
// the pure cores, the use of cgo and unsafe, the size of files and functions, and a few words and
// calls. A test of this package applies all rules to the whole tree, so that a violation breaks the
// build and need not be found in a review.
//
// The rules read source text. Every .go file outside testdata is parsed, whatever its build tags,
// so that code for other machines or a GPU must follow the rules too. In Markdown pages, links are
// checked, and tests that are named must exist. A rule that needs types belongs in staticcheck. If
// asked to, a test of this package checks that the code also type-checks for another processor.
//
// Every finding says what to do instead. If a rule prevents better code, change the rule here, in a
// separate commit that explains why, and do not work around it.
package lint

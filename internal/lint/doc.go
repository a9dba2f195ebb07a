// Package lint holds the rules of this repository that a machine can check.
//
// The architecture is a table of packages in layers, with the reason for each; the limits on the pure
// cores, on cgo and unsafe, on the size of files and functions and on a few words and calls are lists
// beside it. A test of this package applies them all to the tree, so that breaking one breaks the build
// where it is written and not in a review.
//
// The rules read source text: every .go file outside testdata is parsed, whatever its build tags
// say, so that code for another machine or for a GPU is held to them too. In pages, links are
// followed and the tests that are named must exist. A rule that would need types belongs in
// staticcheck. That there are types, also for another processor than that of the machine, a test of
// this package says where it is asked to.
//
// Every finding says what to do instead. A rule that stands in the way of better code is changed here,
// in a commit of its own that says why, and not worked around.
package lint

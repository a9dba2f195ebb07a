// Package report draws what a run did: one self-contained HTML page. Begin reading at Draw and
// Write.
//
// The page needs no network. Styles are inline, charts are SVG drawn here, and it follows the
// reader's light or dark mode. A small inline script shows values at the pointer; without scripts
// the page is complete otherwise. The size of the page does not grow with the run: a curve has at
// most a few hundred points.
//
// Gold marks what was mended: steps that were repeated after a failure, and failures that were
// recovered from.
package report

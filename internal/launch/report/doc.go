// Package report draws what a run did: one self-contained page, to be opened in a browser or kept.
//
// The page needs no network and no script: styles are inline, charts are SVG drawn here, and it
// follows the reader's light or dark mode. A small inline script adds values under the pointer. Its
// size does not grow with the run: charts are drawn from at most a few hundred points per curve.
//
// Gold means mended: steps that were done again after a failure, and failures that were recovered from.
package report

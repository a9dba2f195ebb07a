// Package bench asks questions about the whole system, one file per question. Each states a baseline and
// a claim that could be false, and measures both in one run, interleaved, so that a busy machine slows
// both.
package bench

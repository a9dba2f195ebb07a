// Package bench is what all measurements of the system have in common: operations measured in
// rounds, one after the other, so that a busy machine slows all of them; statistics; and progress.
//
// The measurements are packages below it. Each asks a question, which stands at its beginning,
// together with a baseline and a claim that could be false:
// [github.com/kintsugi-ml/kintsugi/bench/machine] of one machine,
// [github.com/kintsugi-ml/kintsugi/bench/cluster] of runs, and others of a single subject. The
// commands bench, reproduce and tune of cmd/kintsugi run them.
package bench

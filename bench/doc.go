// Package bench measures the whole system. Each file answers one question, which stands at its
// beginning together with a baseline and a claim that could be false. Baseline and claim are
// measured in one run, interleaved, so that a busy machine slows both. The commands bench,
// reproduce and tune of cmd/kintsugi run the measurements.
package bench

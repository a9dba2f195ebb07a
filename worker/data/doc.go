// Package data holds the examples a run trains on and decides which of them form the batch of a gradient.
//
// A [Set] is a training and a test half of examples: labelled images or windows of a text, generated, so that
// no file is needed, or read from files, in the IDX format of MNIST or as plain text. [Open] makes
// one from a name and a folder, [Fetch] downloads the public ones and checks them, [List] describes them.
//
// Which examples a gradient sees is never state. A [Sampler] computes the batch from (seed, slot,
// version, sequence), so that a worker that dies and comes back, or another that takes over its slot,
// computes the same gradient, and no checkpoint has to remember a place in the data.
//
// Everything here is equal on every machine, bit for bit: the processes of a run each make their own
// copy of the data, and a run has to be repeatable elsewhere. That is why products that feed a sum are
// converted explicitly: the language allows fusing a multiplication with an addition, and some
// processors then round differently.
package data

// Package data provides the examples of a run, and decides which of them form the batch of a
// gradient. Begin reading at [Open] and [Sampler].
//
// A [Set] has a training half and a test half of examples: labelled images, labelled vectors,
// windows of a text, ratings, or documents. The examples are generated, so that no file is needed,
// or read from files. [Open] returns a set by its name, [Fetch] downloads the public sets and
// checks them, and [List] describes all sets.
//
// The batch of a gradient is a pure function, not a state. A [Sampler] computes it from (seed,
// slot, version, sequence). So a worker that dies and comes back, or another one that takes over
// its slot, computes the same gradient, and no checkpoint has to store a position in the data.
//
// Everything here is bit-identical on every machine, because each process of a run makes its own
// copy of the data, and a run must be repeatable elsewhere. That is why products that are added to
// a sum are converted explicitly: Go allows a compiler to fuse a multiplication with an addition,
// and the result would then be rounded differently on some processors.
package data

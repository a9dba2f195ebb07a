// Package scar chooses which chunks to save when not all of them are saved at once. Begin with
// Planner.Plan.
//
// With a full checkpoint every C steps, a failure costs C/2 steps on average, and every worker
// repeats all of them. SCAR (Qiao, Aragam, Zhang and Xing, Fault Tolerance in Iterative-Convergent
// Machine Learning, ICML 2019) keeps a running checkpoint instead. Every r·C steps it saves a
// fraction r of the model, which costs the same bytes; each saved chunk replaces what was saved of
// it before. After a failure, only the lost chunks are restored. The steps that a failure then
// costs depend on the distance between the parameters and their saved values. So the chunks that
// have moved furthest are saved first.
//
// The core is pure: distances, accesses and the step are arguments, and a plan is a list of chunks.
// Distances are computed where the values are, in the kernel that makes the step; for counts, see
// [TotalVariation]. The chunks of all shards are numbered through, so a plan is one choice over the
// whole model: a shard whose chunks move little leaves its bytes to the others.
//
// # Bytes
//
// Fractions are fractions of bytes. Every step earns 1/C of the bytes of the model, a plan spends
// what was earned, and the rest is kept for the next plan. So until step t at most t/C models have
// been planned, and at most one chunk less than that, whatever the fraction is. If a chunk is
// larger than what has been earned, the planner waits; taking smaller chunks in its place would
// starve it. At most the bytes of one model and one chunk are kept, and none from before a failure
// after which the run goes on. So no plan is a burst.
//
// # Age
//
// A chunk that moves little might never be chosen. With a maximum age A, chunks that are older go
// first, the oldest first. Then no age exceeds A + C + 2·⌈r·C⌉ steps, as long as saves succeed and
// plans are made when they are due.
package scar

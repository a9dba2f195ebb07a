// Package scar chooses which chunks to save when not all of them are saved at once.
//
// A full checkpoint every C steps makes a failure cost half of C steps, all of them repeated by
// everyone. SCAR (Qiao, Aragam, Zhang and Xing, Fault Tolerance in Iterative-Convergent Machine
// Learning, ICML 2019) keeps a running checkpoint instead: a fraction r of the model is saved every
// r·C steps, which costs the same bytes, each chunk over what was saved of it before; and after a
// failure only what was lost is restored. What decides the steps that a failure then costs is the
// distance between the parameters and their saved values, so the chunks that have moved furthest
// are saved first.
//
// The core is pure: distances, accesses and the step are arguments, and a plan is a list of chunks. Distances are
// computed where the values are, in the kernel that makes the step; see [TotalVariation] for counts.
// The chunks of all shards are numbered through, so a plan is one choice over the whole model: a shard whose
// chunks move little gives its bytes to the others.
//
// # Bytes
//
// The unit of a fraction is the byte. Every step earns 1/C of the bytes of the model, a plan spends what was earned,
// and what it leaves is kept for the next one. So until step t at most t/C models have been planned, and less
// by no more than one chunk, whatever the fraction is. A chunk that is larger than what is there is waited for; to
// take smaller ones in its place would starve it. At most the bytes of one model and a chunk are kept,
// and none from before a run goes on after a failure, so that no plan is a burst.
//
// # Age
//
// A chunk that moves little might never be chosen. With a maximum age A, what is older goes first,
// oldest first. Then no age exceeds A + C + 2·⌈r·C⌉ steps, as long as saves succeed and plans are
// made when they are due.
package scar

// Package rows makes the steps of models whose parameters have owners: factors by alternating least squares
// ([Alternate]) and topics by Gibbs sampling ([Gibbs]).
//
// Each row of parameters, or each document, belongs to one worker slot, by its number alone. A step
// of a worker is what it does to what it owns, given all parameters of one version, so steps of
// different workers never contradict each other. All state of the algorithms is parameters: a step
// is a function of them, of the slot and of the version, like any gradient, so a worker that dies
// loses nothing and computes the same when it comes back.
//
// A step travels as a gradient: what is not touched is +0, and the codec "sparse" sends the rest exactly.
package rows

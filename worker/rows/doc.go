// Package rows computes the steps of models whose parameters have owners: matrix factorisation by
// alternating least squares ([Alternate]), and topics of documents by Gibbs sampling ([Gibbs]).
// Both have a method Gradient that a worker calls like that of any model.
//
// Each row of parameters, or each document, belongs to one worker slot; its number alone determines
// which. In a step, a worker updates what its slot owns, given all parameters of one version. So
// the steps of different workers never conflict. The parameters are the whole state of these
// algorithms. A step is a function of the parameters, the slot and the version, like any gradient.
// So a worker that dies loses nothing, and the next life computes the same.
//
// A step is pushed as a gradient: values that the step does not change are +0, and the codec
// "sparse" sends only the others, exactly.
package rows

// Package kintsugi holds the types that all parts of a parameter server that trains through
// failures share. They are the identifiers, the layout of a model in chunks, and one struct for
// each message of the control plane. Begin with View and Layout, then read message.go in the order
// of a step: Ticket, Commit, Stable, Released.
//
// Workers compute gradients, compress them and push them to a sharded parameter server. The server
// decides how many stragglers to wait for, and survives the death of any of its parts. Kintsugi is
// the craft of mending broken pottery with gold, so that the scar is the strongest part.
//
// The package has no behaviour beyond its types. Packages worker, server and recovery never import
// one another; they meet in these types.
//
// # Words
//
// Each word has one meaning, in code, in messages and in the documentation. docs/glossary.md lists
// these words and those of operation.
//
//	worker        a process that computes gradients
//	server        a process that holds replicas of shards
//	coordinator   decides membership and views
//	conductor     the one decision-maker of a run: counts tickets, chooses the quota, commits steps
//	slot          a worker's place in the run; it outlives the process
//	spare         a process that waits for a place to become empty
//	local rank    a process's number among those of its role on its host
//	incarnation   one life of the process that fills a slot or a server's place
//	push, pull    send a gradient, fetch parameters
//	step          one optimizer step of the whole model
//	version       the parameters after a step; version 0 is the initialisation
//	epoch         one pass over the data
//	view          a numbered configuration: which server holds which shard
//	line          a timeline of a run; a full restore starts a new one
//	fence         a number larger than any before; whoever has promised one refuses smaller ones
//	batch         the examples of one gradient
//	gradient      what a worker computes from a batch, or makes of several with local steps
//	local step    a step that a worker takes by itself; what comes of several is one gradient
//	update        what the head sends down the chain after the step: the scaled sum of gradients
//	shard         the chunks one chain holds
//	replica       one copy of a shard, with its optimizer state, on one server
//	chain         the replicas of one shard, in order
//	chunk         the unit of checkpoint and transfer: whole rows of one tensor
//	quota         gradients to wait for (k)
//	straggler     a worker behind the step; its gradient is late
//	staleness     steps between the parameters a gradient was computed on and the parameters it is applied to
//	head, tail    the first and the last replica of a chain
//	received      the head holds the verified bytes of a push
//	ticket        what the control plane knows of a received push: no floats of the model
//	commit        the conductor's decision which pushes make a step
//	stable        a step is applied on the whole chain of one shard
//	released      a step is stable on every shard; only then may its version be used
//	snapshot      a consistent copy in memory
//	checkpoint    a snapshot, or part of one, made durable and published
//	manifest      the file that names a checkpoint's chunks
//	priority      how far a chunk has moved since it was last saved
//	partial recovery   restoring only the lost chunks
//	residual      what compression left out, carried to the next step
//	density       kept entries / all entries
//	rework        iterations that a failure costs
//	device, host  GPU side, CPU side
package kintsugi

// Package train is runs from their beginning to their end: those that this process starts, with all of their processes,
// and those that it only follows. Begin with [Training].
//
// A watcher follows what a run computes, and writes the record of it. The train command is a watcher that also starts
// the processes of the run, causes the faults that it was asked for, and ends the run after a last checkpoint. The
// monitor command is a watcher of processes that others have started, so it must find out who they are and whether they
// live.
//
// What is in the folder of a run is enough to go on with it, whatever was killed, and when.
package train

// Package shm keeps the state of a shard in memory that outlives the process that writes it: two complete versions in
// a mapped file, so that a server that is killed finds the newest again when it starts.
//
// Memory is the format, a pure machine over bytes. File is the file that the bytes are mapped from.
//
// # What survives
//
// A process that ends at any instruction leaves in the file the version that it was writing, whole, or the one before,
// whole. For the kernel keeps every store that a process has made, and the two places of a version are switched by the
// store of one word:
//
//	Begin  the word names the version that stays alone: the other place may be written
//	…      arrays and record are written there, by any number of threads
//	End    its description is written, then the word names both
//
// A machine that stops loses the file, or worse leaves parts of it on a disk. So the file names the
// boot of the machine that wrote it, and another one refuses it: what is left then is the
// checkpoint.
//
// Only one process has a file at a time: the kernel's lock on it ends with the process. A second
// life that starts too early is refused.
//
// # Segments
//
// Segment is another kind of memory: what two processes of one host use to hand arrays to each
// other. It outlives neither.
package shm

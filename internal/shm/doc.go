// Package shm is memory that several processes see. A server keeps the state of a shard in it,
// which outlives the server's process, and processes of one host hand each other arrays through it.
// Begin with [Memory] and [File] for state, with [Segment] for arrays, and with [Pipes] for
// messages.
//
// [Memory] holds two complete versions of a shard in a mapped file, so that a server that was
// killed finds the newest version when it starts again. Memory is the format, a pure machine over
// bytes. File is the file whose bytes are mapped.
//
// # What survives
//
// A process may end at any instruction. The file then holds the version that the process was
// writing, complete, or the version before, complete. The reason is that the kernel keeps every
// store of a process, and that the store of one word switches between the two places for a version:
//
//	Begin  the word names only the version that stays; the other place may be written, and a bank
//	…      any number of threads write arrays and record there
//	End    the description of the version is written, then the word names both
//
// A machine that stops loses the file, or worse, leaves parts of it on a disk. So the file names
// the boot of the machine that wrote it, and is refused under another boot. Then the checkpoint is
// what is left.
//
// Only one process holds a file at a time: the kernel's lock on the file ends with the process. A
// next life that starts too early is refused.
//
// # Segments
//
// A Segment is another kind of memory: two processes of one host use it to hand arrays to each
// other. It outlives neither of them.
package shm

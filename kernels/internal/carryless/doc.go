// Package carryless computes CRC32C by carry-less multiplication, in C: see crc32c_amd64.c. If [Wide]
// or [Narrow] is false, the functions that need it must not be called; the standard library does the
// work then.
//
// It is a package of its own, with its tests outside, as those of package kernels are: a package with
// tests inside is compiled twice, and its C code with it.
package carryless

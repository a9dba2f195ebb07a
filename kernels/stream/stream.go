// Package stream reads and writes memory and does nothing else. Benchmarks use it as the bound for
// a kernel: a kernel cannot be faster than a loop that only touches the same arrays.
package stream

import "fmt"

// Max is the largest number of arrays that one Move takes.
const Max = 80

// Way says how to move, if the processor has several ways. The ways below may be combined; 0 uses
// neither.
type Way uint8

// The ways.
const (
	Past  Way = 1 << iota // store past the caches
	Ahead                 // prefetch the next part of an array while this one is read
)

// Move reads all bytes of reads and writes all bytes of writes, in the given number of parts. It
// handles the first part of every array, then the second, as a kernel goes through arrays in tiles.
// The bytes that it writes are unspecified.
//
// It panics on more than Max arrays or fewer than one part.
func Move(parts int, reads, writes [][]byte, way Way) {
	if parts < 1 || len(reads)+len(writes) > Max {
		panic(fmt.Sprintf("stream: %d arrays in %d parts", len(reads)+len(writes), parts))
	}
	move(parts, reads, writes, way)
}

// Package stream reads and writes memory and does nothing else. That is the bound of a kernel: one that touches
// the same arrays cannot be faster than a loop which only touches them.
package stream

import "fmt"

// Max is how many arrays one Move takes.
const Max = 80

// Way says how to move, where the processor has several ways; without, with either or with both.
type Way uint8

// The ways.
const (
	Past  Way = 1 << iota // store past the caches
	Ahead                 // ask for the next part of an array while this one is read
)

// Move reads all bytes of reads and writes all bytes of writes, part by part: the first part of
// every array, then the second, as a kernel goes through arrays in tiles. What is written is unspecified.
//
// It panics on more than Max arrays or fewer than one part.
func Move(parts int, reads, writes [][]byte, way Way) {
	if parts < 1 || len(reads)+len(writes) > Max {
		panic(fmt.Sprintf("stream: %d arrays in %d parts", len(reads)+len(writes), parts))
	}
	move(parts, reads, writes, way)
}

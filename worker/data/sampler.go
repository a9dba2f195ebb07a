package data

import (
	"fmt"
	"math/bits"

	"github.com/kintsugi-ml/kintsugi"
)

// Sampler chooses the examples of each gradient. It has no state: the result is a function of its
// fields and the arguments.
//
// The gradients of a run form a sequence, ordered by (version, slot). Example j of the batch of
// (slot, version) has position p = (version*Slots + slot)*Batch + j in it. Epoch p/N is a
// permutation of the N examples, keyed by the seed and the epoch. So if each slot computes one
// gradient for each version, each epoch uses each example exactly once, over all workers together.
// A batch may span two epochs.
//
// A gradient with sequence number s > 0 (another gradient of the same slot on the same version)
// takes its examples from another such order, number s, which is independent of order 0.
//
// A Sampler is a value, safe for concurrent use.
type Sampler struct {
	N     int    // number of examples, at least 1
	Batch int    // number of examples of one gradient, at least 1
	Slots int    // number of workers of the run, at least 1
	Seed  uint64 // of the run
}

// The purposes that separate the random streams derived from one seed.
const (
	forPermutation = 1 + iota
	forGradient
	forDigits
	forText
	forSplit
	forPlanted
)

// Indices returns the examples of one gradient: Batch indices in [0, N). It uses the memory of dst
// if that is large enough. It panics if a field is below 1 or slot is not below Slots.
func (s Sampler) Indices(dst []int, slot kintsugi.Slot, version kintsugi.Step, sequence uint32) []int {
	if s.N < 1 || s.Batch < 1 || s.Slots < 1 || uint64(slot) >= uint64(s.Slots) {
		panic(fmt.Sprintf("data: sampler %+v, slot %d", s, slot))
	}
	dst = dst[:0]
	n := uint64(s.N)
	p := (uint64(version)*uint64(s.Slots) + uint64(slot)) * uint64(s.Batch)
	epoch, place := p/n, p%n
	order := s.order(epoch, sequence)
	for range s.Batch {
		dst = append(dst, int(order.at(place)))
		if place++; place == n {
			epoch, place = epoch+1, 0
			order = s.order(epoch, sequence)
		}
	}
	return dst
}

// Epochs returns the number of whole passes over the data that a synchronous run has made when it
// has reached version.
func (s Sampler) Epochs(version kintsugi.Step) uint64 {
	return uint64(version) * uint64(s.Slots) * uint64(s.Batch) / uint64(s.N)
}

// Seed64 returns the seed of all other randomness in one gradient: dropout masks, noise, stochastic
// rounding. Different arguments give unrelated seeds.
func (s Sampler) Seed64(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) uint64 {
	return hash(forGradient, s.Seed, uint64(slot), uint64(version), uint64(sequence))
}

func (s Sampler) order(epoch uint64, sequence uint32) permutation {
	return newPermutation(uint64(s.N), hash(forPermutation, s.Seed, epoch, uint64(sequence)))
}

// rounds is the number of rounds of the Feistel network. Four make a pseudorandom permutation if
// the round function is pseudorandom (Luby, Rackoff 1988). Two more are added because in small sets
// a half has only a few bits.
const rounds = 6

// permutation is a keyed bijection of [0, n) with random access. It is a Feistel network over the
// smallest even number of bits that can hold n, applied repeatedly until the result is below n. The
// domain is smaller than 4n, so this takes fewer than four rounds on average. It always ends, since
// in a bijection each cycle leads back to its start.
type permutation struct {
	n    uint64
	half uint // bits of one half
	mask uint64
	keys [rounds]uint64
}

func newPermutation(n, key uint64) permutation {
	half := max(1, uint(bits.Len64(n-1)+1)/2)
	p := permutation{n: n, half: half, mask: 1<<half - 1}
	s := stream{key}
	for i := range p.keys {
		p.keys[i] = s.next()
	}
	return p
}

// at returns the image of x, which must be below n.
func (p *permutation) at(x uint64) uint64 {
	for {
		left, right := x>>p.half, x&p.mask
		for _, key := range p.keys {
			left, right = right, left^mix(right+key)&p.mask
		}
		if x = left<<p.half | right; x < p.n {
			return x
		}
	}
}

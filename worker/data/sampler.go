package data

import (
	"fmt"
	"math/bits"

	"github.com/kintsugi-ml/kintsugi"
)

// Sampler chooses the examples of each gradient. It has no state: what it returns is a function of its
// fields and the arguments.
//
// The gradients of a run are lined up by (version, slot). Example j of the batch of (slot, version) is
// at place p = (version*Slots + slot)*Batch + j of the line, and epoch p/N is a permutation of the N
// examples, keyed by the seed and the epoch. So in a run in which each slot computes one gradient for
// each version, each epoch uses each example exactly once, over all workers together. A batch may span
// two epochs.
//
// A gradient with sequence s > 0 (another one of the same slot on the same version) comes from line s,
// which is independent of line 0.
//
// A Sampler is a value, safe for concurrent use.
type Sampler struct {
	N     int    // examples, at least 1
	Batch int    // examples of one gradient, at least 1
	Slots int    // workers of the run, at least 1
	Seed  uint64 // of the run
}

// Purposes keep the streams that are derived from one seed apart.
const (
	forPermutation = 1 + iota
	forGradient
	forDigits
	forText
	forSplit
	forPlanted
)

// Indices writes the examples of one gradient over dst, growing it if its capacity is short, and returns
// them: Batch indices in [0, N). It panics if a field is below 1 or slot is not below Slots.
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

// Epochs returns how many whole epochs lie before the gradients on version: the passes over the data
// that a synchronous run has made when it has reached that version.
func (s Sampler) Epochs(version kintsugi.Step) uint64 {
	return uint64(version) * uint64(s.Slots) * uint64(s.Batch) / uint64(s.N)
}

// Seed64 returns the seed of everything else that is random about one gradient: dropout masks, noise,
// stochastic rounding. Other arguments give unrelated seeds.
func (s Sampler) Seed64(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) uint64 {
	return hash(forGradient, s.Seed, uint64(slot), uint64(version), uint64(sequence))
}

func (s Sampler) order(epoch uint64, sequence uint32) permutation {
	return newPermutation(uint64(s.N), hash(forPermutation, s.Seed, epoch, uint64(sequence)))
}

// rounds of the Feistel network. Four make a pseudorandom permutation if the round function is
// pseudorandom (Luby, Rackoff 1988); two more because small sets make the halves a few bits wide.
const rounds = 6

// permutation is a keyed bijection of [0, n) with random access: a Feistel network over the smallest
// even number of bits that holds n, walked until it lands below n. The domain is below 4n, so a walk takes
// less than four turns on average; it ends because a bijection leads every cycle back to its start.
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

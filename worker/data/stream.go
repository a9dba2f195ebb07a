package data

// weyl is 2^64 divided by the golden ratio, made odd: the increment of SplitMix64.
const weyl = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits in which
// each bit of the input flips each bit of the output with a probability near one half.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hash combines words into one. The result depends on their order and on their number.
func hash(words ...uint64) uint64 {
	h := uint64(len(words))
	for _, w := range words {
		h = mix(h+weyl) ^ mix(w+weyl)
		h = mix(h)
	}
	return h
}

// stream is a SplitMix64 generator. The package has its own generator because generated data must
// never change, not even when a library improves its generator.
type stream struct{ state uint64 }

func (s *stream) next() uint64 {
	s.state += weyl
	return mix(s.state)
}

// uniform returns a number in [lo, hi).
func (s *stream) uniform(lo, hi float64) float64 {
	return lo + float64((hi-lo)*float64(float64(s.next()>>11)*0x1p-53))
}

// bell returns a number with mean 0 and variance 1: the scaled sum of four uniform numbers, within
// 3.47 of 0. It needs no logarithm, whose last bit differs between machines.
func (s *stream) bell() float64 {
	const root3 = 1.7320508075688772
	x := s.next()
	sum := int64(x&0xffff) + int64(x>>16&0xffff) + int64(x>>32&0xffff) + int64(x>>48)
	return float64((float64(float64(sum)*0x1p-16) - 2 + 0x1p-15) * root3)
}

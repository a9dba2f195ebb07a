package model

import (
	"fmt"
	"hash/fnv"
	"math"
)

// The random numbers here are counter-based: number i of a stream is a hash of the stream and i. No
// draw depends on another. So masks and parameters are the same wherever and in whatever order they
// are computed, and a GPU can draw the same ones.

// mix is the finaliser of SplitMix64: a bijection in which each bit of x changes about half of the
// bits of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// weyl is the increment of SplitMix64. It spreads consecutive counters apart before they are mixed.
const weyl = 0x9e3779b97f4a7c15

// stream returns the stream of a seed for one purpose.
func stream(seed uint64, purpose uint64) uint64 { return mix(mix(seed+weyl) + purpose*weyl) }

// draw returns number i of a stream.
func draw(stream, i uint64) uint64 { return mix(stream + (i+1)*weyl) }

// uniform returns number i of a stream as a float64 in [0, 1), a multiple of 2⁻⁵³.
func uniform(stream, i uint64) float64 { return float64(draw(stream, i)>>11) * 0x1p-53 }

// named returns the stream of a seed for a purpose with a name.
func named(seed uint64, name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return stream(seed, h.Sum64())
}

// chooseInitial chooses the intervals of the initial weights. Before a ReLU or a GELU the limit is
// √(6/inputs) (He), so that the variance is preserved; elsewhere it is √(6/(inputs+outputs))
// (Glorot). A layer whose result is added to a residual stream has a limit smaller by √n, if there
// are n such layers, so that the sum begins as large as the stream (Radford et al. 2019).
// Embeddings and the Linear of the logits have limits of their own. The weights of a normalisation
// begin at 1, biases at 0.
func (d *Description) chooseInitial() {
	for at, l := range d.Layers {
		var in, out int
		switch l := l.(type) {
		case Dense:
			in, out = d.Shapes[at].Values(), l.Out
		case Conv2D:
			in, out = d.Shapes[at].Channels*l.Kernel*l.Kernel, l.Filters*l.Kernel*l.Kernel
		case Linear:
			in, out = d.Shapes[at].Width, l.Out
		case Embedding:
			d.initial = append(d.initial, interval{limit: embeddingLimit}, interval{limit: embeddingLimit})
			continue
		case LayerNorm:
			d.initial = append(d.initial, interval{centre: 1}, interval{})
			continue
		default:
			continue
		}
		limit := math.Sqrt(6 / float64(in+out))
		// A ReLU on the logits would be He's case too, but there larger weights only mean larger wrong answers.
		last := len(d.initial)+2 == len(d.tensors)
		if _, linear := l.(Linear); linear && last {
			limit = logitsLimit
		}
		if !last && at+1 < len(d.Layers) {
			switch d.Layers[at+1].(type) {
			case ReLU, GELU:
				limit = math.Sqrt(6 / float64(in))
			case Join:
				limit /= math.Sqrt(float64(d.joins()))
			}
		}
		d.initial = append(d.initial, interval{limit: limit}, interval{})
	}
}

// Init overwrites params, which must have Values() values, with the initial parameters for a seed.
// Each tensor has its own stream of random numbers, derived from its name, so its values do not
// depend on other tensors.
func (d *Description) Init(seed uint64, params []float32) error {
	if err := d.checkVectors(params, nil); err != nil {
		return fmt.Errorf("initialise: %w", err)
	}
	switch {
	case d.Quadratic != nil:
		d.Quadratic.init(seed, params)
		return nil
	case d.Factors != nil:
		d.Factors.init(seed, params)
		return nil
	case d.Topics != nil:
		clear(params)
		return nil
	}
	for i, t := range d.tensors {
		initTensor(named(seed, t.Name), d.initial[i], params[:t.Values()])
		params = params[t.Values():]
	}
	return nil
}

func initTensor(stream uint64, in interval, params []float32) {
	for j := range params {
		v := (2*uniform(stream, uint64(j)) - 1) * in.limit
		if in.centre != 0 {
			v += in.centre
		}
		params[j] = float32(v)
	}
}

// dropoutPurpose separates the streams of masks from other uses of the same seed.
const dropoutPurpose = 0x6472_6f70_0000_0000

// DropoutKey returns the key and the constants of the mask of a Dropout layer. Value n of a batch
// is dropped if a 32-bit half of number n/2 of SplitMix64 with this key is below threshold; the
// half is n mod 2, the low half first. Otherwise the value is multiplied by keep.
func DropoutKey(seed uint64, layer int, rate float32) (key, threshold uint64, keep float32) {
	// With 32 bits, rates can differ by 2⁻³².
	return stream(seed, dropoutPurpose+uint64(layer)), uint64(float64(rate) * (1 << 32)), 1 / (1 - rate)
}

// DropoutMask overwrites mask with the factors of a Dropout layer for consecutive examples of
// features values each. first is the number, in the batch, of the first of these examples. A factor
// is 0 with probability rate, and 1/(1−rate) otherwise, so that the expectation is unchanged. layer
// is the index in Description.Layers. All engines use the same mask, so that they drop the same
// values.
func DropoutMask(mask []float32, seed uint64, layer int, rate float32, first, features int) {
	key, threshold, keep := DropoutKey(seed, layer, rate)
	at := uint64(first) * uint64(features)
	for i := range mask {
		n := at + uint64(i)
		half := draw(key, n>>1) >> (32 * (n & 1)) & math.MaxUint32
		if half < threshold {
			mask[i] = 0
		} else {
			mask[i] = keep
		}
	}
}

package cuda

import (
	"fmt"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// operand mirrors Operand of kernel/operand.cuh.
type operand struct {
	data, scales driver.Ptr
	weight       float32
	encoding     uint32
	cols, rank   uint32
}

// chunk mirrors Chunk of kernel/step.cu.
type chunk struct {
	n                            uint64
	params, given, start         driver.Ptr
	previous, saved              driver.Ptr
	state0, state1               driver.Ptr
	next, nextState0, nextState1 driver.Ptr
	update, broadcast, products  driver.Ptr
	operands                     driver.Ptr
	count                        uint64
}

// stepArgs mirrors StepArgs of kernel/step.cu.
type stepArgs struct {
	chunks       driver.Ptr
	coefficients [12]float32
	flags        uint32
	_            uint32
}

const (
	wantDot = 1 << iota
	wantDisplacement
	wantSaved
)

const (
	stepThreads = 160     // 128 compute tiles, 32 add up by-products
	mostValues  = 1 << 31 // limit on the values of a chunk: kernels count them in 32 bits
)

func flagsOf(dot, displacement, saved bool) (flags uint32) {
	for i, want := range []bool{dot, displacement, saved} {
		if want {
			flags |= 1 << i
		}
	}
	return flags
}

// Step implements kernels.Device.
func (d *Device) Step(s *kernels.Step) (kernels.Products, error) {
	s.Check()
	if len(s.Params) == 0 {
		return kernels.Products{}, nil
	}
	var products [4]float64
	err := d.do("step", func(o *op) { o.step(s, products[:]) })
	copy(s.Copy, s.Next)
	return productsOf(products[:], flagsOf(s.WantDot, s.WantDisplacement, s.WantSaved)), err
}

// productsOf returns the by-products that were asked for, from the four that a kernel wrote.
func productsOf(v []float64, flags uint32) kernels.Products {
	p := kernels.Products{SquaredNorm: v[0]}
	if flags&wantDot != 0 {
		p.DotDisplacement = v[1]
	}
	if flags&wantDisplacement != 0 {
		p.SquaredDisplacement = v[2]
	}
	if flags&wantSaved != 0 {
		p.SquaredDistanceSaved = v[3]
	}
	return p
}

func (o *op) step(s *kernels.Step, products []float64) {
	n := len(s.Params)
	o.countable(n)
	c := chunk{
		n: uint64(n), params: o.floats(s.Params),
		state0: o.floats(s.State[0]), state1: o.floats(s.State[1]),
		next: o.resultFloats(s.Next), nextState0: o.resultFloats(s.NextState[0]), nextState1: o.resultFloats(s.NextState[1]),
		update: o.resultFloats(s.Update), broadcast: o.result(s.Broadcast), products: resultOf(o, products),
	}
	if s.WantDot {
		c.previous = o.floats(s.Previous)
	}
	if s.WantSaved {
		c.saved = o.floats(s.Saved)
	}
	var parts []part
	switch given := s.Given(); {
	case given != nil:
		c.given = o.floats(given)
	case s.Rule == kernels.Assign:
		c.given = o.given(o.part(&s.Operands[0], n), n)
	default:
		for i := range s.Operands {
			parts = append(parts, o.part(&s.Operands[i], n))
		}
	}
	chunks := []chunk{c}
	o.sums(chunks, [][]part{parts})
	o.launchSteps(s.Rule, flagsOf(s.WantDot, s.WantDisplacement, s.WantSaved), chunks, func(int) [12]float32 { return s.Coefficients() })
}

// countable fails the operation if a chunk has more values than a kernel can count.
func (o *op) countable(n int) {
	if n >= mostValues {
		o.fail(fmt.Errorf("%d values: a GPU takes fewer than %d as one chunk; give it parts", n, mostValues))
	}
}

// launchSteps queues the step of all chunks.
func (o *op) launchSteps(rule kernels.Rule, flags uint32, chunks []chunk, coefficients func(i int) [12]float32) {
	eachStep(len(chunks), table(o, chunks), flags, coefficients, func(blocks int, args *stepArgs) {
		launch(o, "step", "step_"+rule.String(), line(blocks), stepThreads, args)
	})
}

// eachStep calls f for each launch that the steps of n chunks need, whose table is at a place on the
// GPU. Consecutive chunks with the same coefficients share one launch.
func eachStep(n int, at driver.Ptr, flags uint32, coefficients func(i int) [12]float32, f func(blocks int, args *stepArgs)) {
	for lo := 0; lo < n; {
		args := stepArgs{chunks: at + driver.Ptr(lo)*chunkSize, coefficients: coefficients(lo), flags: flags}
		hi := lo + 1
		for hi < n && coefficients(hi) == args.coefficients {
			hi++
		}
		f(hi-lo, &args)
		lo = hi
	}
}

// sums gives each chunk its operands, in their order. The sum before a sparse operand is computed
// first, into the memory at which the chunk's own sum starts; then the sparse operand is added to
// it. This happens in rounds: a round takes every chunk up to and including its next sparse
// operand.
func (o *op) sums(chunks []chunk, parts [][]part) {
	type round struct {
		dense  []chunk
		sparse []sparse
	}
	var rounds []round
	o.startSums(chunks, parts)
	for i := range chunks {
		c := &chunks[i]
		var dense []operand
		turn := 0
		for _, p := range parts[i] {
			if p.sparse == nil {
				dense = append(dense, o.dense(p, int(c.n)))
				continue
			}
			if turn == len(rounds) {
				rounds = append(rounds, round{})
			}
			r := &rounds[turn]
			if len(dense) > 0 {
				r.dense = append(r.dense, chunk{n: c.n, start: c.start, operands: o.operands(dense), count: uint64(len(dense)), update: c.start})
				dense = nil
			}
			if p.sparse.gapBytes > 0 {
				s := *p.sparse
				s.dst = c.start
				r.sparse = append(r.sparse, s)
			}
			turn++
		}
		c.operands, c.count = o.operands(dense), uint64(len(dense))
	}
	for _, r := range rounds {
		if len(r.dense) > 0 {
			launch(o, "step", "sum_operands", line(len(r.dense)), stepThreads, &stepArgs{chunks: table(o, r.dense)})
		}
		if len(r.sparse) > 0 {
			launch(o, "sparse", "sparse_add", line(len(r.sparse)), decodeThreads, &sparseArgs{payloads: table(o, r.sparse)})
		}
	}
}

// startSums gives each chunk with sparse operands a sum to start from, which is 0.
func (o *op) startSums(chunks []chunk, parts [][]part) {
	size := 0
	var starts []*chunk
	for i := range chunks {
		for _, p := range parts[i] {
			if p.sparse != nil {
				chunks[i].start = driver.Ptr(size)
				starts = append(starts, &chunks[i])
				size += ceil(4*int(chunks[i].n), vector) * vector
				break
			}
		}
	}
	at := o.zeros(size)
	for _, c := range starts {
		c.start += at
	}
}

// operands stages a table of dense operands. The upper bits of each encoding hold the length of the
// run of operands with that encoding.
func (o *op) operands(dense []operand) driver.Ptr {
	for i := len(dense) - 1; i >= 0; i-- {
		run := uint32(1)
		if i+1 < len(dense) && dense[i+1].encoding&0xff == dense[i].encoding {
			run += dense[i+1].encoding >> 8
		}
		dense[i].encoding |= run << 8
	}
	return table(o, dense)
}

// part is the payload of one chunk, on the GPU.
type part struct {
	operand
	sparse *sparse // nil: the payload is dense
}

// newPart puts the payload of n values on the GPU. It calls stage for each array of the payload, so
// that the numbers in each are aligned. It decodes Int4, which no gradient uses, on the host.
func newPart(e kernels.Encoding, n int, data []byte, stage func([]byte) driver.Ptr) part {
	if e == kernels.Int4 {
		values := make([]float32, n)
		_ = kernels.Best().Decode(values, e, data) // devices of the host cannot be lost
		e, data = kernels.FP32, kernels.Bytes(values)
	}
	r := operand{encoding: uint32(e)}
	switch e {
	case kernels.Sparse16, kernels.Sparse32:
		values, gaps := kernels.SparseParts(e, n, data)
		s := &sparse{values: stage(values), gaps: stage(gaps), gapBytes: uint64(len(gaps)), weight: 1, width: 4}
		if e == kernels.Sparse16 {
			s.width = 2
		}
		return part{sparse: s}
	case kernels.Int8, kernels.Sign:
		scales := 4 * ceil(n, 256)
		r.scales, r.data = stage(data[:scales]), stage(data[scales:])
	case kernels.LowRank:
		cols, rank, p, q := kernels.LowRankParts(n, data)
		r.cols, r.rank = uint32(cols), uint32(rank)
		r.data, r.scales = stage(p), stage(q)
	default:
		r.data = stage(data)
	}
	return part{operand: r}
}

// part stages an operand of n values.
func (o *op) part(p *kernels.Operand, n int) part {
	data := p.Data
	if p.Encoding == kernels.FP32 {
		data = kernels.Bytes(p.Values)
	}
	r := newPart(p.Encoding, n, data, o.bytes)
	if r.weight = p.Weight; r.sparse != nil {
		r.sparse.weight = p.Weight
	}
	return r
}

// dense returns a dense part as an operand of the step. LowRank is decoded first.
func (o *op) dense(p part, n int) operand {
	if kernels.Encoding(p.encoding) != kernels.LowRank {
		return p.operand
	}
	return operand{data: o.given(p, n), weight: p.weight}
}

// given returns the address of the decoded values of a part.
func (o *op) given(p part, n int) driver.Ptr {
	if p.sparse == nil && kernels.Encoding(p.encoding) == kernels.FP32 {
		return p.data
	}
	at := o.room(4 * n)
	o.decode(at, n, p)
	return at
}

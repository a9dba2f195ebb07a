package cuda

import (
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// operand is Operand of kernel/operand.cuh.
type operand struct {
	data, scales driver.Ptr
	weight       float32
	encoding     uint32
	cols, rank   uint32
}

// chunk is Chunk of kernel/step.cu.
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

// stepArgs is StepArgs of kernel/step.cu.
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

const stepThreads = 256

// Step implements kernels.Device.
func (d *Device) Step(s *kernels.Step) (kernels.Products, error) {
	s.Check()
	if len(s.Params) == 0 {
		return kernels.Products{}, nil
	}
	var products [4]float64
	err := d.do("step", func(o *op) { o.step(s, products[:]) })
	p := kernels.Products{SquaredNorm: products[0]}
	if s.WantDot {
		p.DotDisplacement = products[1]
	}
	if s.WantDisplacement {
		p.SquaredDisplacement = products[2]
	}
	if s.WantSaved {
		p.SquaredDistanceSaved = products[3]
	}
	return p, err
}

func (o *op) step(s *kernels.Step, products []float64) {
	c := chunk{
		n: uint64(len(s.Params)), params: o.floats(s.Params),
		state0: o.floats(s.State[0]), state1: o.floats(s.State[1]),
		next: o.resultFloats(s.Next), nextState0: o.resultFloats(s.NextState[0]), nextState1: o.resultFloats(s.NextState[1]),
		update: o.resultFloats(s.Update), broadcast: o.result(s.Broadcast), products: resultOf(o, products),
	}
	args := stepArgs{coefficients: s.Coefficients()}
	if s.WantDot {
		args.flags |= wantDot
		c.previous = o.floats(s.Previous)
	}
	if s.WantDisplacement {
		args.flags |= wantDisplacement
	}
	if s.WantSaved {
		args.flags |= wantSaved
		c.saved = o.floats(s.Saved)
	}
	switch given := s.Given(); {
	case given != nil:
		c.given = o.floats(given)
	case s.Rule == kernels.Assign:
		c.given = o.room(4 * len(s.Params))
		o.decode(c.given, len(s.Params), s.Operands[0].Encoding, s.Operands[0].Data)
	default:
		o.sum(&c, s.Operands)
	}
	args.chunks = table(o, []chunk{c})
	launch(o, "step", "step_"+s.Rule.String(), line(1), stepThreads, &args)
}

// sum gives c the operands. Sparse ones are added, in their turn, to the sum of those before, which starts c's own.
func (o *op) sum(c *chunk, operands []kernels.Operand) {
	n := int(c.n)
	var dense []operand
	for i := range operands {
		p := &operands[i]
		if p.Encoding != kernels.Sparse16 && p.Encoding != kernels.Sparse32 {
			dense = append(dense, o.operand(p, n))
			continue
		}
		if c.start == 0 && len(dense) == 0 {
			c.start = o.zeros(4 * n)
		} else if len(dense) > 0 {
			o.partial(c, dense)
			dense = nil
		}
		o.scatter("sparse_add", c.start, n, p.Encoding, p.Data, p.Weight)
	}
	c.operands, c.count = o.operands(dense), uint64(len(dense))
}

// partial makes the sum of what c starts from and the operands what c starts from.
func (o *op) partial(c *chunk, dense []operand) {
	sum := chunk{n: c.n, start: c.start, operands: o.operands(dense), count: uint64(len(dense))}
	if c.start == 0 {
		c.start = o.room(4 * int(c.n))
	}
	sum.update = c.start
	launch(o, "step", "sum_operands", line(1), stepThreads, &stepArgs{chunks: table(o, []chunk{sum})})
}

// operands stages the table, with the length of each run of one encoding.
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

// operand stages one dense operand of n values.
func (o *op) operand(p *kernels.Operand, n int) operand {
	if p.Encoding == kernels.FP32 {
		return operand{data: o.floats(p.Values), weight: p.Weight}
	}
	if p.Encoding == kernels.LowRank {
		at := o.room(4 * n)
		o.decode(at, n, p.Encoding, p.Data)
		return operand{data: at, weight: p.Weight}
	}
	r := o.payload(p.Encoding, n, p.Data)
	r.weight = p.Weight
	return r
}

// payload stages a dense payload of n values: each of its arrays where its numbers are aligned.
func (o *op) payload(e kernels.Encoding, n int, data []byte) operand {
	r := operand{encoding: uint32(e)}
	switch e {
	case kernels.Int8, kernels.Sign:
		scales := 4 * ceil(n, 256)
		r.scales, r.data = o.bytes(data[:scales]), o.bytes(data[scales:])
	case kernels.LowRank:
		cols, rank, p, q := kernels.LowRankParts(n, data)
		r.cols, r.rank = uint32(cols), uint32(rank)
		r.data, r.scales = o.bytes(p), o.bytes(q)
	default:
		r.data = o.bytes(data)
	}
	return r
}

package machine

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
)

// KernelsConfig configures Kernels.
type KernelsConfig struct {
	Device  kernels.Device
	Sizes   []int // bytes of all arrays of an operation together
	K       []int // number of gradients in a step
	Threads []int
	Pairs   int           // rounds; see Interleave
	AtLeast time.Duration // of one measurement
	Goals   bool          // measure only operations with a goal: see CheckKernels and CheckCodecs

	Progress io.Writer
}

// dtypes are the encodings of gradients in fused steps.
var dtypes = []string{"fp32", "bf16", "fp16", "int8", "sign", "topk:0.01", "topk:0.1"}

// Kernels measures how close the kernels come to the speed of the memory, and what summing in one
// pass gains. For each size and number of threads it measures the bounds of the machine. Then it
// measures each operation beside loops that only move the same bytes (its bound); a fused step of k
// gradients beside one that adds each gradient to an accumulator as it arrives and then runs the
// optimizer; and steps with encoded gradients beside one with float32. Each comparison is
// interleaved, and its baseline could win.
func Kernels(ctx context.Context, cfg KernelsConfig) ([]bench.Row, error) {
	var rows []bench.Row
	for _, size := range cfg.Sizes {
		for _, threads := range cfg.Threads {
			b := kernelsBench{cfg: &cfg, arena: newArena(size, threads)}
			for _, group := range b.groups() {
				fmt.Fprintf(cfg.Progress, "%s, %d bytes, %d threads\n", group.name, size, threads)
				b.reset()
				timed, shown := group.build()
				got, err := bench.Interleave(ctx, cfg.Pairs, cfg.AtLeast, timed)
				if err != nil {
					return nil, err
				}
				rows = append(rows, got[:shown]...)
			}
		}
	}
	return rows, nil
}

// kernelsBench is the state shared by the operations of one size.
type kernelsBench struct {
	cfg *KernelsConfig
	*arena
}

// group is a set of operations that are compared: first those in the table, then their bounds.
type group struct {
	name  string
	build func() (timed []*bench.Timed, shown int)
}

func (b *kernelsBench) groups() []group {
	if b.cfg.Goals {
		return b.goals()
	}
	all := []group{{"bounds", func() ([]*bench.Timed, int) {
		timed := b.bounds(b.threads, b.cfg.K)
		return timed, len(timed)
	}}}
	for _, k := range b.cfg.K {
		all = append(all, group{fmt.Sprintf("sgd of %d", k), func() ([]*bench.Timed, int) { return b.arrivals(k) }})
	}
	k := b.cfg.K[len(b.cfg.K)/2]
	return append(all,
		group{fmt.Sprintf("momentum of %d", k), func() ([]*bench.Timed, int) { return b.encodings(kernels.Momentum, k, dtypes[:1]) }},
		group{fmt.Sprintf("adam of %d", k), func() ([]*bench.Timed, int) { return b.encodings(kernels.Adam, k, dtypes) }},
		group{"scans", b.scans},
	)
}

// goals returns the groups that CheckKernels needs.
func (b *kernelsBench) goals() (all []group) {
	for _, k := range b.cfg.K {
		all = append(all, group{fmt.Sprintf("sgd of %d", k), func() ([]*bench.Timed, int) { return b.arrivals(k) }})
	}
	if k := b.cfg.K[len(b.cfg.K)/2]; b.size >= cacheBytes {
		all = append(all, group{fmt.Sprintf("adam of %d", k), func() ([]*bench.Timed, int) { return b.encodings(kernels.Adam, k, []string{"fp32", "bf16", "int8"}) }})
	}
	return all
}

// arrivals compares the fused step with one that adds gradients as they arrive.
func (b *kernelsBench) arrivals(k int) ([]*bench.Timed, int) {
	m := b.model(kernels.SGD, b.values(k+2))
	operands := b.operands("fp32", k, m.values)
	fused, bound := b.fused(m, "fp32", operands)
	arrival := b.arrival(m, operands)
	fused.Over = arrival
	return append([]*bench.Timed{fused, arrival}, bound...), 2
}

// encodings compares fused steps with gradients in the given dtypes with the first of them.
func (b *kernelsBench) encodings(rule kernels.Rule, k int, dtypes []string) ([]*bench.Timed, int) {
	m := b.model(rule, b.values(k+2+2*rule.States()))
	var shown, bounds []*bench.Timed
	for i, dtype := range dtypes {
		fused, bound := b.fused(m, dtype, b.operands(dtype, k, m.values))
		if i > 0 {
			fused.Over = shown[0]
		}
		shown, bounds = append(shown, fused), append(bounds, bound...)
	}
	return append(shown, bounds...), len(shown)
}

// model is what a step reads and writes besides its operands.
type model struct {
	rule             kernels.Rule
	values           int
	params, next     []float32
	state, nextState [2][]float32
}

func (b *kernelsBench) model(rule kernels.Rule, values int) *model {
	m := &model{rule: rule, values: values, params: b.filled(values), next: b.filled(values)}
	for i := range rule.States() {
		m.state[i], m.nextState[i] = b.filled(values), b.filled(values)
		for j, v := range m.state[i] {
			m.state[i][j] = v * v // second moments are not negative
		}
	}
	return m
}

// filled returns an array of ordinary numbers.
func (b *kernelsBench) filled(n int) []float32 {
	x := b.take(n)
	head := x[:min(n, chunkValues)]
	copy(head, values(len(head), uint64(b.used)))
	for at := len(head); at < n; at += len(head) {
		copy(x[at:], head)
	}
	return x
}

// values draws ordinary numbers.
func values(n int, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(1, seed))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// operands returns the operands of each chunk, for a model with the given number of values.
func (b *kernelsBench) operands(dtype string, k, length int) [][]kernels.Operand {
	n := b.chunk(length)
	chunks := make([][]kernels.Operand, length/n)
	for j := range k {
		weight := 1 + float32(j)/8
		if dtype == "fp32" {
			x := b.filled(length)
			for c := range chunks {
				chunks[c] = append(chunks[c], kernels.Operand{Weight: weight, Values: x[c*n:][:n]})
			}
			continue
		}
		codec, err := compress.Parse(dtype)
		if err != nil {
			panic(err) // dtypes are constants
		}
		p := codec.Encode(nil, values(n, uint64(j)), nil, n, uint64(j))
		x := b.takeBytes(len(p) * len(chunks))
		for c := range chunks {
			data := x[c*len(p):][:len(p):len(p)]
			copy(data, p)
			chunks[c] = append(chunks[c], kernels.Operand{Weight: weight, Encoding: codec.Encoding(), Data: data})
		}
	}
	return chunks
}

// fused returns the step in one pass, and its bounds.
func (b *kernelsBench) fused(m *model, dtype string, operands [][]kernels.Operand) (fused *bench.Timed, bound []*bench.Timed) {
	n := b.chunk(m.values)
	steps := make([]kernels.Step, len(operands))
	mv := &moved{values: m.values, reads: make([][][]byte, len(operands)), writes: make([][][]byte, len(operands))}
	for c := range steps {
		cut := func(x []float32) []float32 { return x[c*n:][:n:n] }
		s := b.step(m.rule, operands[c])
		s.Params, s.Next = cut(m.params), cut(m.next)
		mv.reads[c] = append(mv.reads[c], kernels.Bytes(s.Params))
		mv.writes[c] = append(mv.writes[c], kernels.Bytes(s.Next))
		for i := range m.rule.States() {
			s.State[i], s.NextState[i] = cut(m.state[i]), cut(m.nextState[i])
			mv.reads[c] = append(mv.reads[c], kernels.Bytes(s.State[i]))
			mv.writes[c] = append(mv.writes[c], kernels.Bytes(s.NextState[i]))
		}
		for _, o := range operands[c] {
			if o.Data == nil {
				o.Data = kernels.Bytes(o.Values)
			}
			mv.reads[c] = append(mv.reads[c], o.Data)
		}
		steps[c] = s
	}
	bound = mv.bound(m.rule.String(), b.threads)
	bytes := mv.bytes()
	return &bench.Timed{
		Row:   b.row(m.rule.String(), "fused", dtype, len(operands[0]), m.values, bytes),
		Run:   func(times int) { spread(b.threads, len(steps), times, func(c int) { b.cfg.Device.Step(&steps[c]) }) },
		Bound: bench.Fastest(bytes, bound...),
	}, bound
}

func (b *kernelsBench) row(name, variant, dtype string, k, values int, bytes int64) bench.Row {
	return bench.Row{
		Name: name, Device: b.cfg.Device.Name(), Variant: variant, K: k, DType: dtype, Threads: b.threads,
		Elements: values, Bytes: bytes,
	}
}

func (b *kernelsBench) step(rule kernels.Rule, operands []kernels.Operand) kernels.Step {
	return kernels.Step{
		Rule: rule, Operands: operands, Scale: 1 / float32(len(operands)), Streaming: kernels.Streams(b.size),
		Scalars: kernels.Scalars{
			LearningRate: 0.01, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, WeightDecay: 1e-4,
			Correction1: 0.1, Correction2: 0.001,
		},
	}
}

// arrival returns the same step as in servers that add gradients as they arrive: the first gradient
// is copied to an accumulator, each further one is added to it over the whole model, and then the
// optimizer runs. Each of these passes uses the same vector instructions as the fused step.
func (b *kernelsBench) arrival(m *model, operands [][]kernels.Operand) *bench.Timed {
	n, k, chunks := b.chunk(m.values), len(operands[0]), len(operands)
	sum := b.filled(m.values)
	steps := make([]kernels.Step, chunks)
	for c := range steps {
		acc := sum[c*n:][:n:n]
		s := b.step(m.rule, []kernels.Operand{{Weight: 1, Values: acc}})
		s.Scale = 1 / float32(k)
		s.Params, s.Next = m.params[c*n:][:n:n], m.next[c*n:][:n:n]
		steps[c] = s
	}
	first := []int32{0}
	run := func(thread int) {
		lo, hi := chunks*thread/b.threads, chunks*(thread+1)/b.threads
		for j := range k {
			for c := lo; c < hi; c++ {
				if acc := sum[c*n:][:n]; j == 0 {
					copy(acc, operands[c][j].Values)
				} else {
					b.cfg.Device.AddRows(acc, n, first, operands[c][j].Values)
				}
			}
		}
		for c := lo; c < hi; c++ {
			b.cfg.Device.Step(&steps[c])
		}
	}
	passes := int64(2 + 3*(k-1) + 3) // arrays read or written by the copy, the additions and the optimizer
	return &bench.Timed{
		Row: b.row(m.rule.String(), "in order of arrival", "fp32", k, m.values, passes*4*int64(m.values)),
		Run: func(times int) { spread(b.threads, b.threads, times, run) },
	}
}

// scans returns the operations that read arrays and return a number.
func (b *kernelsBench) scans() ([]*bench.Timed, int) {
	values := b.values(2)
	n := b.chunk(values)
	x, y := b.filled(values), b.filled(values)
	d := b.cfg.Device
	var shown, bounds []*bench.Timed
	for _, scan := range []struct {
		name   string
		arrays [][]float32
		run    func(x, y []float32)
	}{
		{"squared norm", [][]float32{x}, func(x, _ []float32) { d.SquaredNorm(x) }},
		{"finite", [][]float32{x}, func(x, _ []float32) { d.Finite(x) }},
		{"squared distance", [][]float32{x, y}, func(x, y []float32) { d.SquaredDistance(x, y) }},
	} {
		m := &moved{values: values}
		for _, array := range scan.arrays {
			b.move(&m.reads, kernels.Bytes(array), values)
		}
		bound := m.bound(scan.name, b.threads)
		bytes := m.bytes()
		shown = append(shown, &bench.Timed{
			Row: b.row(scan.name, "scan", "fp32", len(scan.arrays), values, bytes),
			Run: func(times int) {
				spread(b.threads, values/n, times, func(c int) { scan.run(x[c*n:][:n], y[c*n:][:n]) })
			},
			Bound: bench.Fastest(bytes, bound...),
		})
		bounds = append(bounds, bound...)
	}
	return append(shown, bounds...), len(shown)
}

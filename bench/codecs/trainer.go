package codecs

import (
	"context"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

// simulated simulates the workers and the server of a run.
type simulated struct {
	trainee  Trainee
	schedule conductor.Schedule
	layout   *kintsugi.Layout
	frames   []kintsugi.ChunkRange
	workers  []*simulatedWorker
	params   []float32
	state    [2][]float32
	bytes    uint64 // pushed so far
}

func simulate(cfg *Config, r *trial, t Trainee) (*simulated, error) {
	l, codec := r.problem.Layout, r.codec
	c := &simulated{trainee: t, schedule: r.schedule, layout: l, params: make([]float32, l.Values)}
	c.frames = transport.FramesOf(l, l.Split(1)[0], func(k kintsugi.Chunk) int { return codec.MaxBytes(k.Len(), l.Tensors[k.Tensor].RowLen()) })
	for i := range r.schedule.Rule.States() {
		c.state[i] = make([]float32, l.Values)
	}
	for range cfg.Workers {
		c.workers = append(c.workers, &simulatedWorker{
			feedback: compress.NewFeedback(codec, l, r.seed), grads: make([]float32, l.Values),
			frames: make([][]byte, len(c.frames)), payloads: make([][]byte, len(l.Chunks)),
		})
	}
	return c, t.Init(c.params)
}

// step makes the step after a version: the gradient of each worker is counted, weighted by its
// number of examples.
func (c *simulated) step(ctx context.Context, version kintsugi.Step) error {
	examples := 0
	for slot, w := range c.workers {
		id := kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(slot), Incarnation: 1, Version: version}
		_, n, err := c.trainee.Gradient(ctx, c.params, w.grads, id)
		if err != nil {
			return err
		}
		w.examples = n
		examples += n
		c.bytes += w.encode(c.layout, c.frames, id)
		w.feedback.Counted(id)
	}
	o := c.schedule.At(version + 1)
	step := kernels.Step{
		Rule: kernels.Rule(o.Rule), Scale: float32(1 / float64(examples)), Operands: make([]kernels.Operand, len(c.workers)),
	}
	for i, k := range c.layout.Chunks {
		step.Scalars = server.Scalars(o, c.layout.Tensors[k.Tensor])
		for j, w := range c.workers {
			step.Operands[j] = w.operand(i, k)
		}
		step.Params, step.Next = c.params[k.Lo:k.Hi], c.params[k.Lo:k.Hi]
		for s := range step.Rule.States() {
			step.State[s], step.NextState[s] = c.state[s][k.Lo:k.Hi], c.state[s][k.Lo:k.Hi]
		}
		if _, err := kernels.Best().Step(&step); err != nil {
			return err
		}
	}
	return nil
}

// simulatedWorker is one simulated worker: its gradient, and what it sends.
type simulatedWorker struct {
	feedback *compress.Feedback
	examples int
	grads    []float32
	frames   [][]byte // payloads before lossless compression
	payloads [][]byte // by chunk
	packed   []byte
}

// encode encodes the gradient as a worker does, and returns the number of bytes sent.
func (w *simulatedWorker) encode(l *kintsugi.Layout, frames []kintsugi.ChunkRange, id kintsugi.PushID) (bytes uint64) {
	for i, r := range frames {
		b := w.frames[i][:0]
		var ends []int
		for k := r.Lo; k < r.Hi; k++ {
			b = w.feedback.Encode(b, id, k, w.grads[l.Chunks[k].Lo:l.Chunks[k].Hi])
			ends = append(ends, len(b))
		}
		w.frames[i] = b
		at := 0
		for j, end := range ends {
			w.payloads[int(r.Lo)+j], at = b[at:end], end
		}
		stage := compress.Plain
		size := len(b)
		if w.packed, stage = w.feedback.Codec().Pack(w.packed[:0], b); stage != compress.Plain {
			size = len(w.packed)
		}
		bytes += uint64(size) + transport.HeaderBytes
	}
	return bytes
}

// operand returns a chunk as a server's step reads it.
func (w *simulatedWorker) operand(i int, k kintsugi.Chunk) kernels.Operand {
	e := w.feedback.Codec().Encoding()
	if e == kernels.FP32 {
		return kernels.Operand{Weight: float32(w.examples), Values: w.grads[k.Lo:k.Hi]}
	}
	return kernels.Operand{Weight: float32(w.examples), Encoding: e, Data: w.payloads[i]}
}

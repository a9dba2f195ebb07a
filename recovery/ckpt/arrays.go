package ckpt

import "github.com/kintsugi-ml/kintsugi"

// Arrays are the values of one chunk: slices of equal length, one value per value of the chunk.
type Arrays struct {
	Params []float32
	State  [2][]float32 // of the optimizer; nil if the rule keeps none
}

// Flat holds the chunks of a range one after the other. Its methods Load and Place save and restore
// it.
type Flat struct {
	Layout *kintsugi.Layout
	Range  kintsugi.ChunkRange
	Arrays          // over the values of Range: length hi − lo of Layout.Span
	Steps  []uint64 // by chunk of Range, the optimizer steps that it has taken

	// Saved is, by chunk of Range, the version of the values. Place sets it.
	Saved []kintsugi.Step
}

// NewFlat returns arrays of zeros for the chunks of r and the state of a rule.
func NewFlat(layout *kintsugi.Layout, r kintsugi.ChunkRange, rule kintsugi.Rule) (*Flat, error) {
	if err := rule.Check(); err != nil {
		return nil, err
	}
	lo, hi := layout.Span(r)
	f := &Flat{
		Layout: layout,
		Range:  r,
		Arrays: Arrays{Params: make([]float32, hi-lo)},
		Steps:  make([]uint64, r.Hi-r.Lo),
		Saved:  make([]kintsugi.Step, r.Hi-r.Lo),
	}
	for i := range rule.States() {
		f.State[i] = make([]float32, hi-lo)
	}
	return f, nil
}

// Chunk returns the part of the arrays that holds one chunk of Range. It shares their memory.
func (f *Flat) Chunk(id kintsugi.ChunkID) Arrays {
	base := f.Layout.Chunks[f.Range.Lo].Lo
	c := f.Layout.Chunks[id]
	a := Arrays{Params: f.Params[c.Lo-base : c.Hi-base]}
	for i, s := range f.State {
		if s != nil {
			a.State[i] = s[c.Lo-base : c.Hi-base]
		}
	}
	return a
}

// Load implements Snapshot.Load.
func (f *Flat) Load(id kintsugi.ChunkID) (Arrays, uint64) {
	return f.Chunk(id), f.Steps[id-f.Range.Lo]
}

// Place implements Place: a restore writes the chunk into the arrays.
func (f *Flat) Place(c ChunkInfo) (Arrays, error) {
	f.Steps[c.Chunk-f.Range.Lo] = c.Optimizer
	f.Saved[c.Chunk-f.Range.Lo] = c.Step
	return f.Chunk(c.Chunk), nil
}

package kintsugi

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
)

// Limits of a chunk. They are part of the data format: chunk boundaries are stored in checkpoints,
// and processes compare them through Layout.Fingerprint.
const (
	MaxChunkValues = 64 << 10 // so that a chunk's operands stay in the cache while a step reads them
	MinChunkValues = 16       // so that a tiny model does not drown in headers
	chunksPerModel = 256      // so that a checkpoint of a fraction of the chunks has enough chunks to choose from
)

// Tensor describes one named array of parameters: dense, row-major float32.
type Tensor struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
}

// Values returns the number of values in the tensor.
func (t Tensor) Values() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowLen returns the number of values in one row, which are all values with the same first index. A
// row of a vector is a single value.
func (t Tensor) RowLen() int {
	n := 1
	for _, d := range t.Shape[1:] {
		n *= d
	}
	return n
}

// Chunk is a run of values of one tensor, and the unit of transfer, checkpoint and arithmetic.
type Chunk struct {
	Tensor int // index into Layout.Tensors
	Lo, Hi int // values [Lo, Hi) of the flat parameter vector
}

// Len returns the number of values in the chunk.
func (c Chunk) Len() int { return c.Hi - c.Lo }

// ChunkRange is the half-open range of chunks [Lo, Hi).
type ChunkRange struct {
	Lo ChunkID `json:"lo"`
	Hi ChunkID `json:"hi"`
}

// Layout says where each tensor of a model lies in the flat parameter vector, and where that vector
// is cut into chunks. It depends on the tensors alone, never on the number of servers. Codecs,
// scales and by-products are defined on chunks, and a checkpoint of two servers restores on three.
//
// A Layout is immutable and safe for concurrent use.
type Layout struct {
	Tensors []Tensor
	Chunks  []Chunk
	Values  int // length of the flat parameter vector

	rates []float32 // by tensor, see WithRates; nil: 1 for all
}

// maxValues bounds the parameters of a model, far above any real one. A size may come from outside
// and be wrong, and the chunks of a layout take memory.
const maxValues = 1 << 40

// NewLayout lays the tensors out one after another, in the given order, and keeps the slice. A
// chunk holds whole rows of one tensor, and at most max(MinChunkValues, Values/256) values, but
// never more than MaxChunkValues. A row longer than that is cut into several chunks.
//
// Errors: no tensor, an empty or repeated name, a tensor without a shape, a dimension that is not
// positive, and more than 2⁴⁰ values in all.
func NewLayout(tensors []Tensor) (*Layout, error) {
	l := &Layout{Tensors: tensors}
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		if t.Name == "" || seen[t.Name] {
			return nil, fmt.Errorf("layout: tensor name %q is empty or used twice", t.Name)
		}
		seen[t.Name] = true
		if len(t.Shape) == 0 {
			return nil, fmt.Errorf("layout: tensor %s has no shape", t.Name)
		}
		n := 1
		for _, d := range t.Shape {
			if d <= 0 {
				return nil, fmt.Errorf("layout: tensor %s has shape %v; every dimension must be positive", t.Name, t.Shape)
			}
			if d > maxValues/n {
				return nil, fmt.Errorf("layout: tensor %s has shape %v; a model has at most %d values", t.Name, t.Shape, maxValues)
			}
			n *= d
		}
		if l.Values += n; l.Values > maxValues {
			return nil, fmt.Errorf("layout: the tensors up to %s have %d values; a model has at most %d", t.Name, l.Values, maxValues)
		}
	}
	if l.Values == 0 {
		return nil, errors.New("layout: a model needs at least one tensor")
	}
	limit := min(MaxChunkValues, max(MinChunkValues, l.Values/chunksPerModel))
	lo := 0
	for i, t := range tensors {
		row := t.RowLen()
		size := limit // a row longer than a chunk is cut into pieces of the limit
		if row <= limit {
			size = limit / row * row
		}
		for end := lo + t.Values(); lo < end; {
			n := min(size, end-lo)
			if row > limit { // pieces never span two rows
				rowEnd := end - (end-lo-1)/row*row
				n = min(n, rowEnd-lo)
			}
			l.Chunks = append(l.Chunks, Chunk{Tensor: i, Lo: lo, Hi: lo + n})
			lo += n
		}
	}
	return l, nil
}

// WithRates returns a layout whose tensors have learning rates of their own. factors maps the name
// of a tensor to the factor of its learning rate; tensors that it does not name have 1. Everything
// else is shared with l. Errors: a name that no tensor has, and a factor that is not a positive,
// finite number.
func (l *Layout) WithRates(factors map[string]float32) (*Layout, error) {
	x, uneven := *l, false
	x.rates = make([]float32, len(l.Tensors))
	named := 0
	for i, t := range l.Tensors {
		rate, ok := factors[t.Name]
		switch {
		case !ok:
			rate = 1
		case !(rate > 0) || math.IsInf(float64(rate), 0):
			return nil, fmt.Errorf("layout: tensor %s has %v times the learning rate; it must be a positive number", t.Name, rate)
		default:
			named++
		}
		x.rates[i] = rate
		uneven = uneven || rate != 1
	}
	if named < len(factors) {
		for _, name := range slices.Sorted(maps.Keys(factors)) {
			if !slices.ContainsFunc(l.Tensors, func(t Tensor) bool { return t.Name == name }) {
				return nil, fmt.Errorf("layout: a learning rate is given for tensor %s, and there is none", name)
			}
		}
	}
	if !uneven {
		x.rates = nil
	}
	return &x, nil
}

// Rate returns the factor of the learning rate of a tensor, given by its index in Tensors.
func (l *Layout) Rate(tensor int) float32 {
	if l.rates == nil {
		return 1
	}
	return l.rates[tensor]
}

// Uneven reports whether some tensors have another learning rate than others.
func (l *Layout) Uneven() bool { return l.rates != nil }

// Fingerprint identifies the names and shapes of the tensors. A checkpoint with another fingerprint
// is refused.
func (l *Layout) Fingerprint() uint64 {
	h := fnv.New64a()
	for _, t := range l.Tensors {
		fmt.Fprintf(h, "%s%v;", t.Name, t.Shape)
	}
	return h.Sum64()
}

// Agreement identifies the layout and its rates. Processes that differ in it refuse one another;
// otherwise the replicas of a shard would diverge.
func (l *Layout) Agreement() uint64 {
	if l.rates == nil {
		return l.Fingerprint()
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%x%v", l.Fingerprint(), l.rates)
	return h.Sum64()
}

// Split cuts the model into n shards of consecutive chunks, whose sizes are as even as whole chunks
// allow. If there are more shards than chunks, some shards are empty.
func (l *Layout) Split(n int) []ChunkRange {
	shards := make([]ChunkRange, n)
	next := ChunkID(0)
	for i := range shards {
		shards[i].Lo = next
		want := l.Values * (i + 1) / n
		// The chunk that crosses the even cut goes to the side on which more of it lies.
		for int(next) < len(l.Chunks) && (l.Chunks[next].Lo+l.Chunks[next].Hi)/2 < want {
			next++
		}
		if i == n-1 {
			next = ChunkID(len(l.Chunks))
		}
		shards[i].Hi = next
	}
	return shards
}

// Span returns the values [lo, hi) of the flat parameter vector that the chunks in r cover; 0, 0
// for an empty range.
func (l *Layout) Span(r ChunkRange) (lo, hi int) {
	if r.Lo == r.Hi {
		return 0, 0
	}
	return l.Chunks[r.Lo].Lo, l.Chunks[r.Hi-1].Hi
}

// TensorAt returns the name of the tensor that holds value i of the flat parameter vector; empty if
// there is no such value.
func (l *Layout) TensorAt(i int) string {
	for _, t := range l.Tensors {
		if i -= t.Values(); i < 0 {
			return t.Name
		}
	}
	return ""
}

package compress

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Codec encodes the chunks of a gradient. It is immutable and safe for concurrent use. [Parse]
// makes one.
type Codec interface {
	// Name returns the canonical spec, such as "topk:0.01". Parse of the name gives the same codec.
	Name() string

	// Encoding returns the encoding of all its payloads.
	Encoding() kernels.Encoding

	// Exact reports whether decoding returns what was encoded, except for the sign of a zero.
	Exact() bool

	// Feedback reports whether the residual is to be added to the next gradient. Exact codecs have
	// no residual.
	Feedback() bool

	// MaxBytes returns an upper bound, in bytes, on the payload of a chunk of n values in rows of
	// rowLen values.
	MaxBytes(n, rowLen int) int

	// Encode appends the payload of x to dst and returns the extended slice. x is one chunk of a
	// tensor with rows of rowLen values. residual, unless nil, is set to x − decoded(payload), with
	// differences rounded to float32; it does not overlap x.
	//
	// A codec that draws random numbers draws them from seed: the same x and seed give the same
	// bytes on every machine. x must be finite, see kernels.Finite: the payload of NaN or an
	// infinity may look like that of an ordinary number.
	Encode(dst []byte, x, residual []float32, rowLen int, seed uint64) []byte

	// Pack packs the payload of a whole frame, which holds any number of chunks, with the codec's
	// lossless stage, and appends the result to dst. If that saves nothing it returns dst unchanged
	// and [Plain], and the payload travels as it is.
	Pack(dst, payload []byte) ([]byte, Stage)

	// encode is Encode of x + carry on device d. carry may be nil.
	encode(d kernels.Device, dst []byte, x, carry, residual []float32, rowLen int, seed uint64) []byte
}

// encoder writes payloads of one encoding.
type encoder interface {
	encoding() kernels.Encoding
	maxBytes(n, rowLen int) int

	// encode appends the payload of x + carry to dst, computed on device d. carry and residual may
	// be nil. Those that are not nil have the length of x, and none of the three overlap.
	encode(d kernels.Device, dst []byte, x, carry, residual []float32, rowLen int, seed uint64) []byte
}

// codec is an encoder with the other parts of a spec.
type codec struct {
	encoder
	name       string
	noFeedback bool
	pack       policy
}

func (c *codec) Name() string               { return c.name }
func (c *codec) Encoding() kernels.Encoding { return c.encoding() }
func (c *codec) Exact() bool                { return exact(c.encoder) }
func (c *codec) Feedback() bool             { return !c.Exact() && !c.noFeedback }
func (c *codec) MaxBytes(n, rowLen int) int { return c.maxBytes(n, rowLen) }

// exact reports whether an encoder leaves nothing out.
func exact(e encoder) bool {
	switch e.(type) {
	case fp32, named:
		return true
	}
	return false
}

func (c *codec) Encode(dst []byte, x, residual []float32, rowLen int, seed uint64) []byte {
	return c.encode(device, dst, x, nil, residual, rowLen, seed)
}

func (c *codec) Pack(dst, payload []byte) ([]byte, Stage) {
	return c.pack.apply(dst, payload, c.encoding())
}

// extend lengthens dst by n bytes. It returns the whole slice and the new part, whose bytes are
// unspecified.
func extend(dst []byte, n int) (all, added []byte) {
	all = slices.Grow(dst, n)[:len(dst)+n]
	return all, all[len(dst):]
}

// AtRandom reports whether a codec draws random numbers.
func AtRandom(c Codec) bool {
	switch e := c.(*codec).encoder.(type) {
	case int8Blocks:
		return e.stochastic
	case powerSGD:
		return true
	}
	return false
}

// Largest returns how many of n values a codec sends, if it sends those of largest magnitude. For
// other codecs it returns 0.
func Largest(c Codec, n int) int {
	if t, ok := c.(*codec).encoder.(topK); ok {
		return t.count(n)
	}
	return 0
}

// Matrix returns the matrix as which a codec of low rank sees a chunk of n values in rows of rowLen
// values, and the rank that it sends. It returns zeros for other codecs. A chunk seen as one column
// is sent as it is, with the factor 1.
func Matrix(c Codec, n, rowLen int) (rows, cols, rank int) {
	if p, ok := c.(*codec).encoder.(powerSGD); ok {
		return p.shape(n, rowLen)
	}
	return 0, 0, 0
}

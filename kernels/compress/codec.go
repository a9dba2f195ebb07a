package compress

import (
	"slices"

	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Codec encodes chunks of a gradient. It is immutable and safe for concurrent use. [Parse] makes one.
type Codec interface {
	// Name returns the canonical spec, such as "topk:0.01": Parse of it is the same codec.
	Name() string

	// Encoding returns how each of its payloads is encoded.
	Encoding() kernels.Encoding

	// Exact reports whether decoding gives back what was encoded, but for the sign of a zero.
	Exact() bool

	// Feedback reports whether what encoding leaves out is to be added to the next gradient. Exact codecs
	// leave out nothing.
	Feedback() bool

	// MaxBytes returns an upper bound of the payload of a chunk of n values in rows of rowLen values.
	MaxBytes(n, rowLen int) int

	// Encode appends the payload of x, one chunk of a tensor with rows of rowLen values, to dst and returns
	// the extended slice. If residual is not nil it is set to x − decoded(payload), of float32 differences;
	// it does not overlap x. The seed makes codecs that draw random numbers repeat: the same x and seed
	// give the same bytes on every machine. x is finite, see kernels.Finite: NaN and infinities may be encoded as
	// numbers that look like others.
	Encode(dst []byte, x, residual []float32, rowLen int, seed uint64) []byte

	// Pack packs the payload of a whole frame, which holds any number of chunks, by the codec's lossless
	// stage, and appends the result to dst. It returns [Plain], and dst as it was, if that saves nothing: then the
	// payload travels as it is.
	Pack(dst, payload []byte) ([]byte, Stage)

	// encode is Encode of x + carry on a device, where carry may be nil.
	encode(d kernels.Device, dst []byte, x, carry, residual []float32, rowLen int, seed uint64) []byte
}

// An encoder writes payloads of one encoding.
type encoder interface {
	encoding() kernels.Encoding
	maxBytes(n, rowLen int) int

	// encode appends the payload of x + carry to dst, on a device of package kernels. carry and
	// residual may be nil; all that are not have equal lengths and do not overlap.
	encode(d kernels.Device, dst []byte, x, carry, residual []float32, rowLen int, seed uint64) []byte
}

// codec is an encoder with everything else that a spec says.
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

// exact says whether an encoder leaves nothing out.
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

// extend lengthens dst by n bytes and returns it with the new part, whose bytes are arbitrary.
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

// Largest returns how many of n values a codec sends, if it sends those of largest magnitude; else 0.
func Largest(c Codec, n int) int {
	if t, ok := c.(*codec).encoder.(topK); ok {
		return t.count(n)
	}
	return 0
}

// Matrix returns how a codec that sends factors of low rank sees a chunk of n values in rows of
// rowLen values, and the rank of what it sends for it; for any other codec, zeros. A chunk with one
// column is sent as it is, with the factor 1.
func Matrix(c Codec, n, rowLen int) (rows, cols, rank int) {
	if p, ok := c.(*codec).encoder.(powerSGD); ok {
		return p.shape(n, rowLen)
	}
	return 0, 0, 0
}

//go:build cgo && (amd64 || arm64) && !windows

package nn

/*
#cgo LDFLAGS: -lm
#cgo noescape kin_nn_gelu
#cgo nocallback kin_nn_gelu
#cgo noescape kin_nn_gelu_gradient
#cgo nocallback kin_nn_gelu_gradient
#cgo noescape kin_nn_layer_norm
#cgo nocallback kin_nn_layer_norm
#cgo noescape kin_nn_layer_norm_gradient
#cgo nocallback kin_nn_layer_norm_gradient
#cgo noescape kin_nn_attention
#cgo nocallback kin_nn_attention
#cgo noescape kin_nn_attention_gradient
#cgo nocallback kin_nn_attention_gradient
#include "nn_seq.h"
*/
import "C"

func (d instructions) GELU(y, x []float32) {
	checkEqual(len(y), len(x), len(x))
	C.kin_nn_gelu(d.set, pointer(y), pointer(x), C.size_t(len(x)))
}

func (d instructions) GELUGradient(dx, dy, x []float32) {
	checkEqual(len(dx), len(dy), len(x))
	C.kin_nn_gelu_gradient(d.set, pointer(dx), pointer(dy), pointer(x), C.size_t(len(x)))
}

func (d instructions) LayerNorm(y, stats, x, w, b []float32) {
	checkNorm(x, y, stats, w, b)
	C.kin_nn_layer_norm(d.set, pointer(y), pointer(stats), pointer(x), pointer(w), pointer(b), C.size_t(len(x)/len(w)), C.size_t(len(w)))
}

func (d instructions) LayerNormGradient(dx, dw, db, dy, x, w, stats []float32) {
	checkNormGradient(dx, dw, db, dy, x, w, stats)
	C.kin_nn_layer_norm_gradient(d.set, pointer(dx), pointer(dw), pointer(db), pointer(dy), pointer(x), pointer(w), pointer(stats),
		C.size_t(len(x)/len(w)), C.size_t(len(w)))
}

// c returns the C arguments that Attention and its gradient share, for one head of an example.
func (h Heads) c(head int, x, p, scratch []float32) C.kin_nn_head {
	return C.kin_nn_head{
		q: pointer(x[h.at(0, head):]), k: pointer(x[h.at(1, head):]), v: pointer(x[h.at(2, head):]), p: pointer(p), scratch: pointer(scratch),
		stride: C.size_t(h.stride()), y_stride: C.size_t(h.stride() / 3), positions: C.size_t(h.Positions), size: C.size_t(h.Size),
		scale: C.float(rootOf(h.Size)),
	}
}

func (d instructions) Attention(h Heads, head int, y, p, x, scratch []float32) {
	h.check(head, x, y, p, scratch)
	c := h.c(head, x, p, scratch)
	c.y = pointer(y[h.at(0, head):])
	C.kin_nn_attention(d.set, c)
}

func (d instructions) AttentionGradient(h Heads, head int, dx, dy, p, x, scratch []float32) {
	h.check(head, x, dy, p, scratch)
	checkEqual(len(dx), len(x), len(x))
	c := h.c(head, x, p, scratch)
	c.dy = pointer(dy[h.at(0, head):])
	c.dq, c.dk, c.dv = pointer(dx[h.at(0, head):]), pointer(dx[h.at(1, head):]), pointer(dx[h.at(2, head):])
	C.kin_nn_attention_gradient(d.set, c)
}

package nn

import "fmt"

// Sequences are the operations that models of sequences need beside matrix products. All are
// ordered: they give equal bits on all devices. A sum over the n values of a row runs in 16 lanes:
// value i goes into lane i mod 16, each lane adds in order from +0, and the lanes are folded by
// l[i] += l[i+8], then +4, +2, +1. A sum over rows or positions runs in their order from +0.
// Products are rounded before they are added.
type Sequences interface {
	// GELU sets y = x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³))), with an error of at most 2⁻²²·|x|. y
	// may be x.
	GELU(y, x []float32)

	// GELUGradient sets dx to dy times the derivative of GELU at x. The derivative has an error of
	// at most 2⁻²⁰ for |x| ≤ 10⁶. dx may be dy.
	GELUGradient(dx, dy, x []float32)

	// LayerNorm normalises each row of x, which has len(w) values, to mean 0 and variance 1, and
	// sets y to the normalised row·w + b. It stores the mean and 1/√(variance + 10⁻⁵) of each row
	// in stats, two values for each row. y is as long as x and may be x.
	LayerNorm(y, stats, x, w, b []float32)

	// LayerNormGradient adds the gradients for w and b to dw and db, row by row. Unless dx is nil,
	// it overwrites dx with the gradient for x. dx may be dy.
	LayerNormGradient(dx, dw, db, dy, x, w, stats []float32)

	// Attention computes head number head of one example; see Heads. x is [Positions,
	// 3·Heads·Size]. It overwrites that head's part of y, which is [Positions, Heads·Size]. It also
	// overwrites p, which has h.Weights() values, with the softmax weights; the gradient needs
	// them. scratch has h.Scratch() values, whose contents do not matter before or after.
	Attention(h Heads, head int, y, p, x, scratch []float32)

	// AttentionGradient overwrites the head's part of dx, which is as long as x, with the gradient
	// for x. dy is the gradient for y and as long as y; p comes from Attention.
	AttentionGradient(h Heads, head int, dx, dy, p, x, scratch []float32)
}

// Heads is the shape of causal attention. Each row of an example's x holds the queries of all
// heads, Size values for each, then the keys, then the values. The result at position t of a head
// is Σ p·value over the positions up to t, where p is the softmax over those positions of query t ·
// key / √Size.
type Heads struct{ Positions, Heads, Size int }

// Weights returns the number of values of p for one head of one example: Positions rows, each
// padded to a multiple of 16.
func (h Heads) Weights() int { return h.Positions * roundUp(h.Positions) }

// Scratch returns the number of values of scratch that the computation of one head needs.
func (h Heads) Scratch() int {
	return h.Size*roundUp(h.Positions) + 3*h.Positions*roundUp(h.Size) + h.Weights() + max(roundUp(h.Size), roundUp(h.Positions))
}

const lanes = 16

func roundUp(n int) int { return (n + lanes - 1) / lanes * lanes }

// at returns the index in a row of x at which the query, key or value (part 0, 1 or 2) of a head
// begins.
func (h Heads) at(part, head int) int { return (part*h.Heads + head) * h.Size }

// stride returns the length of a row of x.
func (h Heads) stride() int { return 3 * h.Heads * h.Size }

// check panics unless the head exists and its arrays have the right lengths.
func (h Heads) check(head int, x, y, p, scratch []float32) {
	if h.Positions < 1 || h.Heads < 1 || h.Size < 1 || head < 0 || head >= h.Heads {
		panic(fmt.Sprintf("nn: head %d of attention %+v", head, h))
	}
	if n := h.Positions * h.Heads * h.Size; len(x) != 3*n || len(y) != n || len(p) != h.Weights() || len(scratch) < h.Scratch() {
		panic(fmt.Sprintf("nn: attention %+v on %d values, giving %d, with %d weights and scratch of %d; it needs %d, %d, %d and %d",
			h, len(x), len(y), len(p), len(scratch), 3*n, n, h.Weights(), h.Scratch()))
	}
}

// checkNorm panics unless x and y are whole rows of n = len(w) values, stats has two values for
// each row, and b has n values.
func checkNorm(x, y, stats, w, b []float32) {
	n := len(w)
	if n == 0 || len(x)%n != 0 || len(y) != len(x) || len(stats) != 2*(len(x)/n) || len(b) != n {
		panic(fmt.Sprintf("nn: norm of %d values to %d with %d weights and %d biases, stats of %d", len(x), len(y), n, len(b), len(stats)))
	}
}

// Embed sets row i of y to row tokens[i] of table plus row i mod P of positions, where positions
// has P rows. All rows have width values, and y has one row for each token.
func Embed(y, tokens, table, positions []float32, width int) {
	checkEmbed(y, tokens, positions, width)
	for i, token := range tokens {
		row := y[i*width:][:width]
		a, b := table[int(token)*width:][:width], positions[i*width%len(positions):][:width]
		for j := range row {
			row[j] = a[j] + b[j]
		}
	}
}

// EmbedGradient adds each row of dy, in order, to the row of dTable and the row of dPositions from
// which Embed made it.
func EmbedGradient(dTable, dPositions, dy, tokens []float32, width int) {
	checkEmbed(dy, tokens, dPositions, width)
	for i, token := range tokens {
		row := dy[i*width:][:width]
		a, b := dTable[int(token)*width:][:width], dPositions[i*width%len(dPositions):][:width]
		for j, v := range row {
			a[j] += v
			b[j] += v
		}
	}
}

func checkEmbed(y, tokens, positions []float32, width int) {
	if width < 1 || len(y) != len(tokens)*width || len(positions) == 0 || len(positions)%width != 0 {
		panic(fmt.Sprintf("nn: embedding of %d tokens in %d values, %d for positions, width %d", len(tokens), len(y), len(positions), width))
	}
}

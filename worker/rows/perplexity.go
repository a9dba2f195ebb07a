package rows

import (
	"context"
	"math"

	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// foldRounds is the number of rounds that estimate the topics of a document. More rounds change
// only the fourth digit.
const foldRounds = 20

// HeldOut returns the mean of −log p, in nats, over half of the tokens of documents that were not
// trained on: every second token. It estimates the topics of each document from the other half,
// with rounds of expectation maximisation; the words of a topic are those that params count. The
// exponential of the result is the perplexity. Documents of a single token are left out. If no
// document remains, the result is NaN.
func HeldOut(ctx context.Context, p model.Topics, params []float32, docs *data.Documents) (float64, error) {
	counts, _ := split(params, p)
	phi := make([]float64, p.Words*p.Topics)
	totals := make([]float64, p.Topics)
	for i, n := range counts {
		totals[i%p.Topics] += float64(n)
	}
	for i, n := range counts {
		phi[i] = (max(0, float64(n)) + p.Beta) / (totals[i%p.Topics] + float64(float64(p.Words)*p.Beta))
	}
	h := heldOut{p: p, phi: phi, theta: make([]float64, p.Topics), next: make([]float64, p.Topics)}
	for d := range docs.Len() {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		h.document(docs.Tokens(d))
	}
	return h.loss / float64(h.tokens), nil
}

type heldOut struct {
	p           model.Topics
	phi         []float64 // [Words, Topics]
	theta, next []float64
	loss        float64
	tokens      int
}

// document adds the second half of one document.
func (h *heldOut) document(tokens []int32) {
	if len(tokens) < 2 {
		return
	}
	k := h.p.Topics
	for i := range h.theta {
		h.theta[i] = 1 / float64(k)
	}
	seen := float64((len(tokens) + 1) / 2)
	for range foldRounds {
		for i := range h.next {
			h.next[i] = h.p.Alpha
		}
		for i := 0; i < len(tokens); i += 2 {
			phi := h.phi[int(tokens[i])*k:][:k]
			share := 1 / dot(h.theta, phi)
			for j, f := range phi {
				h.next[j] += float64(float64(h.theta[j]*f) * share)
			}
		}
		for j := range h.theta {
			h.theta[j] = h.next[j] / (seen + float64(float64(k)*h.p.Alpha))
		}
	}
	for i := 1; i < len(tokens); i += 2 {
		h.loss -= math.Log(dot(h.theta, h.phi[int(tokens[i])*k:][:k]))
		h.tokens++
	}
}

func dot(x, y []float64) (sum float64) {
	for i := range x {
		sum += float64(x[i] * y[i])
	}
	return sum
}

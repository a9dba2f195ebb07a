package rows

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Gibbs is collapsed Gibbs sampling of the topics of documents (Griffiths, Steyvers 2004), parallel
// as in Newman et al. (2009). A step draws the topic of each token of the slot's documents, given
// the counts of the version and the changes that the step itself has made so far. Only one
// goroutine may use a Gibbs at a time.
//
// A slot owns a contiguous range of documents, with about as many tokens as other slots. A token
// without a topic, or with an invalid one, is given a topic. Counts that differ from those of the
// assignments are corrected by the slot that owns the word. So one step after a loss of chunks the
// state is consistent again, whatever versions came back: no other repair is needed.
type Gibbs struct {
	p     model.Topics
	docs  *data.Documents
	slots int
	seed  uint64

	byWord  []int32 // [Words, Topics]
	byTopic []int32
	inverse []float64 // by topic: 1/(byTopic + Words·β)
	byDoc   []int32
	upTo    []float64 // cumulative sums of weights
	topic   []int32   // by token, from 1; 0: none
}

// NewGibbs returns the algorithm for a description with Topics, the training documents, and the
// number of slots and the seed of the run.
func NewGibbs(d *model.Description, docs *data.Documents, slots int, seed uint64) (*Gibbs, error) {
	p := d.Topics
	if p == nil || len(docs.Words) != p.Tokens || slots < 1 {
		return nil, fmt.Errorf("%w: model %s for %d tokens and %d workers", kintsugi.ErrUsage, d.Name, len(docs.Words), slots)
	}
	for _, w := range docs.Words {
		if int(w) >= p.Words {
			return nil, fmt.Errorf("%w: model %s has %d words; a document has word %d", kintsugi.ErrUsage, d.Name, p.Words, w)
		}
	}
	return &Gibbs{
		p: *p, docs: docs, slots: slots, seed: seed,
		byWord: make([]int32, p.Words*p.Topics), byTopic: make([]int32, p.Topics), inverse: make([]float64, p.Topics),
		byDoc: make([]int32, p.Topics), upTo: make([]float64, p.Topics), topic: make([]int32, p.Tokens),
	}, nil
}

// Gradient overwrites grads with what the slot of id adds to counts and assignments on that
// version. It returns the mean of −log p over the slot's tokens, and their number. p is the
// probability of a token given all others, before its topic is drawn. All randomness is a function
// of the seed, the version and the token, but not of the slot. When ctx ends, Gradient returns
// early.
func (g *Gibbs) Gradient(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	size := g.p.Words*g.p.Topics + g.p.Tokens
	if len(params) != size || len(grads) != size {
		return 0, 0, fmt.Errorf("%w: model lda has %d parameters, got %d and room for %d", kintsugi.ErrUsage, size, len(params), len(grads))
	}
	clear(grads)
	counts, assigned := split(params, g.p)
	added, changed := split(grads, g.p)
	g.count(assigned)
	g.reconcile(counts, added, int(id.Slot))
	for d := range g.docs.Len() {
		lo, hi := g.docs.Start[d], g.docs.Start[d+1]
		if lo == hi || lo*g.slots/g.p.Tokens != int(id.Slot) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		loss += g.draw(lo, hi, uint64(id.Version), added)
		examples += hi - lo
		for i := lo; i < hi; i++ {
			changed[i] = float32(g.topic[i]) - assigned[i]
		}
	}
	return loss / float64(max(1, examples)), max(1, examples), nil
}

// split returns the two tensors of a flat vector.
func split(flat []float32, p model.Topics) (counts, assignments []float32) {
	n := p.Words * p.Topics
	return flat[:n:n], flat[n:]
}

// count computes the counts that belong to the assignments.
func (g *Gibbs) count(assigned []float32) {
	clear(g.byWord)
	clear(g.byTopic)
	for i, z := range assigned {
		k := int32(0)
		if z >= 1 && z <= float32(g.p.Topics) && z == float32(int32(z)) {
			k = int32(z)
			g.byWord[int(g.docs.Words[i])*g.p.Topics+int(k)-1]++
			g.byTopic[k-1]++
		}
		g.topic[i] = k
	}
	for k, n := range g.byTopic {
		g.inverse[k] = g.weigh(n)
	}
}

func (g *Gibbs) weigh(n int32) float64 {
	return 1 / (float64(n) + float64(float64(g.p.Words)*g.p.Beta))
}

// reconcile adds the missing counts of the slot's words. There are none unless counts or
// assignments were restored to an earlier version.
func (g *Gibbs) reconcile(counts, added []float32, slot int) {
	k := g.p.Topics
	for w := slot; w < g.p.Words; w += g.slots {
		for i := w * k; i < (w+1)*k; i++ {
			added[i] = float32(g.byWord[i]) - counts[i]
		}
	}
}

// draw draws the topics of the tokens [lo, hi), one document, in order. It adds the changes of the
// counts to added, and returns the sum of −log p over the tokens, each given all others.
func (g *Gibbs) draw(lo, hi int, version uint64, added []float32) (loss float64) {
	topics, alpha, beta := g.p.Topics, g.p.Alpha, g.p.Beta
	clear(g.byDoc)
	have := 0
	for _, k := range g.topic[lo:hi] {
		if k > 0 {
			g.byDoc[k-1]++
			have++
		}
	}
	for i := lo; i < hi; i++ {
		row := int(g.docs.Words[i]) * topics
		byWord := g.byWord[row : row+topics]
		u := uniform(g.seed, version, uint64(i))
		old := int(g.topic[i]) - 1
		if old < 0 {
			loss += math.Log(float64(g.p.Words))
			g.move(i, min(topics-1, int(u*float64(topics))), 1, byWord, added[row:])
			have++
			continue
		}
		g.move(i, old, -1, byWord, added[row:])
		sum := 0.0
		for k, n := range byWord {
			sum += float64(float64((float64(n)+beta)*(float64(g.byDoc[k])+alpha)) * g.inverse[k])
			g.upTo[k] = sum
		}
		k := 0
		for at := u * sum; k < topics-1 && g.upTo[k] <= at; {
			k++
		}
		g.move(i, k, 1, byWord, added[row:])
		loss -= math.Log(sum / (float64(have-1) + float64(float64(topics)*alpha)))
	}
	return loss
}

// move takes topic k from token i if n = −1, or gives it to the token if n = 1.
func (g *Gibbs) move(i, k int, n int32, byWord []int32, added []float32) {
	byWord[k] += n
	g.byDoc[k] += n
	g.byTopic[k] += n
	g.inverse[k] = g.weigh(g.byTopic[k])
	added[k] += float32(n)
	g.topic[i] = int32(k + 1)
}

// uniform returns a random number in [0, 1) for a token of a version.
func uniform(seed, version, token uint64) float64 {
	const weyl = 0x9e3779b97f4a7c15
	return float64(mix(mix(mix(seed+weyl)+version*weyl)+(token+1)*weyl)>>11) * 0x1p-53
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

package partial

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// The corpus of topicModel, and the prior of its topics.
const (
	ldaDocuments, ldaWords, ldaTopics = 1152, 600, 30
	ldaLength, ldaBlock               = 50, 4 // tokens per document, documents per block
	ldaTokens                         = ldaDocuments * ldaLength
	ldaAlpha, ldaBeta                 = 0.5, 0.1
	ldaTurns                          = 32 // steps per sweep
)

// topicModel is latent Dirichlet allocation by collapsed Gibbs sampling, as lda is trained in a run
// with as many workers as a sweep has steps, which take turns. A state is the topic of each token,
// document after document; all counts follow from it. A block is a number of documents, so a loss
// destroys the assignments of some documents.
type topicModel struct {
	seed  uint64
	docs  *data.Documents
	steps *rows.Gibbs

	params, grads []float32 // as in a run: counts, then assignments

	byDoc [ldaTopics]float64
	phi   [ldaWords][ldaTopics]float64 // p(word | topic), divided by the length of a document
}

// newTopicModel draws the corpus from planted topics. It is the same for each seed.
func newTopicModel(seed uint64) (*topicModel, error) {
	rng := rand.New(rand.NewPCG(1, 240))
	docs := &data.Documents{Start: []int{0}}
	for range ldaDocuments {
		mix := [3]int{rng.IntN(ldaTopics), rng.IntN(ldaTopics), rng.IntN(ldaTopics)}
		for range ldaLength {
			// A topic has a range of words, in which words with small numbers are frequent. It
			// overlaps the ranges of other topics.
			at := mix[rng.IntN(len(mix))]*ldaWords/ldaTopics + int(120*math.Pow(rng.Float64(), 2))
			if rng.Float64() < 0.2 {
				at = rng.IntN(ldaWords)
			}
			docs.Words = append(docs.Words, int32(at%ldaWords))
		}
		docs.Start = append(docs.Start, len(docs.Words))
	}
	d, err := models.Topics{Words: ldaWords, Tokens: ldaTokens, Topics: ldaTopics, Alpha: ldaAlpha, Beta: ldaBeta}.Describe()
	if err != nil {
		return nil, err
	}
	steps, err := rows.NewGibbs(d, docs, ldaTurns, seed)
	return &topicModel{seed: seed, docs: docs, steps: steps, params: make([]float32, d.Values()), grads: make([]float32, d.Values())}, err
}

func (t *topicModel) Blocks() (blocks []Block, values, arrays int) {
	for lo := 0; lo < ldaTokens; lo += ldaBlock * ldaLength {
		blocks = append(blocks, Block{lo, lo + ldaBlock*ldaLength})
	}
	return blocks, ldaTokens, 1
}

func (t *topicModel) Init(state []float32) error {
	rng := rand.New(rand.NewPCG(t.seed, 1))
	for i := range state {
		state[i] = float32(1 + rng.IntN(ldaTopics))
	}
	return nil
}

// Step draws the topics of the documents whose turn it is. The randomness is a function of token
// and version, so a disturbed run draws the same numbers as the undisturbed one.
func (t *topicModel) Step(state []float32, version int) error {
	counts := len(t.params) - ldaTokens
	copy(t.params[counts:], state)
	id := kintsugi.PushID{Version: kintsugi.Step(version), Slot: kintsugi.Slot(version % ldaTurns)}
	if _, _, err := t.steps.Gradient(context.Background(), t.params, t.grads, id); err != nil {
		return err
	}
	for i, changed := range t.grads[counts:] {
		state[i] += changed
	}
	return nil
}

// Loss returns the mean of −log p(word | document) over all tokens.
func (t *topicModel) Loss(state []float32) (float64, error) {
	var byTopic [ldaTopics]float64
	t.phi = [ldaWords][ldaTopics]float64{}
	for i, z := range state {
		t.phi[t.docs.Words[i]][int(z)-1]++
		byTopic[int(z)-1]++
	}
	for k, n := range byTopic {
		byTopic[k] = 1 / ((n + ldaWords*ldaBeta) * (ldaLength + ldaTopics*ldaAlpha))
	}
	for w := range t.phi {
		for k := range byTopic {
			t.phi[w][k] = (t.phi[w][k] + ldaBeta) * byTopic[k]
		}
	}
	sum := 0.0
	for d := range t.docs.Len() {
		words, topics := t.docs.Tokens(d), state[t.docs.Start[d]:]
		for k := range t.byDoc {
			t.byDoc[k] = ldaAlpha
		}
		for i := range words {
			t.byDoc[int(topics[i])-1]++
		}
		all := 1.0
		for i, w := range words {
			all *= inner(&t.byDoc, &t.phi[w])
			if i%25 == 24 { // the product of 25 probabilities does not underflow
				sum, all = sum-math.Log(all), 1
			}
		}
		sum -= math.Log(all)
	}
	return sum / ldaTokens, nil
}

// inner returns the inner product of two rows, with independent partial sums.
func inner(x, y *[ldaTopics]float64) float64 {
	var a, b, c float64
	for k := 0; k < ldaTopics; k += 3 {
		a += x[k] * y[k]
		b += x[k+1] * y[k+1]
		c += x[k+2] * y[k+2]
	}
	return a + b + c
}

// Distance implements distancer: the scaled total variation between the topic distributions of
// the documents.
func (t *topicModel) Distance(b Block, x, saved []float32) (d float64) {
	for lo := b.Lo; lo < b.Hi; lo += ldaLength {
		var now, then [ldaTopics]float32
		for i := lo; i < lo+ldaLength; i++ {
			now[int(x[i])-1]++
			then[int(saved[i])-1]++
		}
		d += scar.TotalVariation(now[:], then[:])
	}
	return d
}

// Rise implements riser: the curvature of the likelihood in the topic counts of a document is
// their Fisher information, 1/p.
func (t *topicModel) Rise(b Block, x, saved []float32) (rise float64) {
	for lo := b.Lo; lo < b.Hi; lo += ldaLength {
		var now, moved, fisher [ldaTopics]float32
		for k := range now {
			now[k] = ldaAlpha
		}
		for i := lo; i < lo+ldaLength; i++ {
			now[int(x[i])-1]++
			moved[int(x[i])-1]++
			moved[int(saved[i])-1]--
		}
		for k, n := range now {
			fisher[k] = 1 / n
		}
		var none [ldaTopics]float32
		rise += scar.Rise(fisher[:], moved[:], none[:])
	}
	return rise
}

// Limit implements limiter: topics count from 1.
func (t *topicModel) Limit() int { return ldaTopics + 1 }

// Touched implements toucher: a step changes a contiguous range of documents.
func (t *topicModel) Touched(version int, touch func(block int)) {
	const blocks = ldaDocuments / ldaBlock
	for block := version % ldaTurns * blocks / ldaTurns; block < (version%ldaTurns+1)*blocks/ldaTurns; block++ {
		touch(block)
	}
}

func (t *topicModel) Close() error { return nil }

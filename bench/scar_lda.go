package bench

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

// The corpus of scarTopics, and the prior of its topics.
const (
	ldaDocuments, ldaWords, ldaTopics = 1200, 600, 30
	ldaLength, ldaBlock               = 50, 4 // tokens of a document, documents of a block
	ldaTokens                         = ldaDocuments * ldaLength
	ldaAlpha, ldaBeta                 = 0.5, 0.1
	ldaTurns                          = 16 // steps of a sweep
)

// scarTopics is latent Dirichlet allocation by collapsed Gibbs sampling. A step is the turn of every sixteenth block, as if so
// many workers took turns; sixteen are a sweep. A state is the topic of each
// token, document after document, from which all counts follow. So a block is some documents, and what is
// lost of them are their assignments.
type scarTopics struct {
	seed  uint64
	words []int // by token

	counted []float32 // the state that the counts are of
	byWord  [ldaWords][ldaTopics]float64
	byDoc   [ldaDocuments][ldaTopics]float64
	byTopic [ldaTopics]float64
	rest    [ldaTopics]float64           // 1 over the tokens of a topic and the prior of all words
	phi     [ldaWords][ldaTopics]float64 // scratch: p(word | topic), over the length of a document
}

// newScarTopics draws the corpus from planted topics.
func newScarTopics(seed uint64) *scarTopics {
	rng := rand.New(rand.NewPCG(1, 240)) // the same corpus for each seed
	t := &scarTopics{seed: seed}
	for range ldaDocuments {
		mix := [3]int{rng.IntN(ldaTopics), rng.IntN(ldaTopics), rng.IntN(ldaTopics)}
		for range ldaLength {
			// A topic has a range of words, which overlaps those of others; small numbers in it are common.
			at := mix[rng.IntN(len(mix))]*ldaWords/ldaTopics + int(120*math.Pow(rng.Float64(), 2))
			if rng.Float64() < 0.2 {
				at = rng.IntN(ldaWords)
			}
			t.words = append(t.words, at%ldaWords)
		}
	}
	return t
}

func (t *scarTopics) Blocks() (blocks []ScarBlock, values, arrays int) {
	for lo := 0; lo < ldaTokens; lo += ldaBlock * ldaLength {
		blocks = append(blocks, ScarBlock{lo, lo + ldaBlock*ldaLength})
	}
	return blocks, ldaTokens, 1
}

func (t *scarTopics) Init(state []float32) error {
	rng := rand.New(rand.NewPCG(t.seed, 1))
	for i := range state {
		state[i] = float32(rng.IntN(ldaTopics))
	}
	return nil
}

// count makes the counts that the assignments imply, unless they are those of the step before.
func (t *scarTopics) count(state []float32) {
	if slices.Equal(t.counted, state) {
		return
	}
	t.counted = append(t.counted[:0], state...)
	t.byWord, t.byDoc, t.byTopic = [ldaWords][ldaTopics]float64{}, [ldaDocuments][ldaTopics]float64{}, [ldaTopics]float64{}
	for k := range t.rest {
		t.rest[k] = 1 / (ldaWords * ldaBeta)
	}
	for i, k := range state {
		t.add(i, int(k), 1)
	}
}

func (t *scarTopics) add(token, topic int, n float64) {
	t.byWord[t.words[token]][topic] += n
	t.byDoc[token/ldaLength][topic] += n
	t.byTopic[topic] += n
	t.rest[topic] = 1 / (t.byTopic[topic] + ldaWords*ldaBeta)
}

// Step draws the topic of each token whose turn it is, given all others. A token takes one random number whatever the
// counts are, so that a disturbed run draws what the undisturbed one does.
func (t *scarTopics) Step(state []float32, version int) error {
	t.count(state)
	rng := rand.New(rand.NewPCG(t.seed, uint64(2+version)))
	var upTo [ldaTopics]float64
	for i := range state {
		if i/(ldaBlock*ldaLength)%ldaTurns != version%ldaTurns {
			continue
		}
		t.add(i, int(state[i]), -1)
		word, doc := &t.byWord[t.words[i]], &t.byDoc[i/ldaLength]
		sum := 0.0
		for k := range upTo {
			sum += (word[k] + ldaBeta) * (doc[k] + ldaAlpha) * t.rest[k]
			upTo[k] = sum
		}
		at, topic := rng.Float64()*sum, 0
		for topic < ldaTopics-1 && upTo[topic] <= at {
			topic++
		}
		state[i], t.counted[i] = float32(topic), float32(topic)
		t.add(i, topic, 1)
	}
	return nil
}

// Loss is the mean of −log p(word | document) over all tokens.
func (t *scarTopics) Loss(state []float32) (float64, error) {
	t.count(state)
	for w := range t.byWord {
		for k := range t.rest {
			t.phi[w][k] = (t.byWord[w][k] + ldaBeta) * t.rest[k] / (ldaLength + ldaTopics*ldaAlpha)
		}
	}
	sum := 0.0
	for d := range t.byDoc {
		doc, all := &t.byDoc[d], 1.0
		for i, w := range t.words[d*ldaLength : (d+1)*ldaLength] {
			p, word := 0.0, &t.phi[w]
			for k := range doc {
				p += (doc[k] + ldaAlpha) * word[k]
			}
			if all *= p; i%25 == 24 { // the product of as many probabilities is no denormal yet
				sum, all = sum-math.Log(all), 1
			}
		}
		sum -= math.Log(all)
	}
	return sum / ldaTokens, nil
}

// Distance implements scarDistancer: the scaled total variation between the topics of the documents.
func (t *scarTopics) Distance(b ScarBlock, x, saved []float32) (d float64) {
	for lo := b.Lo; lo < b.Hi; lo += ldaLength {
		var now, then [ldaTopics]float32
		for i := lo; i < lo+ldaLength; i++ {
			now[int(x[i])]++
			then[int(saved[i])]++
		}
		d += scar.TotalVariation(now[:], then[:])
	}
	return d
}

// Limit implements scarLimiter.
func (t *scarTopics) Limit() int { return ldaTopics }

// Touched implements scarToucher.
func (t *scarTopics) Touched(version int, touch func(block int)) {
	for block := version % ldaTurns; block < ldaDocuments/ldaBlock; block += ldaTurns {
		touch(block)
	}
}

func (t *scarTopics) Close() error { return nil }

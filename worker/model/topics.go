package model

import (
	"fmt"
	"math"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Topics is latent Dirichlet allocation by collapsed Gibbs sampling (Griffiths, Steyvers 2004):
// each token of each document has a topic, and each step draws the topics anew. There is no
// gradient; package worker/rows computes what a step adds to the tensors.
//
// The tensors are "counts" [Words, Topics], the number of tokens of each word with each topic, and
// "assignments" [Tokens], the topic of each token, from 1; 0 means none yet. So the whole state of
// the algorithm consists of parameters: a checkpoint contains it, and nothing is lost with a
// worker. All values begin at 0. Counts follow from assignments, and float32 holds them exactly up
// to 2²⁴.
type Topics struct {
	Words, Tokens int // of the training documents
	Topics        int
	Alpha, Beta   float64 // parameters of the priors: of the topics of a document, of the words of a topic
}

// Describe returns the description of the model.
func (p Topics) Describe() (*Description, error) {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch {
	case p.Words < 1 || p.Words > maxRows || p.Tokens < 1 || p.Tokens > maxTokens:
		return nil, fmt.Errorf("%w: model lda: %d words and %d tokens; from 1 to %d and %d is possible", kintsugi.ErrUsage, p.Words, p.Tokens, maxRows, maxTokens)
	case p.Topics < 2 || p.Topics > 4096:
		return nil, fmt.Errorf("%w: model lda: %d topics; from 2 to 4096 is possible", kintsugi.ErrUsage, p.Topics)
	case !positive(p.Alpha) || !positive(p.Beta):
		return nil, fmt.Errorf("%w: model lda: alpha %g, beta %g; both must be positive", kintsugi.ErrUsage, p.Alpha, p.Beta)
	}
	d := &Description{
		Name: "lda", Topics: &p, Input: Input{Words: p.Words, Tokens: p.Tokens},
		Defaults: Defaults{Batch: 1, Steps: 100, LearningRate: 1, Optimizer: "add", Codec: "sparse"},
	}
	d.addTensor("counts", p.Words, p.Topics)
	d.addTensor("assignments", p.Tokens)
	return d, nil
}

// maxTokens is the limit on the tokens of a corpus, and so on every count: float32 counts exactly
// up to it.
const maxTokens = 1 << 24

// parseTopics parses options such as "topics=50,alpha=0.1,beta=0.01".
func parseTopics(in Input, text string) (p Topics, err error) {
	p = Topics{Words: in.Words, Tokens: in.Tokens, Topics: 20, Alpha: 0.1, Beta: 0.01}
	return p, eachOption(text, option{"topics", &p.Topics}, option{"alpha", &p.Alpha}, option{"beta", &p.Beta})
}

package job

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// Evaluator evaluates parameters on the test set.
type Evaluator struct {
	m      model.Model
	set    *data.Set
	n      int // number of examples per call of the model
	x      []float32
	y      []int32
	topics *model.Topics // for documents, which no model.Model evaluates

	program  *Program // a program evaluates by itself
	settings *Settings
	seen     int // number of examples that the program reports
}

const evaluationBatch = 250

// Evaluator returns an evaluator, or nil for a model without data.
func (p *Problem) Evaluator(s *Settings) (*Evaluator, error) {
	switch {
	case p.Program != nil && p.Program.About.Evaluates:
		return &Evaluator{program: p.Program, settings: s}, nil
	case p.Data == nil:
		return nil, nil
	case p.Desc.Topics != nil:
		return &Evaluator{set: p.Data, topics: p.Desc.Topics}, nil
	}
	m, err := p.model(s, s.EngineThreads(1), nil)
	if err != nil {
		return nil, err
	}
	test := p.Data.Test
	n := min(evaluationBatch, test.Len())
	return &Evaluator{m: m, set: p.Data, n: n, x: make([]float32, n*test.Values()), y: make([]int32, n*test.Labels())}, nil
}

// Evaluate returns the mean loss, and the share of the test set's labels that are predicted
// correctly, NaN if there are no labels. The loss of ratings is the mean squared error in units of
// a rating; that of documents is in nats per word.
func (e *Evaluator) Evaluate(ctx context.Context, params []float32) (loss, accuracy float64, err error) {
	if e.program != nil {
		loss, accuracy, e.seen, err = e.program.evaluate(ctx, e.settings, params)
		return loss, accuracy, err
	}
	if e.topics != nil {
		loss, err := rows.HeldOut(ctx, *e.topics, params, e.set.Corpus.Test)
		return loss, math.NaN(), err
	}
	test := e.set.Test
	indices := make([]int, 0, e.n)
	right := 0
	for lo := 0; lo < test.Len(); lo += e.n {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		n := min(e.n, test.Len()-lo)
		indices = indices[:0]
		for i := range n {
			indices = append(indices, lo+i)
		}
		b := model.Batch{N: n, X: e.x[:n*test.Values()], Y: e.y[:n*test.Labels()]}
		test.Fill(b.X, b.Y, indices)
		l, c, err := e.m.Evaluate(params, b)
		if err != nil {
			return 0, 0, err
		}
		loss += l * float64(n)
		right += c
	}
	n := float64(test.Len())
	if ratings, ok := test.(*data.Ratings); ok {
		return loss / n * math.Pow(float64(ratings.Deviation), 2), math.NaN(), nil
	}
	return loss / n, float64(right) / (n * float64(test.Labels())), nil
}

// Examples returns the number of examples in an evaluation.
func (e *Evaluator) Examples() int {
	if e.program != nil {
		return e.seen
	}
	if e.set.Corpus != nil {
		return e.set.Corpus.Test.Len()
	}
	return e.set.Test.Len()
}

// Close gives up what evaluations need.
func (e *Evaluator) Close() error {
	if e.m == nil {
		return nil
	}
	return e.m.Close()
}

// Quality says what a loss on the test half means, for models without an accuracy.
func (p *Problem) Quality(loss float64) string {
	d := p.Desc
	switch {
	case p.Program != nil:
		return fmt.Sprintf(", test loss %.5g", loss)
	case d.Input.Sequence:
		return fmt.Sprintf(", %.4f nats a character on the test part", loss)
	case d.Factors != nil:
		return fmt.Sprintf(", test RMSE %.4f", math.Sqrt(loss))
	case d.Topics != nil:
		return fmt.Sprintf(", perplexity %.1f on the test part", math.Exp(loss))
	}
	return ""
}

// TensorsOf returns the tensors of a model with the given values, which are not copied.
func TensorsOf(l *kintsugi.Layout, prefix string, values []float32) []export.Tensor {
	all := make([]export.Tensor, 0, len(l.Tensors))
	for _, t := range l.Tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		all = append(all, export.Tensor{Name: prefix + t.Name, Shape: t.Shape, Values: values[:n]})
		values = values[n:]
	}
	return all
}

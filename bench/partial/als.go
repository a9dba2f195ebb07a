package partial

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// alternateProblem is the workload of the publication: matrix factorisation of ratings by alternating
// least squares, as mf:als does. A step sets one of the two sides.
func alternateProblem(set *data.Set) (Problem, error) {
	const steps = 80
	if set == nil || set.Users == 0 {
		return Problem{}, fmt.Errorf("%w: workload als needs ratings", kintsugi.ErrUsage)
	}
	d, err := models.Lookup("mf:als", models.Input{Users: set.Users, Items: set.Items})
	return Problem{Name: "als", Data: set.Name, Steps: steps, Open: func(seed uint64) (Workload, error) {
		return newLeastSquares(d, set.Train.(*data.Ratings), seed)
	}}, err
}

// leastSquares trains factors with one worker that owns all rows.
type leastSquares struct {
	desc  *models.Description
	seed  uint64
	steps *rows.Alternate
	model models.Model
	batch models.Batch // all ratings
	grads []float32
}

func newLeastSquares(d *models.Description, ratings *data.Ratings, seed uint64) (*leastSquares, error) {
	a, err := rows.NewAlternate(d, ratings, 1)
	if err != nil {
		return nil, err
	}
	m, err := models.New(d, 1)
	w := &leastSquares{desc: d, seed: seed, steps: a, model: m, grads: make([]float32, d.Values())}
	all := make([]int, ratings.Len())
	for i := range all {
		all[i] = i
	}
	w.batch = models.Batch{N: len(all), X: make([]float32, 3*len(all))}
	ratings.Fill(w.batch.X, nil, all)
	return w, err
}

func (w *leastSquares) Blocks() (blocks []Block, values, arrays int) {
	l, err := kintsugi.NewLayout(w.desc.Tensors())
	if err != nil {
		panic(err) // NewAlternate has already made this layout
	}
	for _, c := range l.Chunks {
		blocks = append(blocks, Block{c.Lo, c.Hi})
	}
	return blocks, l.Values, 1
}

func (w *leastSquares) Init(state []float32) error { return w.desc.Init(w.seed, state) }

func (w *leastSquares) Step(state []float32, version int) error {
	id := kintsugi.PushID{Version: kintsugi.Step(version)}
	if _, _, err := w.steps.Gradient(context.Background(), state, w.grads, id); err != nil {
		return err
	}
	for i, v := range w.grads {
		if math.Float32bits(v) != 0 {
			state[i] = v
		}
	}
	return nil
}

// Loss returns the mean squared error of all training ratings.
func (w *leastSquares) Loss(state []float32) (float64, error) {
	loss, _, err := w.model.Evaluate(state, w.batch)
	return loss, err
}

func (w *leastSquares) Close() error { return w.model.Close() }

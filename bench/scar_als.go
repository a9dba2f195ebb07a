package bench

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/rows"
)

// scarAlternate is the workload of the publication: matrix factorisation of ratings by alternating
// least squares, as mf:als does. A step sets one of the two sides.
func scarAlternate(set *data.Set) (ScarProblem, error) {
	const steps = 80
	if set == nil || set.Users == 0 {
		return ScarProblem{}, fmt.Errorf("%w: workload als needs ratings", kintsugi.ErrUsage)
	}
	d, err := models.Lookup("mf:als", models.Input{Users: set.Users, Items: set.Items})
	return ScarProblem{Name: "als", Data: set.Name, Steps: steps, Open: func(seed uint64) (ScarWorkload, error) {
		return newScarLeastSquares(d, set.Train.(*data.Ratings), seed)
	}}, err
}

// scarLeastSquares trains factors with one worker that owns all rows.
type scarLeastSquares struct {
	desc  *models.Description
	seed  uint64
	steps *rows.Alternate
	model models.Model
	batch models.Batch // all ratings
	grads []float32
}

func newScarLeastSquares(d *models.Description, ratings *data.Ratings, seed uint64) (*scarLeastSquares, error) {
	a, err := rows.NewAlternate(d, ratings, 1)
	if err != nil {
		return nil, err
	}
	m, err := models.New(d, 1)
	w := &scarLeastSquares{desc: d, seed: seed, steps: a, model: m, grads: make([]float32, d.Values())}
	all := make([]int, ratings.Len())
	for i := range all {
		all[i] = i
	}
	w.batch = models.Batch{N: len(all), X: make([]float32, 3*len(all))}
	ratings.Fill(w.batch.X, nil, all)
	return w, err
}

func (w *scarLeastSquares) Blocks() (blocks []ScarBlock, values, arrays int) {
	l, err := kintsugi.NewLayout(w.desc.Tensors())
	if err != nil {
		panic(err) // NewAlternate has already made this layout
	}
	for _, c := range l.Chunks {
		blocks = append(blocks, ScarBlock{c.Lo, c.Hi})
	}
	return blocks, l.Values, 1
}

func (w *scarLeastSquares) Init(state []float32) error { return w.desc.Init(w.seed, state) }

func (w *scarLeastSquares) Step(state []float32, version int) error {
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
func (w *scarLeastSquares) Loss(state []float32) (float64, error) {
	loss, _, err := w.model.Evaluate(state, w.batch)
	return loss, err
}

func (w *scarLeastSquares) Close() error { return w.model.Close() }

package partial

import (
	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// mfBatch is the number of ratings in a step of mf.
const mfBatch = 500

// factorModel factorises a matrix of generated ratings, as mf does in a run. A few users and items
// have most of the ratings, so rows move at very different speeds, and a step changes only some of
// them.
type factorModel struct {
	gradientModel
	all   []float32 // user, item and rating of each rating
	block []int     // by row
}

func factorsProblem(steps int) (Problem, error) {
	set, err := data.Open("ratings", "")
	if err != nil {
		return Problem{}, err
	}
	d, err := models.Lookup("mf", models.Input{Users: set.Users, Items: set.Items})
	if err != nil {
		return Problem{}, err
	}
	ratings := set.Train.(*data.Ratings)
	all := make([]float32, 3*ratings.Len())
	indices := make([]int, ratings.Len())
	for i := range indices {
		indices[i] = i
	}
	ratings.Fill(all, nil, indices)
	schedule := conductor.Schedule{Rule: kintsugi.RuleAdagrad, LearningRate: float64(d.Defaults.LearningRate), Epsilon: 1e-8, Steps: kintsugi.Step(steps)}
	return Problem{Name: "mf", Data: "generated", Steps: steps, Open: func(seed uint64) (Workload, error) {
		m, err := models.New(d, 1)
		if err != nil {
			return nil, err
		}
		w := &factorModel{all: all, gradientModel: gradientModel{
			desc: d, model: m, schedule: schedule, seed: seed, sampler: data.Sampler{N: ratings.Len(), Batch: mfBatch, Slots: 1, Seed: seed},
			judged: models.Batch{X: all, N: ratings.Len()},
		}}
		w.take = w.pick
		blocks, _, _ := w.Blocks()
		width := d.Factors.Width()
		for i, b := range blocks {
			for range (b.Hi - b.Lo) / width {
				w.block = append(w.block, i)
			}
		}
		return w, nil
	}}, nil
}

// pick puts the ratings at indices into b.
func (w *factorModel) pick(b *models.Batch, indices []int) {
	b.X, b.N = b.X[:0], len(indices)
	for _, i := range indices {
		b.X = append(b.X, w.all[3*i:3*i+3]...)
	}
}

// Touched implements toucher.
func (w *factorModel) Touched(version int, touch func(block int)) {
	w.fill(version)
	for x := w.batch.X; len(x) > 0; x = x[3:] {
		touch(w.block[int(x[0])])
		touch(w.block[w.desc.Factors.Users+int(x[1])])
	}
}

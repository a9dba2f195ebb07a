package partial

import (
	"fmt"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// Workloads lists the algorithms of ProblemOf, except als, which is matrix factorisation by
// alternating least squares on a set of ratings.
//
//	qp    gradient descent on a quadratic of 1024 values, condition 50
//	mlr   softmax regression, SGD; a block is the weights of one pixel
//	cnn   two convolutions and two dense layers, Adam
//	mf    factors of a matrix of ratings, Adagrad, as in a run; few rows have most of the ratings
//	lda   topics of documents, collapsed Gibbs sampling, as in a run
var Workloads = []string{"qp", "mlr", "cnn", "mf", "lda"}

// NeedsData reports whether a workload needs a data set, of images or of ratings.
func NeedsData(name string) bool { return name == "mlr" || name == "cnn" || name == "als" }

// ProblemOf returns a workload on a data set: of images for mlr and cnn, of ratings for als.
// Other workloads ignore the set.
func ProblemOf(name string, set *data.Set) (Problem, error) {
	const steps = 400
	switch name {
	case "qp":
		d, err := models.Quadratic{Dimension: 1024, Condition: 50}.Describe()
		if err != nil {
			return Problem{}, err
		}
		schedule := conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 1, Steps: steps}
		return Problem{Name: name, Data: "none", Steps: steps, Open: func(seed uint64) (Workload, error) {
			m, err := models.New(d, 1)
			return &gradientModel{desc: d, model: m, schedule: schedule, seed: seed}, err
		}}, err
	case "mlr":
		return imagesProblem(name, set, steps, 400, conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.05, Steps: steps},
			func(classes int) []models.Layer {
				return []models.Layer{models.Flatten{}, models.Dense{Name: "fc", Out: classes}}
			})
	case "cnn":
		const steps = 440 // with 400, some runs would end before step 384, which C = 64 needs
		return imagesProblem(name, set, steps, 64, conductor.Schedule{Rule: kintsugi.RuleAdam, LearningRate: 0.001, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Steps: steps},
			cnn)
	case "als":
		return alternateProblem(set)
	case "mf":
		return factorsProblem(steps)
	case "lda":
		return Problem{Name: name, Data: "generated", Steps: 440, Open: func(seed uint64) (Workload, error) { return newTopicModel(seed) }}, nil
	}
	return Problem{}, fmt.Errorf("%w: no workload is called %q; know %s, als", kintsugi.ErrUsage, name, strings.Join(Workloads, ", "))
}

func cnn(classes int) []models.Layer {
	return []models.Layer{
		models.Conv2D{Name: "conv1", Filters: 6, Kernel: 3, Pad: 1}, models.ReLU{}, models.MaxPool{Size: 2},
		models.Conv2D{Name: "conv2", Filters: 12, Kernel: 3, Pad: 1}, models.ReLU{}, models.MaxPool{Size: 2},
		models.Flatten{}, models.Dense{Name: "fc1", Out: 32}, models.ReLU{}, models.Dense{Name: "fc2", Out: classes},
	}
}

// Numbers of training examples, and of those whose loss is evaluated. Images are reduced to half
// the width and height, which makes a step four times as fast.
const usedExamples, judgedExamples = 4000, 400

// imagesProblem returns a classifier of images.
func imagesProblem(name string, set *data.Set, steps, batch int, schedule conductor.Schedule, layers func(classes int) []models.Layer) (Problem, error) {
	if set == nil || set.Sequence || set.Shape[1] < 2 {
		return Problem{}, fmt.Errorf("%w: workload %s needs images", kintsugi.ErrUsage, name)
	}
	images := halve(set, min(usedExamples, set.Train.Len()))
	judged := min(judgedExamples, images.n)
	in := models.Input{Channels: set.Shape[0], Height: images.height, Width: images.width, Classes: set.Classes}
	d, err := models.Describe(name, in, models.Defaults{}, layers(set.Classes)...)
	return Problem{Name: name, Data: set.Name, Steps: steps, Open: func(seed uint64) (Workload, error) {
		m, err := engine.New(d, engine.Options{})
		return &gradientModel{
			desc: d, model: m, schedule: schedule, seed: seed, take: images.take, sampler: data.Sampler{N: images.n, Batch: batch, Slots: 1, Seed: seed},
			judged: models.Batch{X: images.x[:judged*images.values], Y: images.y[:judged], N: judged},
		}, err
	}}, err
}

// pictures holds images in memory.
type pictures struct {
	n, height, width, values int
	x                        []float32
	y                        []int32
}

// halve returns the first n training images, with each pixel the mean of four.
func halve(set *data.Set, n int) *pictures {
	c, h, w := set.Shape[0], set.Shape[1], set.Shape[2]
	p := &pictures{n: n, height: h / 2, width: w / 2, values: c * (h / 2) * (w / 2), y: make([]int32, n)}
	full := make([]float32, c*h*w)
	for i := range n {
		set.Train.Fill(full, p.y[i:i+1], []int{i})
		for ch := range c {
			for row := range p.height {
				for col := range p.width {
					at := (ch*h+2*row)*w + 2*col
					p.x = append(p.x, (full[at]+full[at+1]+full[at+w]+full[at+w+1])/4)
				}
			}
		}
	}
	return p
}

// take puts the images at indices into b.
func (p *pictures) take(b *models.Batch, indices []int) {
	b.X, b.Y, b.N = b.X[:0], b.Y[:0], len(indices)
	for _, i := range indices {
		b.X = append(b.X, p.x[i*p.values:(i+1)*p.values]...)
		b.Y = append(b.Y, p.y[i])
	}
}

// gradientModel trains a described model with the gradients of one worker.
type gradientModel struct {
	desc     *models.Description
	model    models.Model
	schedule conductor.Schedule
	seed     uint64
	take     func(b *models.Batch, indices []int) // puts examples into a batch; nil: the model has none
	sampler  data.Sampler
	judged   models.Batch

	indices []int
	batch   models.Batch
	grads   []float32
}

func (m *gradientModel) Blocks() (blocks []Block, values, arrays int) {
	l, err := kintsugi.NewLayout(m.desc.Tensors())
	if err != nil {
		panic(err) // Describe has accepted these tensors
	}
	for _, c := range l.Chunks {
		blocks = append(blocks, Block{c.Lo, c.Hi})
	}
	return blocks, l.Values, 1 + m.schedule.Rule.States()
}

func (m *gradientModel) Init(state []float32) error {
	clear(state)
	return m.desc.Init(m.seed, state[:m.desc.Values()])
}

// Gradient implements gradienter. The next call overwrites the result.
func (m *gradientModel) Gradient(state []float32, version int) ([]float32, error) {
	n := m.desc.Values()
	if m.grads == nil {
		m.grads = make([]float32, n)
	}
	m.batch.N = 1
	m.batch.Seed = m.seed<<32 + uint64(version)
	if m.take != nil {
		m.fill(version)
	}
	_, err := m.model.Gradient(state[:n], m.grads, m.batch)
	return m.grads, err
}

// SquaredGradients implements gradienter.
func (m *gradientModel) SquaredGradients(state []float32) []float32 {
	n := m.desc.Values()
	switch rule := m.schedule.Rule; {
	case rule.Moments():
		return state[2*n : 3*n]
	case rule == kintsugi.RuleAdagrad:
		return state[n : 2*n]
	}
	return nil
}

func (m *gradientModel) Step(state []float32, version int) error {
	n := m.desc.Values()
	grads, err := m.Gradient(state, version)
	if err != nil {
		return err
	}
	o := m.schedule.At(kintsugi.Step(version) + 1)
	step := kernels.Step{
		Rule: kernels.Rule(o.Rule), Scale: 1, Operands: []kernels.Operand{{Weight: 1, Values: grads}}, Params: state[:n], Next: state[:n],
		Scalars: server.Scalars(o, kintsugi.Tensor{}),
	}
	for s := range step.Rule.States() {
		step.State[s] = state[(s+1)*n : (s+2)*n]
		step.NextState[s] = step.State[s]
	}
	_, err = kernels.Best().Step(&step)
	return err
}

// fill draws the batch of a version.
func (m *gradientModel) fill(version int) {
	m.indices = m.sampler.Indices(m.indices, 0, kintsugi.Step(version), 0)
	m.take(&m.batch, m.indices)
}

func (m *gradientModel) Loss(state []float32) (float64, error) {
	loss, _, err := m.model.Evaluate(state[:m.desc.Values()], m.judged)
	return loss, err
}

func (m *gradientModel) Close() error { return m.model.Close() }

package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels/blas"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Problem is a model and its training data.
type Problem struct {
	Desc   *model.Description
	Layout *kintsugi.Layout
	Data   *data.Set // nil: not opened, or a model without data

	Program *Program // nil: a model of this binary

	Layers    *worker.Layers                       // set by compute, if the model has layers
	Reconcile func(lost []kintsugi.ChunkRange)     // set by compute, if the model can repair lost chunks
	batch     func(id kintsugi.PushID) model.Batch // set by compute, if the model is trained by batches
	trainer   *localTrainer                        // set by locally, if a GPU takes local steps
}

// Terms returns what all processes of the run must have in common.
func (p *Problem) Terms() kintsugi.Terms {
	return kintsugi.Terms{Protocol: kintsugi.ProtocolVersion, Model: p.Layout.Agreement()}
}

// withoutData reports whether a model is a function to minimise, without data to fit.
func withoutData(name string) bool { return name == "qp" || strings.HasPrefix(name, "qp:") }

// Describe resolves the settings that depend on the model and the data. If --input gives the shape
// of the data, it does not open them.
func Describe(s *Settings) (*Problem, error) {
	p := &Problem{}
	if len(s.Program) > 0 {
		d, err := p.describeProgram(s)
		if err != nil {
			return nil, err
		}
		return p, p.suggest(s, d)
	}
	var in model.Input
	switch {
	case withoutData(s.Model):
		s.Data = "none"
	case s.Input != "":
		var err error
		if in, err = parseInput(s.Input); err != nil {
			return nil, err
		}
	default:
		if err := p.Open(s); err != nil {
			return nil, err
		}
		in = inputOf(p.Data)
		s.Input = formatInput(in)
	}
	desc, err := model.Lookup(s.Model, in)
	if err != nil {
		return nil, err
	}
	p.Desc = desc
	if p.Layout, err = kintsugi.NewLayout(desc.Tensors()); err != nil {
		return nil, err
	}
	if p.Layout, err = s.rated(p.Layout); err != nil {
		return nil, err
	}
	return p, p.suggest(s, desc.Defaults)
}

// suggest fills settings that are left to the model.
func (p *Problem) suggest(s *Settings, d model.Defaults) error {
	if s.Batch == 0 {
		s.Batch = d.Batch
	}
	if s.Steps == 0 {
		s.Steps = s.exchanges(uint64(d.Steps))
	}
	if s.LearningRate == 0 {
		s.LearningRate = decimal(d.LearningRate)
	}
	if s.Momentum == Suggested {
		s.Momentum = decimal(d.Momentum)
	}
	if s.Warmup == Suggested {
		s.Warmup = int(s.exchanges(uint64(d.Warmup)))
	}
	if s.WeightDecay == Suggested {
		s.WeightDecay = decimal(d.WeightDecay)
	}
	if s.ClipNorm == Suggested {
		s.ClipNorm = decimal(d.ClipNorm)
	}
	s.Decay, s.Decayed = cmp.Or(s.Decay, conductor.CoarserDecay(d.Decay, max(1, s.LocalSteps)), "cosine"), cmp.Or(s.Decayed, d.Decayed, decayAll)
	s.Codec = cmp.Or(s.Codec, d.Codec, "fp32")
	switch {
	case s.Optimizer != "":
	case d.Optimizer != "":
		s.Optimizer = d.Optimizer
	case s.Momentum > 0:
		s.Optimizer = "momentum"
	default:
		s.Optimizer = "sgd"
	}
	if err := s.suggestAdam(d); err != nil {
		return err
	}
	return p.checkRule(s)
}

// suggestAdam fills the settings of optimizers that divide by a root. What a model suggests for its
// own optimizer does not matter if another one was chosen; what was given to it would be lost.
func (s *Settings) suggestAdam(d model.Defaults) error {
	betas, root := s.Optimizer == "adam" || s.Optimizer == "adamw" || s.Optimizer == "lazyadam", s.Optimizer == "adagrad"
	switch {
	case s.Betas != "" && !betas:
		return fmt.Errorf("%w: --betas are for --optimizer adam, adamw and lazyadam; %s has none", kintsugi.ErrUsage, s.Optimizer)
	case s.Epsilon != 0 && !betas && !root:
		return fmt.Errorf("%w: --epsilon is for --optimizer adam, adamw, lazyadam and adagrad; %s has none", kintsugi.ErrUsage, s.Optimizer)
	}
	if betas {
		s.Betas = cmp.Or(s.Betas, d.Betas)
	}
	if betas || root {
		s.Epsilon = cmp.Or(s.Epsilon, decimal(d.Epsilon))
	}
	return nil
}

// Close closes the program of p, if one is running.
func (p *Problem) Close() error {
	if p.Program == nil {
		return nil
	}
	return p.Program.close()
}

// Described ends the program of p, if one is running, in a process that computes nothing: it has
// said what it trains. Only a process that holds shards keeps the initial parameters.
func (p *Problem) Described(holds bool) {
	if p.Program == nil {
		return
	}
	_ = p.Program.close()
	if !holds {
		p.Program.Initial = nil
	}
}

// Init writes the initial parameters for a seed.
func (p *Problem) Init(s *Settings, seed uint64, params []float32) error {
	if p.Program != nil {
		return p.Program.init(s, seed, params)
	}
	return p.Desc.Init(seed, params)
}

// initPart writes the initial parameters from value lo on to params.
func (p *Problem) initPart(s *Settings, lo int, params []float32) error {
	if p.Program != nil {
		return p.Program.part(lo, params)
	}
	all := make([]float32, p.Layout.Values)
	err := p.Desc.Init(s.Seed, all)
	copy(params, all[lo:])
	return err
}

// parseInput parses --input.
func parseInput(text string) (in model.Input, err error) {
	if users, ok := strings.CutPrefix(text, "ratings:"); ok {
		_, err = fmt.Sscanf(users, "%dx%d", &in.Users, &in.Items)
	} else if words, ok := strings.CutPrefix(text, "documents:"); ok {
		_, err = fmt.Sscanf(words, "%dx%d", &in.Words, &in.Tokens)
	} else if strings.Count(text, "x") == 1 {
		in = model.Input{Channels: 1, Height: 1, Sequence: true}
		_, err = fmt.Sscanf(text, "%dx%d", &in.Width, &in.Classes)
	} else {
		_, err = fmt.Sscanf(text, "%dx%dx%dx%d", &in.Channels, &in.Height, &in.Width, &in.Classes)
	}
	if err != nil || formatInput(in) != text {
		return in, fmt.Errorf("%w: --input %q: use CHANNELSxHEIGHTxWIDTHxCLASSES such as 1x28x28x10, for sequences POSITIONSxTOKENS such as 64x65, ratings:USERSxITEMS or documents:WORDSxTOKENS",
			kintsugi.ErrUsage, text)
	}
	return in, nil
}

func formatInput(in model.Input) string {
	switch {
	case in.Sequence:
		return fmt.Sprintf("%dx%d", in.Width, in.Classes)
	case in.Users > 0:
		return fmt.Sprintf("ratings:%dx%d", in.Users, in.Items)
	case in.Words > 0:
		return fmt.Sprintf("documents:%dx%d", in.Words, in.Tokens)
	}
	return fmt.Sprintf("%dx%dx%dx%d", in.Channels, in.Height, in.Width, in.Classes)
}

// inputOf returns the input of a model for a data set.
func inputOf(set *data.Set) model.Input {
	in := model.Input{Channels: set.Shape[0], Height: set.Shape[1], Width: set.Shape[2], Classes: set.Classes, Sequence: set.Sequence, Users: set.Users, Items: set.Items}
	if set.Corpus != nil {
		in.Words, in.Tokens = set.Corpus.Vocabulary, len(set.Corpus.Train.Words)
	}
	return in
}

// decimal returns the float64 with the same decimal form as x: 0.05, not 0.05000000074505806.
func decimal(x float32) float64 {
	d, err := strconv.ParseFloat(strconv.FormatFloat(float64(x), 'g', -1, 32), 64)
	if err != nil {
		return float64(x)
	}
	return d
}

// Open opens the data set, if the model has one and it is not open yet.
func (p *Problem) Open(s *Settings) error {
	if p.Data != nil || p.Program != nil || withoutData(s.Model) {
		return nil
	}
	if s.Data == "" {
		s.Data = "digits"
		switch {
		case model.ForSequences(s.Model):
			s.Data = "text"
		case model.ForRatings(s.Model):
			s.Data = "ratings"
		case model.ForDocuments(s.Model):
			s.Data = "topics"
		}
	}
	set, err := data.Open(s.Data, s.DataDir)
	if err != nil {
		return err
	}
	p.Data = set
	return p.fits(s)
}

// fits returns a usage error if --input does not describe the data set. Otherwise the first
// gradient would fail after the run has begun.
func (p *Problem) fits(s *Settings) error {
	if p.Desc == nil {
		return nil // it will be described by the data
	}
	in, of := p.Desc.Input, inputOf(p.Data)
	if in.Channels*in.Height*in.Width == of.Channels*of.Height*of.Width && in.Classes >= of.Classes && in.Users >= of.Users && in.Items >= of.Items && in.Words >= of.Words {
		return nil
	}
	return fmt.Errorf("%w: --input %s: the data set %s is %s; leave --input away to have it so", kintsugi.ErrUsage, s.Input, s.Data, formatInput(of))
}

// Compute returns the gradient function of a worker. It draws a batch and computes its gradient; or,
// in a run with local steps, that of several batches. The caller closes the model.
func (p *Problem) Compute(ctx context.Context, s *Settings) (worker.Gradient, io.Closer, error) {
	gradient, m, err := p.compute(ctx, s)
	if err != nil || !s.local() {
		return gradient, m, err
	}
	gradient, err = p.locally(s, gradient, m)
	if err != nil {
		return nil, nil, errors.Join(err, m.Close())
	}
	return gradient, m, nil
}

// InPlace returns the memory in which m, which Compute has returned, uses parameters and leaves
// gradients without a copy. nil: it has none.
func (p *Problem) InPlace(ctx context.Context, s *Settings, m io.Closer) (*worker.InPlace, error) {
	running, ok := m.(*program.Program)
	if !ok || s.local() && !running.Takes() { // a worker that takes local steps has other parameters in each of them
		return nil, nil
	}
	memory, err := running.Memory(ctx)
	if err != nil {
		return nil, err
	}
	return &worker.InPlace{Params: memory.Params, Grads: memory.Grads, Touched: memory.Touched, Settle: running.Settle}, nil
}

// compute returns the gradient function of one batch.
func (p *Problem) compute(ctx context.Context, s *Settings) (worker.Gradient, io.Closer, error) {
	if p.Program != nil {
		return p.Program.compute(ctx, s)
	}
	if gradient, err := p.owned(s); gradient != nil || err != nil {
		return gradient, nothing{}, err
	}
	p.Layers = &worker.Layers{}
	m, err := p.model(s, s.EngineThreads(1), p.Layers)
	if err != nil {
		return nil, nil, err
	}
	gradient := interruptible(m)
	sampler := data.Sampler{N: 1, Batch: s.Batch, Slots: s.Workers, Seed: s.Seed}
	b := model.Batch{N: s.Batch}
	var loader *data.Loader
	if p.Data != nil {
		sampler.N = p.Data.Train.Len()
		loader = data.NewLoader(sampler, p.Data.Train)
		stageAhead(loader, sampler, m)
	}
	batch := func(id kintsugi.PushID) model.Batch {
		if loader != nil {
			b.X, b.Y = loader.Batch(id.Slot, id.Version, id.Sequence)
		}
		b.Seed = sampler.Seed64(id.Slot, id.Version, id.Sequence)
		return b
	}
	p.batch = batch
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		b := batch(id) // use the batch function of this call: that of p is the newest, and workers in one process would draw one another's batches
		loss, err := gradient(ctx, params, grads, b)
		return loss, b.N, err
	}, m, nil
}

// stageAhead copies batches to the device of m, if it is not the host, as soon as they are drawn.
func stageAhead(l *data.Loader, sampler data.Sampler, m model.Model) {
	stager, ok := m.(interface{ Stage(b model.Batch) })
	if !ok {
		return
	}
	l.Ahead = func(slot kintsugi.Slot, version kintsugi.Step, x []float32, y []int32) {
		stager.Stage(model.Batch{X: x, Y: y, N: sampler.Batch, Seed: sampler.Seed64(slot, version, 0)})
	}
}

// model returns a model that executes the description, with the given number of threads if it has
// its own. layers, if set and if the model supports it, are told which values of a gradient are
// final and which parameters are needed next.
func (p *Problem) model(s *Settings, threads int, layers *worker.Layers) (model.Model, error) {
	if len(p.Desc.Layers) == 0 || s.Engine == "gorgonia" {
		return model.New(p.Desc, s.Batch)
	}
	g, err := ParseDevice(s.Device)
	if err != nil {
		return nil, err
	}
	if g = g.of(s.Place); g.Wanted {
		return openGPU(p.Desc, g)
	}
	lib, err := openBLAS(s)
	if err != nil {
		return nil, err
	}
	o := engine.Options{Threads: threads, BLAS: blas.GemmOf(lib)}
	if layers != nil {
		o.Ready, o.Need, layers.Waits = layers.Ready, layers.Need, true
	}
	return engine.New(p.Desc, o)
}

// interruptible returns the gradient function of m. If the model supports it, the function ends
// early with its context; otherwise it only checks the context before it begins.
func interruptible(m model.Model) func(ctx context.Context, params, grads []float32, b model.Batch) (float64, error) {
	type interruptible interface {
		GradientContext(ctx context.Context, params, grads []float32, b model.Batch) (float64, error)
	}
	if e, ok := m.(interruptible); ok {
		return e.GradientContext
	}
	return func(ctx context.Context, params, grads []float32, b model.Batch) (float64, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return m.Gradient(params, grads, b)
	}
}

// openBLAS opens the matrix library of the settings. If the engine has its own threads, the library
// gets one thread.
func openBLAS(s *Settings) (blas.Implementation, error) {
	threads := 1
	if s.Engine == "gorgonia" {
		threads = s.EngineThreads(1)
	}
	impl, err := blas.Open(s.BLAS, threads)
	if err != nil {
		return nil, fmt.Errorf("--blas: %w", err)
	}
	return impl, nil
}

// UseBLAS opens the matrix library of the settings and makes the models use it.
func UseBLAS(s *Settings) (blas.Implementation, error) {
	impl, err := openBLAS(s)
	if err == nil {
		model.UseBLAS(impl)
	}
	return impl, err
}

// Called returns what messages call a model.
func (p *Problem) Called() string {
	if p.Program != nil {
		return "this program"
	}
	return "this model"
}

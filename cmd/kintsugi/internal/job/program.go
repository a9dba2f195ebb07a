package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Models that are computed by a program of the user.

const (
	// DescribedFile is the file in a run's folder with the program's description of its model.
	DescribedFile = "model.described"
	ownData       = "own" // the name of data that only the program knows
)

// ProgramAfterDash returns the program and its arguments, which follow "--".
func ProgramAfterDash(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 0 {
		return cli.NoArgs(cmd, args)
	}
	if cmd.Flags().Changed("program") {
		return fmt.Errorf("%w: a program after -- and one by --program: leave one out", kintsugi.ErrUsage)
	}
	for _, a := range args {
		if err := cmd.Flags().Set("program", a); err != nil {
			return err
		}
	}
	return nil
}

// checkProgram returns a usage error for settings that cannot be combined with a program.
func (s *Settings) checkProgram() error {
	switch {
	case len(s.Program) == 0 && s.Described != "":
		return fmt.Errorf("%w: --described %s is what a program said, and there is none: use --program too", kintsugi.ErrUsage, s.Described)
	case len(s.Program) == 0:
		return nil
	case s.Data != "" && s.Data != ownData:
		return fmt.Errorf("%w: --data %s: a program has its own data; leave it out", kintsugi.ErrUsage, s.Data)
	case s.Device != "auto":
		return fmt.Errorf("%w: --device %s: a program computes where it likes; leave it out", kintsugi.ErrUsage, s.Device)
	case s.Engine != "native":
		return fmt.Errorf("%w: --engine %s: a program computes its model itself; leave it out", kintsugi.ErrUsage, s.Engine)
	}
	return nil
}

// threadsVariable tells mathematical libraries, and PyTorch, how many threads to use.
const threadsVariable = "OMP_NUM_THREADS"

// LimitThreads tells the programs of this process how many threads to use, but at least one, unless
// the user has told them.
func LimitThreads(n int) error {
	if os.Getenv(threadsVariable) != "" {
		return nil
	}
	return os.Setenv(threadsVariable, strconv.Itoa(max(1, n)))
}

// Program is the model of a program.
type Program struct {
	About   *program.Description
	rates   map[string]float32 // of the program that was tried last
	seed    uint64
	Initial []float32         // initial parameters for that seed; nil: they are in file
	file    string            // of a described model
	Output  io.Writer         // for the output of programs
	say     func(text string) // tells the user what is waited for

	mu   sync.Mutex
	idle *program.Program // a running program that is not in use, started with the seed
}

// ForWorker prepares the program of a worker, if it has one. What it prints goes to log.
func (p *Problem) ForWorker(log *slog.Logger) error {
	if p.Program == nil {
		return nil
	}
	p.Program.Output, p.Program.Initial = &Lines{Log: log}, nil // only servers need the initial parameters
	p.Program.say = func(text string) { log.Warn(text) }
	if Cores() < runtime.NumCPU() { // libraries take a thread for every core that they see, whatever the limit of a container
		return LimitThreads(Cores())
	}
	return nil
}

// describeProgram makes p the problem of a program, from a running program or a file.
func (p *Problem) describeProgram(s *Settings) (model.Defaults, error) {
	m := &Program{seed: s.Seed, Output: cli.Stderr, say: func(text string) { fmt.Fprintln(cli.Stderr, "kintsugi:", text) }}
	if s.Described != "" {
		var err error
		if m.About, err = program.Read(s.Described); err != nil {
			return model.Defaults{}, err
		}
		m.file = s.Described
	} else {
		running, err := m.start(context.Background(), s, s.Seed)
		if err != nil {
			return model.Defaults{}, err
		}
		m.idle, m.About = running, new(program.Description)
		*m.About = running.About()
		m.Initial = make([]float32, m.About.Values())
		if err := running.Initialise(context.Background(), m.Initial); err != nil {
			_ = running.Close() // the program has already reported what is wrong
			return model.Defaults{}, err
		}
	}
	a := m.About
	s.Model, s.Data, p.Program = a.Name, ownData, m
	d := model.Defaults{
		Batch: cmp.Or(a.Batch, 64), Steps: cmp.Or(a.Steps, 1000), LearningRate: cmp.Or(a.LearningRate, 0.05), Momentum: a.Momentum, Optimizer: a.Optimizer, Codec: a.Codec,
		Warmup: a.Warmup, Decay: a.Decay, Betas: a.Betas, Epsilon: a.Epsilon, WeightDecay: a.WeightDecay, Decayed: a.Decayed, ClipNorm: a.ClipNorm,
	}
	if a.Momentum == 0 && a.Optimizer != "sgd" {
		d.Momentum = 0.9
	}
	var err error
	if p.Layout, err = a.Layout(); err == nil {
		p.Layout, err = s.rated(p.Layout)
	}
	p.Desc = &model.Description{Name: a.Name, Defaults: d}
	return d, err
}

// start starts the program, which may take minutes: it may have to read data.
func (m *Program) start(ctx context.Context, s *Settings, seed uint64) (*program.Program, error) {
	defer m.meanwhile(s, "has not said yet what it trains")()
	offerModule()
	return program.Start(ctx, program.Config{Command: s.Program, Seed: seed, Slots: s.Workers, LocalRank: s.Place, Output: m.Output, HangAfter: time.Duration(s.HangAfter)})
}

// meanwhile tells the user every ten seconds what the program has not done yet, until done is called.
func (m *Program) meanwhile(s *Settings, lacks string) (done func()) {
	return cli.Meanwhile(func(took time.Duration) {
		m.say(fmt.Sprintf("%s %s, after %v", strings.Join(s.Program, " "), lacks, took))
	})
}

// take returns a running program. The caller returns it with give, or closes it.
func (m *Program) take(ctx context.Context, s *Settings) (*program.Program, error) {
	m.mu.Lock()
	running := m.idle
	m.idle = nil
	m.mu.Unlock()
	if running != nil {
		return running, nil
	}
	running, err := m.start(ctx, s, s.Seed)
	if err != nil {
		return nil, err
	}
	if err := m.same(running); err != nil {
		_ = running.Close() // it cannot be used
		return nil, err
	}
	return running, nil
}

// same returns an error if a program describes another model.
func (m *Program) same(running *program.Program) error {
	about := running.About()
	if err := m.About.Differs(&about); err != nil {
		return fmt.Errorf("%w: %s describes another model than when the run began: %w", kintsugi.ErrUsage, running, err)
	}
	return nil
}

// give keeps a program for the next call of take.
func (m *Program) give(running *program.Program) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle != nil {
		return running.Close()
	}
	m.idle = running
	return nil
}

// close closes a program that is not in use.
func (m *Program) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		return nil
	}
	running := m.idle
	m.idle = nil
	return running.Close()
}

// part writes the initial parameters from value lo on to params. If they are in a file, it reads no
// others into memory: a server has a part of the model only.
func (m *Program) part(lo int, params []float32) error {
	if m.Initial == nil {
		return program.ReadInitial(m.file, lo, params)
	}
	copy(params, m.Initial[lo:])
	return nil
}

// init writes the initial parameters for a seed.
func (m *Program) init(s *Settings, seed uint64, params []float32) error {
	if seed == m.seed {
		return m.part(0, params)
	}
	other, err := m.start(context.Background(), s, seed)
	if err != nil {
		return err
	}
	defer other.Close()
	return other.Initialise(context.Background(), params)
}

// compute returns the gradient function of a worker, and its program.
func (m *Program) compute(ctx context.Context, s *Settings) (worker.Gradient, io.Closer, error) {
	running, err := m.take(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	return m.gradient(s, running), running, nil
}

// sampler draws the batches of a run.
func (m *Program) sampler(s *Settings) data.Sampler {
	return data.Sampler{N: max(1, m.About.Examples), Batch: s.Batch, Slots: s.Workers, Seed: s.Seed}
}

func (m *Program) gradient(s *Settings, running *program.Program) worker.Gradient {
	sampler := m.sampler(s)
	var indices []int
	return func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		r := program.Request{ID: id, Seed: sampler.Seed64(id.Slot, id.Version, id.Sequence)}
		if m.About.Examples > 0 {
			indices = sampler.Indices(indices, id.Slot, id.Version, id.Sequence)
			r.Indices = indices
		}
		return running.Gradient(ctx, params, grads, r)
	}
}

// evaluate evaluates parameters with the program.
func (m *Program) evaluate(ctx context.Context, s *Settings, params []float32) (loss, accuracy float64, examples int, err error) {
	running, err := m.take(ctx, s)
	if err != nil {
		return 0, 0, 0, err
	}
	loss, accuracy, examples, err = running.Evaluate(ctx, params)
	if err != nil {
		_ = running.Close() // the next call starts a new one
		return 0, 0, 0, err
	}
	return loss, accuracy, examples, m.give(running)
}

// Try asks for one gradient at the initial parameters, for the same again if that is fast, for the
// same from the second process, and for an evaluation. So problems of a program are reported before
// a cluster is started. It returns a warning for the user, if there is one.
func (m *Program) Try(ctx context.Context, s *Settings, other *Second) (warning string, err error) {
	running, err := m.take(ctx, s)
	if err != nil {
		return "", err
	}
	defer m.meanwhile(s, "has not computed all that it is asked before a run begins")()
	m.rates = running.About().Rates
	if m.Initial == nil {
		m.Initial = make([]float32, m.About.Values())
		if err := program.ReadInitial(m.file, 0, m.Initial); err != nil {
			_ = running.Close() // it was not asked yet
			return "", err
		}
	}
	grads, again := make([]float32, len(m.Initial)), make([]float32, len(m.Initial))
	begin := time.Now()
	loss, _, err := m.gradient(s, running)(ctx, m.Initial, grads, kintsugi.PushID{})
	if err == nil {
		err = m.finite(grads)
	}
	if err == nil {
		err = m.touches(running)
	}
	if err == nil && (math.IsNaN(loss) || !slices.ContainsFunc(grads, func(g float32) bool { return g != 0 })) {
		warning = fmt.Sprintf("the first gradient of %s: a loss of %g, and each value of it is 0", running, loss)
		if math.IsNaN(loss) {
			warning = fmt.Sprintf("the first gradient of %s has a loss that is no number", running)
		}
	}
	if err == nil && warning == "" && time.Since(begin) < time.Second {
		_, _, err = m.gradient(s, running)(ctx, m.Initial, again, kintsugi.PushID{})
		if err == nil && !slices.Equal(grads, again) {
			warning = fmt.Sprintf("two gradients of %s, of one batch at the same parameters, differ: training works, but a run after failures may end with other parameters than one without", running)
		}
	}
	if err == nil && m.About.Evaluates {
		_, _, _, err = running.Evaluate(ctx, m.Initial)
	}
	if err == nil && warning == "" {
		warning, err = m.compare(ctx, s, other, grads)
	}
	if err != nil {
		_ = running.Close() // the program has already reported what is wrong
		return "", err
	}
	return warning, m.give(running)
}

// touches returns an error that names the tensor if the program has written a value of the gradient
// that it says it has not touched: servers would not get it.
func (m *Program) touches(running *program.Program) error {
	at := running.Overlooked()
	for _, t := range m.About.Tensors {
		if at >= 0 && at < t.Values() {
			return fmt.Errorf("%w: the first gradient of %s has written tensor %s, value %d, and its byte of those that say what is touched is 0; package program says how these are written", kintsugi.ErrUsage, running, t.Name, at)
		}
		at -= t.Values()
	}
	return nil
}

// finite returns an error that names the tensor if the first gradient contains NaN or Inf: no step
// could be taken.
func (m *Program) finite(grads []float32) error {
	lo := 0
	for _, t := range m.About.Tensors {
		part := grads[lo : lo+t.Values()]
		i := slices.IndexFunc(part, func(g float32) bool { return math.IsNaN(float64(g)) || math.IsInf(float64(g), 0) })
		if i >= 0 {
			return fmt.Errorf("%w: the first gradient, at the initial parameters: tensor %s holds %v; look at the data, the loss, and what the parameters begin with", kintsugi.ErrNotFinite, t.Name, part[i])
		}
		lo += t.Values()
	}
	return nil
}

// TakeRates sets the learning rates of tensors to what the program says now: a run that is resumed
// begins with its earlier description.
func (p *Problem) TakeRates(s *Settings) (err error) {
	m := p.Program
	if maps.Equal(m.rates, m.About.Rates) {
		return nil
	}
	m.About.Rates = m.rates
	if p.Layout, err = m.About.Layout(); err == nil {
		p.Layout, err = s.rated(p.Layout)
	}
	return err
}

// Keep writes the description of the program, if there is one, to a run's folder, for its
// processes. A resumed run keeps its description, except the rates of tensors, which are those that
// the program says now. From then on this process too has the initial parameters in that file alone.
func (m *Program) Keep(dir string) error {
	if m == nil {
		return nil
	}
	path := filepath.Join(dir, DescribedFile)
	about, initial, file := m.About, m.Initial, m.file
	m.Initial, m.file = nil, path
	defer debug.FreeOSMemory() // what the first gradients took, for the processes of the run
	if _, err := os.Stat(path); err == nil {
		began, err := program.Read(path)
		switch {
		case err != nil:
			return err
		case maps.Equal(began.Rates, about.Rates):
			return nil
		}
		began.Rates = about.Rates
		about, initial, file = began, nil, path
	}
	if initial == nil {
		initial = make([]float32, about.Values())
		if err := program.ReadInitial(file, 0, initial); err != nil {
			return err
		}
	}
	if err := record.WriteFile(path, func(w io.Writer) error { return program.Write(w, about, initial) }); err != nil {
		return fmt.Errorf("write what the program trains: %w", err)
	}
	return nil
}

// FindDescribed finds the description of the program of a run whose settings are in the folder dir:
// beside them, also if the folder has been moved, or where they say. If it is in neither place, the
// program is asked.
func (s *Settings) FindDescribed(dir string) {
	for _, file := range []string{filepath.Join(dir, DescribedFile), s.Described} {
		if _, err := os.Stat(file); err == nil {
			s.Described = file
			return
		}
	}
	s.Described = ""
}

// Lines logs the output of a program line by line.
type Lines struct {
	Log  *slog.Logger
	rest []byte
}

// longestLine is how much of one line is logged, in bytes.
const longestLine = 4 << 10

func (l *Lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 && len(l.rest) < longestLine {
			return len(b), nil
		}
		if i < 0 {
			i = len(l.rest) - 1
		}
		if line := strings.TrimRight(string(l.rest[:i+1]), " \t\r\n"); line != "" {
			l.Log.Info("the program says: " + line)
		}
		l.rest = l.rest[i+1:]
	}
}

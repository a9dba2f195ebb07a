package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/internal/spread"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/timeout"
)

// Config configures Start.
type Config struct {
	Command   []string  // the program and its arguments; it is looked up in PATH unless it contains a slash
	Seed      uint64    // of the run
	Slots     int       // number of workers of the run
	LocalRank int       // number of this worker among those that share its host, which take a GPU each in turn
	Output    io.Writer // receives the program's standard output and standard error; nil: both are discarded

	// HangAfter is how long the program may take for a gradient, for local steps, or for an evaluation.
	// After that it counts as hung, and is ended. 0: there is no limit; timeout.Learned: the limit
	// follows from earlier answers.
	HangAfter time.Duration
}

// Program is a running program that has described its model. Only one goroutine may use a Program
// at a time.
type Program struct {
	about     Description
	name      string // name of the program, for messages
	localRank int
	child     *child
	memory    *shm.File
	shared    bool // the program has mapped the memory

	ofGradients, ofEvaluations timeout.Timeout  // what is asked before them may take as long as it likes
	waits                      *timeout.Timeout // for the answer to the latest question

	last   uint64 // id of the latest question
	owed   bool   // its answer has not been received yet
	failed error  // set: no further question is possible
}

// Start starts a program and asks it to describe its model. The program may take as long as ctx
// lasts, since it may have to read data. If the program cannot be started, or describes no valid
// model, the error is a kintsugi.ErrUsage; if it fails, a Failure. The caller must close the
// Program.
func Start(ctx context.Context, cfg Config) (*Program, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, fmt.Errorf("%w: no program to start", kintsugi.ErrUsage)
	}
	p := &Program{name: strings.Join(cfg.Command, " "), localRank: cfg.LocalRank}
	p.ofGradients.Fixed, p.ofEvaluations.Fixed = cfg.HangAfter, cfg.HangAfter
	var err error
	if p.memory, err = shm.Unnamed(""); err != nil {
		return nil, err
	}
	if p.child, err = start(cfg, p.memory.Descriptor()); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: start %s: %w", kintsugi.ErrUsage, p.name, err), p.memory.Close())
	}
	a, err := p.ask(ctx, "describe", fields{"seed": plain(cfg.Seed), "slots": cfg.Slots})
	if err == nil {
		p.about = a.Description
		if err = p.about.Check(); err != nil {
			err = fmt.Errorf("%w: %w", kintsugi.ErrUsage, err)
		}
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("ask %s what it trains: %w", p.name, err), p.Close())
		switch {
		case ctx.Err() != nil: // it has not had the time
		case strings.Contains(err.Error(), "No module named 'kintsugi'"):
			err = fmt.Errorf("%w. That is kintsugi.py, which kintsugi puts on PYTHONPATH if it can write to a folder: start Python without -E and -I, or copy it beside the program", err)
		case p.child.left():
			err = fmt.Errorf("%w. Nothing in it has waited for questions: a program in Python calls run, run_torch or run_jax of kintsugi.py, as docs/programs.md shows", err)
		}
		return nil, err
	}
	return p, nil
}

// About returns the description of the model.
func (p *Program) About() Description { return p.about }

// String returns the program and its arguments.
func (p *Program) String() string { return p.name }

// plain returns the lower 53 bits of a seed, which every JSON parser reads exactly.
func plain(seed uint64) uint64 { return seed & (1<<53 - 1) }

// page is the offset of the parameters in the memory. The page before them holds the id of the
// question still wanted.
const page = 4096

// Initialise writes the program's initial parameters to params, which must have as many values as
// the model. If it is called at all, it must be called before anything else is asked.
func (p *Program) Initialise(ctx context.Context, params []float32) error {
	if p.shared {
		return fmt.Errorf("%w: the initial parameters of %s, after another question", kintsugi.ErrUsage, p.name)
	}
	if err := p.share(ctx, false); err != nil {
		return err
	}
	copy(params, p.params())
	return nil
}

// share gives the memory the size that the model needs, once, and has the program map it. The initial
// parameters are there then, unless unread.
func (p *Program) share(ctx context.Context, unread bool) error {
	if p.shared {
		return nil
	}
	n := page + 8*p.about.Values()
	if p.about.Touches {
		n += kernels.Spots(p.about.Values())
	}
	if err := p.memory.Resize(n); err != nil {
		return fmt.Errorf("memory for %s: %w", p.name, err)
	}
	if _, err := p.ask(ctx, "initialise", fields{"bytes": n, "unread": unread}); err != nil {
		return fmt.Errorf("ask %s for its initial parameters: %w", p.name, err)
	}
	p.shared = true
	return nil
}

// Memory is the memory that a program shares.
type Memory struct {
	Params, Grads []float32

	// Touched has a byte for each kernels.Spot values of Grads. Where it is 0, the program says that
	// they are all +0. It is nil if the program says nothing.
	Touched []byte
}

// Memory returns the shared memory. Who writes parameters there and passes them to Gradient, Take or
// Evaluate saves a copy, and so does who passes these gradients. Call Settle before each time that
// parameters are written. A question that was given up may go on writing gradients until then.
func (p *Program) Memory(ctx context.Context) (m Memory, err error) {
	if err := p.share(ctx, true); err != nil {
		return m, err
	}
	m.Params, m.Grads = p.params(), p.gradients()
	if p.about.Touches {
		m.Touched = p.touched()
	}
	return m, nil
}

// Overlooked returns the index of a value of the newest gradient that is not +0 although the program
// says so, or -1.
func (p *Program) Overlooked() int {
	if !p.about.Touches {
		return -1
	}
	touched := p.touched()
	for i, g := range p.gradients() {
		if math.Float32bits(g) != 0 && touched[i/kernels.Spot] == 0 {
			return i
		}
	}
	return -1
}

func (p *Program) touched() []byte { return p.memory.Bytes()[page+8*p.about.Values():] }

func (p *Program) params() []float32 {
	return kernels.Floats(p.memory.Bytes()[page : page+4*p.about.Values()])
}

func (p *Program) gradients() []float32 {
	return kernels.Floats(p.memory.Bytes()[page+4*p.about.Values():][:4*p.about.Values()])
}

// Request says which gradient to compute.
type Request struct {
	ID      kintsugi.PushID
	Seed    uint64 // of all randomness in the gradient
	Indices []int  // of the examples; nil: the program draws them itself
}

// Gradient overwrites grads with a gradient at params. It returns the mean loss over the gradient's
// examples, and their number. params and grads must have as many values as the model; neither is
// kept. If ctx ends first, Gradient returns at once, and the next question waits until the program
// has finished this one. Errors of the program are a Failure, and so is that it hangs.
func (p *Program) Gradient(ctx context.Context, params, grads []float32, r Request) (loss float64, examples int, err error) {
	if err := p.lend(ctx, params); err != nil {
		return 0, 0, err
	}
	f := fields{"slot": r.ID.Slot, "local_rank": p.localRank, "version": r.ID.Version, "sequence": r.ID.Sequence, "seed": plain(r.Seed)}
	if r.Indices != nil {
		f["indices"] = r.Indices
	}
	a, err := p.ask(ctx, "gradient", f)
	if err != nil {
		return 0, 0, fmt.Errorf("ask %s for a gradient: %w", p.name, err)
	}
	return p.gradient(a, grads, len(r.Indices))
}

// gradient takes the gradient that the program has answered with. drawn is the number of the
// examples that were named to it.
func (p *Program) gradient(a answer, grads []float32, drawn int) (loss float64, examples int, err error) {
	if a.Examples == 0 {
		a.Examples = drawn
	}
	if a.Examples < 1 {
		return 0, 0, p.fail(fmt.Errorf(`ask %s for a gradient: it does not say of how many "examples"`, p.name))
	}
	if own := p.gradients(); len(grads) > 0 && &grads[0] != &own[0] {
		spread.Copy(spread.Array{To: kernels.Bytes(grads), From: kernels.Bytes(own)})
	}
	return number(a.Loss), a.Examples, nil
}

// Evaluate returns the loss and the accuracy of params and the number of examples they are measured
// on. Values that the program does not report are NaN.
func (p *Program) Evaluate(ctx context.Context, params []float32) (loss, accuracy float64, examples int, err error) {
	if err := p.lend(ctx, params); err != nil {
		return 0, 0, 0, err
	}
	a, err := p.ask(ctx, "evaluate", nil)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("ask %s to evaluate: %w", p.name, err)
	}
	return number(a.Loss), number(a.Accuracy), a.Examples, nil
}

// lend copies parameters to the shared memory, unless they are there, as soon as the program does not
// read it for an earlier question.
func (p *Program) lend(ctx context.Context, params []float32) error {
	if err := p.share(ctx, true); err != nil {
		return err
	}
	if err := p.Settle(ctx); err != nil {
		return err
	}
	if own := p.params(); len(params) > 0 && &params[0] != &own[0] {
		spread.Copy(spread.Array{To: kernels.Bytes(own), From: kernels.Bytes(params)})
	}
	return nil
}

func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// wanted writes the id of the question whose answer is wanted to the shared memory; 0 means none.
func (p *Program) wanted(id uint64) {
	if p.shared {
		binary.NativeEndian.PutUint64(p.memory.Bytes(), id)
	}
}

// leaveWithin is how long a program may take to end by itself after the conversation is over.
const leaveWithin = 2 * time.Second

// Close ends the conversation. If the program does not end within two seconds, it is killed.
func (p *Program) Close() error {
	p.wanted(0)
	return errors.Join(p.child.close(leaveWithin), p.memory.Close())
}

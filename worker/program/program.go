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
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Config says which program to start.
type Config struct {
	Command []string  // the program, looked for on the path unless it has a slash, and its arguments
	Seed    uint64    // of the run
	Slots   int       // workers of the run
	Output  io.Writer // gets what the program writes to its standard output and error; nil: nothing does
}

// Program is a program that has been started and has described its model. It is used by one goroutine at a time.
type Program struct {
	about  Description
	name   string // of the program, in messages
	child  *child
	memory *shm.File
	shared bool // the program has mapped the memory

	last   uint64 // id of the newest question
	owed   bool   // its answer was not waited for
	failed error  // nothing can be asked any more
}

// Start starts a program and asks it to describe its model, for which it may take as long as ctx
// lets it: it may have data to read. A program that cannot be started, or describes no model, is a
// kintsugi.ErrUsage, one that fails a Failure. The caller closes the Program.
func Start(ctx context.Context, cfg Config) (*Program, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, fmt.Errorf("%w: no program to start", kintsugi.ErrUsage)
	}
	p := &Program{name: strings.Join(cfg.Command, " ")}
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
		if p.child.left() {
			err = fmt.Errorf("%w. Nothing in it has waited for questions: a program in Python calls run, run_torch or run_jax of kintsugi.py, as docs/programs.md shows", err)
		}
		return nil, err
	}
	return p, nil
}

// About returns what the program trains.
func (p *Program) About() Description { return p.about }

// String returns the program and its arguments.
func (p *Program) String() string { return p.name }

// plain returns the seed as every reader of JSON has it exactly.
func plain(seed uint64) uint64 { return seed & (1<<53 - 1) }

// page is where the parameters begin: before them is a page that says what is still wanted.
const page = 4096

// Initialise writes the initial parameters to params, which has as many values as the model. It is
// called before anything else is asked for, if at all.
func (p *Program) Initialise(ctx context.Context, params []float32) error {
	if p.shared {
		return fmt.Errorf("%w: the initial parameters of %s, after another question", kintsugi.ErrUsage, p.name)
	}
	if err := p.share(ctx); err != nil {
		return err
	}
	copy(params, p.params())
	return nil
}

// share makes the memory as large as the model needs, once, and has the program map it.
func (p *Program) share(ctx context.Context) error {
	if p.shared {
		return nil
	}
	n := page + 8*p.about.Values()
	if err := p.memory.Resize(n); err != nil {
		return fmt.Errorf("memory for %s: %w", p.name, err)
	}
	if _, err := p.ask(ctx, "initialise", fields{"bytes": n}); err != nil {
		return fmt.Errorf("ask %s for its initial parameters: %w", p.name, err)
	}
	p.shared = true
	return nil
}

func (p *Program) params() []float32 {
	return kernels.Floats(p.memory.Bytes()[page : page+4*p.about.Values()])
}

func (p *Program) gradients() []float32 {
	return kernels.Floats(p.memory.Bytes()[page+4*p.about.Values():])
}

// Request says which gradient is wanted.
type Request struct {
	ID      kintsugi.PushID
	Seed    uint64 // of everything random about it
	Indices []int  // the examples; nil: as the program draws them
}

// Gradient overwrites grads with a gradient at params and returns the mean loss over its examples,
// and how many they are. Both have as many values as the model, and neither is kept. If ctx ends
// first, Gradient returns at once; the next question waits until the program has finished what
// nobody wants.
func (p *Program) Gradient(ctx context.Context, params, grads []float32, r Request) (loss float64, examples int, err error) {
	if err := p.lend(ctx, params); err != nil {
		return 0, 0, err
	}
	f := fields{"slot": r.ID.Slot, "version": r.ID.Version, "sequence": r.ID.Sequence, "seed": plain(r.Seed)}
	if r.Indices != nil {
		f["indices"] = r.Indices
	}
	a, err := p.ask(ctx, "gradient", f)
	if err != nil {
		return 0, 0, fmt.Errorf("ask %s for a gradient: %w", p.name, err)
	}
	if a.Examples == 0 {
		a.Examples = len(r.Indices)
	}
	if a.Examples < 1 {
		return 0, 0, p.fail(fmt.Errorf(`ask %s for a gradient: it does not say of how many "examples"`, p.name))
	}
	copy(grads, p.gradients())
	return number(a.Loss), a.Examples, nil
}

// Evaluate returns the loss and the accuracy of params, NaN where the program does not say, and on how many examples.
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

// lend copies parameters to where the program reads them, when it reads them for nobody else any more.
func (p *Program) lend(ctx context.Context, params []float32) error {
	if err := p.share(ctx); err != nil {
		return err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	copy(p.params(), params)
	return nil
}

func number(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// wanted tells a program that looks which answer is still waited for; 0 is none.
func (p *Program) wanted(id uint64) {
	if p.shared {
		binary.NativeEndian.PutUint64(p.memory.Bytes(), id)
	}
}

// leaveWithin is how long a program may take to end by itself when nobody asks any more.
const leaveWithin = 2 * time.Second

// Close lets the program end, and ends it if it does not within two seconds.
func (p *Program) Close() error {
	p.wanted(0)
	return errors.Join(p.child.close(leaveWithin), p.memory.Close())
}

package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kintsugi-ml/kintsugi/worker/timeout"
)

// fields are the fields of a question besides its id and kind.
type fields map[string]any

// answer is one line from the program.
type answer struct {
	ID       uint64   `json:"id"`
	Error    string   `json:"error"`
	Loss     *float64 `json:"loss"`
	Accuracy *float64 `json:"accuracy"`
	Description
}

// Failure is an error caused by the program: it reported the error, it ended, or it violated the
// protocol. A restarted program may well fail in the same way.
type Failure struct{ error }

// Unwrap returns the error itself.
func (f Failure) Unwrap() error { return f.error }

// errSaid is an error that the program reported. The program can still be asked.
type errSaid string

func (e errSaid) Error() string { return "it says: " + string(e) }

// ask sends a question and waits for its answer. If ctx ends first, the answer is still owed.
func (p *Program) ask(ctx context.Context, about string, f fields) (answer, error) {
	if err := p.Settle(ctx); err != nil {
		return answer{}, err
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	p.last++
	q := fields{"id": p.last, "ask": about}
	maps.Copy(q, f)
	line, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	p.wanted(p.last)
	p.owed = true
	p.waits = p.timeoutFor(about)
	p.waits.Begin()
	if _, err := p.child.conn.Write(append(line, '\n')); err != nil {
		return answer{}, p.fail(p.child.gone(nil)) // the error of the socket would help nobody
	}
	return p.answer(ctx)
}

// Settle waits for the answer to a question that was given up, if there is one: until then the
// program may read the parameters. Its errors are those of Gradient.
func (p *Program) Settle(ctx context.Context) error {
	if !p.owed || p.failed != nil {
		return p.failed
	}
	_, err := p.answer(ctx)
	if _, said := errors.AsType[errSaid](err); said { // nobody needs that answer, so its error does not matter
		return nil
	}
	return err
}

// timeoutFor returns how long to wait for an answer to a question.
func (p *Program) timeoutFor(about string) *timeout.Timeout {
	switch about {
	case "gradient", "steps": // a worker asks one of them
		return &p.ofGradients
	case "evaluate":
		return &p.ofEvaluations
	}
	return new(timeout.Timeout) // for ever
}

// answer waits for the answer to the latest question. Nobody may wait for an answer that was given up, and
// that time does not count: the program may have answered long ago.
func (p *Program) answer(ctx context.Context) (answer, error) {
	var look <-chan time.Time // nil: it may take as long as it likes
	if every := p.waits.Every(); every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		look = t.C
	}
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			p.waits.Waited(time.Since(since))
			p.wanted(0)
			return answer{}, ctx.Err()
		case <-p.child.died: // a process that it started may hold the socket open, so the socket would not end
			return answer{}, p.fail(p.child.gone(nil))
		case now := <-look:
			if p.waits.Waited(now.Sub(since)) {
				return answer{}, p.fail(p.child.hangs(p.waits))
			}
			since = now
		case text, ok := <-p.child.lines:
			if !ok {
				return answer{}, p.fail(p.child.gone(p.child.broken))
			}
			p.waits.Waited(time.Since(since))
			p.waits.Answered()
			return p.parse(text)
		}
	}
}

// parse reads the answer to the latest question.
func (p *Program) parse(text []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return answer{}, p.fail(fmt.Errorf("%.200q is no answer: %w", text, err))
	}
	if a.ID != p.last {
		return answer{}, p.fail(fmt.Errorf("it answers question %d, and was asked question %d", a.ID, p.last))
	}
	p.owed = false
	if a.Error != "" {
		return answer{}, Failure{errSaid(a.Error)}
	}
	return a, nil
}

// fail ends the conversation: every later question returns err.
func (p *Program) fail(err error) error {
	p.failed = Failure{err}
	return p.failed
}

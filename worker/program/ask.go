package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
)

// fields are what a question says beside its id and what it is about.
type fields map[string]any

// answer is a line of the program's.
type answer struct {
	ID       uint64   `json:"id"`
	Error    string   `json:"error"`
	Loss     *float64 `json:"loss"`
	Accuracy *float64 `json:"accuracy"`
	Description
}

// Failure is an error that a program is to blame for: it said so, it ended, or it did not keep to
// the protocol. Who starts it again may well meet it again.
type Failure struct{ error }

// Unwrap returns what happened.
func (f Failure) Unwrap() error { return f.error }

// errSaid is an error that the program reports. It can be asked again.
type errSaid string

func (e errSaid) Error() string { return "it says: " + string(e) }

// ask puts a question and waits for its answer. When ctx ends first the answer is owed.
func (p *Program) ask(ctx context.Context, about string, f fields) (answer, error) {
	if err := p.settle(ctx); err != nil {
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
	if _, err := p.child.conn.Write(append(line, '\n')); err != nil {
		return answer{}, p.fail(p.child.gone(nil)) // what the pipe says of it tells nobody anything
	}
	return p.answer(ctx)
}

// settle waits for an answer that was given up.
func (p *Program) settle(ctx context.Context) error {
	if !p.owed || p.failed != nil {
		return p.failed
	}
	_, err := p.answer(ctx)
	if _, said := errors.AsType[errSaid](err); said { // whatever it is, nobody wants it
		return nil
	}
	return err
}

// answer waits for the answer to the newest question.
func (p *Program) answer(ctx context.Context) (answer, error) {
	select {
	case <-ctx.Done():
		p.wanted(0)
		return answer{}, ctx.Err()
	case <-p.child.died: // what it has started may have its end of the socket, and it would never be told
		return answer{}, p.fail(p.child.gone(nil))
	case text, ok := <-p.child.lines:
		if !ok {
			return answer{}, p.fail(p.child.gone(p.child.broken))
		}
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
}

// fail ends the conversation: whatever is asked from now on has that answer.
func (p *Program) fail(err error) error {
	p.failed = Failure{err}
	return p.failed
}

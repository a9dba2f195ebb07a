// Package programtest implements the program's side of the protocol of package program in Go, for
// tests.
package programtest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// Question is one question to the program.
type Question struct {
	ID       uint64
	Ask      string
	Seed     uint64
	Slots    int
	Bytes    int
	Slot     kintsugi.Slot
	Version  kintsugi.Step
	Sequence uint32
	Indices  []int
	Local    // of the question "steps"
}

// Local are the local steps of a question.
type Local struct {
	Rule          string
	Momentum      float32
	ClipNorm      float64 `json:"clip_norm"`
	Groups        []int
	Decays, Units []float32
	Batches       []struct {
		Version kintsugi.Step
		Indices []int
		Rates   []float32
	}
}

// Program answers questions.
type Program struct {
	About  program.Description
	Memory []byte // mapped after the question "initialise"

	Spoil   func(q Question, grads []float32) // if set: Serve calls it to change each gradient
	Refuses string                            // kind of question that Serve answers with an error

	Overlooks bool // Serve says of the last values of a gradient that they are 0, if it says that of any

	conn net.Conn
	in   *bufio.Reader
	file *os.File
}

// Open begins the conversation. told is the value of the environment variable program.Variable.
func Open(told string, about program.Description) (*Program, error) {
	var version, socket, memory int
	if _, err := fmt.Sscan(told, &version, &socket, &memory); err != nil || version != 1 {
		return nil, fmt.Errorf("%s is %q: %w", program.Variable, told, err)
	}
	conn, err := net.FileConn(os.NewFile(uintptr(socket), "kintsugi"))
	if err != nil {
		return nil, err
	}
	return &Program{About: about, conn: conn, in: bufio.NewReader(conn), file: os.NewFile(uintptr(memory), "memory")}, nil
}

// Next returns the next question, or an error if the conversation is over. On "initialise" it maps
// the memory.
func (p *Program) Next() (q Question, err error) {
	line, err := p.in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	if err == nil && q.Ask == "initialise" {
		p.Memory, err = syscall.Mmap(int(p.file.Fd()), 0, q.Bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	return q, err
}

// Params returns the parameters in the shared memory.
func (p *Program) Params() []float32 {
	return kernels.Floats(p.Memory[4096 : 4096+4*p.About.Values()])
}

// Grads returns the place of the gradient in the shared memory.
func (p *Program) Grads() []float32 {
	return kernels.Floats(p.Memory[4096+4*p.About.Values():][:4*p.About.Values()])
}

// Touched returns the place of what the program says of which gradients are not 0, if it does.
func (p *Program) Touched() []byte { return p.Memory[4096+8*p.About.Values():] }

// Wanted returns the id of the question whose answer is still wanted.
func (p *Program) Wanted() uint64 { return binary.NativeEndian.Uint64(p.Memory) }

// Say sends a line unchanged.
func (p *Program) Say(line string) error {
	_, err := p.conn.Write([]byte(line + "\n"))
	return err
}

// Answer sends an answer.
func (p *Program) Answer(fields map[string]any) error {
	line, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return p.Say(string(line))
}

// Describe answers the question "describe".
func (p *Program) Describe(id uint64) error {
	fields := make(map[string]any)
	line, err := json.Marshal(p.About)
	if err == nil {
		err = json.Unmarshal(line, &fields)
	}
	if err != nil {
		return err
	}
	fields["id"] = id
	return p.Answer(fields)
}

// Close ends the conversation.
func (p *Program) Close() error { return p.conn.Close() }

// Serve answers questions until the conversation is over. Its loss is 1/2 Σ (xᵢ - i·mean(batch))²,
// with the exact gradient. The parameters begin at the seed, and each batch pulls them its way.
func (p *Program) Serve() error {
	for {
		q, err := p.Next()
		if err != nil {
			return nil // the conversation is over
		}
		fields := map[string]any{"id": q.ID}
		switch q.Ask {
		case "describe":
			if err := p.Describe(q.ID); err != nil {
				return err
			}
			continue
		case "initialise":
			for i := range p.Params() {
				p.Params()[i] = float32(i)
			}
		case "gradient":
			fields["loss"], fields["examples"] = Gradient(p.Grads(), p.Params(), q.Indices), len(q.Indices)
			if p.Spoil != nil {
				p.Spoil(q, p.Grads())
			}
			if p.About.Touches {
				for i := range p.Touched() {
					p.Touched()[i] = 1
				}
				if p.Overlooks {
					p.Touched()[len(p.Touched())-1] = 0
				}
			}
		case "steps":
			fields["loss"], fields["examples"] = p.take(q)
		case "evaluate":
			fields["loss"], fields["accuracy"], fields["examples"] = Gradient(nil, p.Params(), []int{4}), 0.5, 1
		}
		if q.Ask == p.Refuses {
			fields["error"] = "the labels are gone"
		}
		if err := p.Answer(fields); err != nil {
			return err
		}
	}
}

// Gradient computes the gradient of Serve, and returns its loss.
func Gradient(grads, params []float32, indices []int) (loss float64) {
	pull := float32(0)
	for _, i := range indices {
		pull += float32(i)
	}
	pull /= float32(len(indices))
	for i, x := range params {
		d := x - float32(i)*pull
		loss += float64(d) * float64(d) / 2
		if grads != nil {
			grads[i] = d
		}
	}
	return loss
}

// take takes the local steps of a question, with momentum.
func (p *Program) take(q Question) (loss float64, examples int) {
	if q.Rule != kernels.Momentum.String() {
		panic("local steps with " + q.Rule)
	}
	w, g, m := slices.Clone(p.Params()), make([]float32, len(p.Params())), make([]float32, len(p.Params()))
	each := func(f func(lo, hi, group int)) {
		lo := 0
		for t, x := range p.About.Tensors {
			f(lo, lo+x.Values(), q.Groups[t])
			lo += x.Values()
		}
	}
	for i, b := range q.Batches {
		loss += Gradient(g, w, b.Indices) / float64(len(q.Batches))
		examples += len(b.Indices)
		if p.Spoil != nil {
			q.Version = q.Batches[i].Version
			p.Spoil(q, g)
		}
		squared, scale := 0.0, float32(1)
		each(func(lo, hi, _ int) { squared += kernels.SquaredNorm(g[lo:hi]) })
		if q.ClipNorm > 0 && squared > q.ClipNorm*q.ClipNorm {
			scale = float32(q.ClipNorm / math.Sqrt(squared))
		}
		each(func(lo, hi, group int) {
			for j := lo; j < hi; j++ {
				m[j] = float32(q.Momentum*m[j]) + (float32(scale*g[j]) + float32(q.Decays[group]*w[j]))
				w[j] -= float32(b.Rates[group] * m[j])
			}
		})
	}
	each(func(lo, hi, group int) {
		for j := lo; j < hi; j++ {
			if p.Grads()[j] = 0; q.Units[group] != 0 {
				p.Grads()[j] = (p.Params()[j] - w[j]) / q.Units[group]
			}
		}
	})
	return loss, examples
}

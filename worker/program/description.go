package program

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Description is a program's answer to "describe". The run chooses the settings that are 0 or
// empty.
type Description struct {
	Name     string            `json:"name"`
	Tensors  []kintsugi.Tensor `json:"tensors"`            // the parameters, in the order of the flat vector
	Examples int               `json:"examples,omitempty"` // number to draw from; 0: the program draws its examples itself
	Batch    int               `json:"batch,omitempty"`    // number of examples of a gradient

	Steps        int     `json:"steps,omitempty"`
	LearningRate float32 `json:"learning_rate,omitempty"`
	Momentum     float32 `json:"momentum,omitempty"`
	Optimizer    string  `json:"optimizer,omitempty"`
	Codec        string  `json:"codec,omitempty"`
	Warmup       int     `json:"warmup,omitempty"`
	Decay        string  `json:"decay,omitempty"`
	Betas        string  `json:"betas,omitempty"`
	Epsilon      float32 `json:"epsilon,omitempty"`
	WeightDecay  float32 `json:"weight_decay,omitempty"`
	Decayed      string  `json:"weight_decay_for,omitempty"`
	ClipNorm     float32 `json:"clip_norm,omitempty"`

	Rates map[string]float32 `json:"rates,omitempty"` // by tensor name: factor of its learning rate; others have 1

	Evaluates bool `json:"evaluates,omitempty"`   // the program answers "evaluate"
	Takes     bool `json:"takes_steps,omitempty"` // the program answers "steps"
	Touches   bool `json:"touches,omitempty"`     // the program says which values of a gradient are not 0
}

// Values returns the number of parameters.
func (d *Description) Values() (n int) {
	for _, t := range d.Tensors {
		n += t.Values()
	}
	return n
}

// nameForm is the pattern of model names: the name becomes part of the name of a folder.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Check returns an error if the description is invalid.
func (d *Description) Check() error {
	switch {
	case !nameForm.MatchString(d.Name):
		return fmt.Errorf(`its "name" is %q; it must have letters, digits, dots, dashes and underscores alone, 64 at most`, d.Name)
	case len(d.Tensors) == 0:
		return errors.New(`it describes no "tensors"`)
	case d.Examples < 0 || d.Batch < 0 || d.Steps < 0 || d.LearningRate < 0 || d.Momentum < 0 || d.Warmup < 0 || d.Epsilon < 0 || d.WeightDecay < 0 || d.ClipNorm < 0:
		return fmt.Errorf("it describes negative numbers: %d examples, a batch of %d, %d steps, a learning rate of %g, a momentum of %g, a warm-up of %d steps, an epsilon of %g, a weight decay of %g, gradients no longer than %g",
			d.Examples, d.Batch, d.Steps, d.LearningRate, d.Momentum, d.Warmup, d.Epsilon, d.WeightDecay, d.ClipNorm)
	}
	_, err := d.Layout()
	return err
}

// Layout returns the layout of the model, including its rates.
func (d *Description) Layout() (*kintsugi.Layout, error) {
	l, err := kintsugi.NewLayout(d.Tensors)
	if err != nil {
		return nil, err
	}
	return l.WithRates(d.Rates)
}

// Differs returns an error that says how the model of another description differs, or nil.
// Differences between suggested settings do not matter.
func (d *Description) Differs(other *Description) error {
	for i := range max(len(d.Tensors), len(other.Tensors)) {
		switch {
		case i >= len(other.Tensors):
			return fmt.Errorf("there was a tensor %s, and there is none now", d.Tensors[i].Name)
		case i >= len(d.Tensors):
			return fmt.Errorf("there was no tensor %s", other.Tensors[i].Name)
		}
		if a, b := d.Tensors[i], other.Tensors[i]; a.Name != b.Name || !slices.Equal(a.Shape, b.Shape) {
			return fmt.Errorf("tensor %d was %s %v, and is %s %v now", i, a.Name, a.Shape, b.Name, b.Shape)
		}
	}
	if d.Examples != other.Examples {
		return fmt.Errorf("there were %d examples, and there are %d now", d.Examples, other.Examples)
	}
	return nil
}

// described is the first line of the file of a described model. The initial parameters follow, as
// little-endian float32.
type described struct {
	Kintsugi int    `json:"kintsugi_program"` // version of this format
	CRC32C   uint32 `json:"crc32c"`           // of the parameters
	Description
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write writes a program's description and its initial parameters, for processes that do not run
// the program.
func Write(w io.Writer, d *Description, initial []float32) error {
	b := kernels.Bytes(initial)
	head, err := json.Marshal(described{1, crc32.Checksum(b, castagnoli), *d})
	if err == nil {
		_, err = w.Write(append(head, '\n'))
	}
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// Read reads the description in a file that Write has written. If the file is damaged, the error is
// a kintsugi.ErrCorrupt. It does not look at the parameters: ReadInitial verifies them.
func Read(path string) (d *Description, err error) {
	err = open(path, func(f *os.File) error {
		x, r, err := readHead(f)
		if err != nil {
			return err
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if follow, n := info.Size()-at+int64(r.Buffered()), 4*int64(x.Values()); follow < n {
			return fmt.Errorf("%w: %d bytes of parameters instead of %d", kintsugi.ErrCorrupt, follow, n)
		}
		d = &x.Description
		return nil
	})
	return d, err
}

// ReadInitial reads the initial parameters from value lo on into params, from a file that Write has
// written. It reads the whole file to verify the checksum, but keeps nothing except params, since
// the model may be much larger than what this process holds of it. If the file is damaged or does
// not have these values, the error is a kintsugi.ErrCorrupt, and params are undefined.
func ReadInitial(path string, lo int, params []float32) error {
	return open(path, func(f *os.File) error {
		x, r, err := readHead(f)
		if err != nil {
			return err
		}
		n, hi := x.Values(), lo+len(params)
		if lo < 0 || hi > n {
			return fmt.Errorf("%w: it has %d parameters, and not those from %d to %d", kintsugi.ErrCorrupt, n, lo, hi)
		}
		sum := crc32.New(castagnoli)
		_, err = io.CopyN(sum, r, 4*int64(lo))
		if err == nil {
			_, err = io.ReadFull(io.TeeReader(r, sum), kernels.Bytes(params))
		}
		if err == nil {
			_, err = io.CopyN(sum, r, 4*int64(n-hi))
		}
		switch {
		case err != nil:
			return fmt.Errorf("%w: its %d parameters cannot be read: %w", kintsugi.ErrCorrupt, n, err)
		case sum.Sum32() != x.CRC32C:
			return fmt.Errorf("%w: the initial parameters do not match their checksum", kintsugi.ErrCorrupt)
		}
		return nil
	})
}

// open opens the file of a described model, and names it in errors.
func open(path string, read func(*os.File) error) error {
	const what = "what a program said it trains"
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", kintsugi.ErrUsage, what, err)
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %s: %w", path, what, err)
	}
	return nil
}

// readHead reads the first line. The parameters follow in the reader that it returns.
func readHead(from io.Reader) (x described, r *bufio.Reader, err error) {
	r = bufio.NewReader(from)
	var head []byte
	for {
		part, err := r.ReadSlice('\n')
		if head = append(head, part...); err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(head) > longest {
			return x, nil, fmt.Errorf("%w: it does not begin with a line of JSON", kintsugi.ErrCorrupt)
		}
	}
	if err := json.Unmarshal(head, &x); err != nil {
		return x, nil, fmt.Errorf("%w: %w", kintsugi.ErrCorrupt, err)
	}
	if x.Kintsugi != 1 {
		return x, nil, fmt.Errorf("%w: format %d; this program reads 1", kintsugi.ErrUsage, x.Kintsugi)
	}
	if err := x.Check(); err != nil {
		return x, nil, fmt.Errorf("%w: %w", kintsugi.ErrCorrupt, err)
	}
	return x, r, nil
}

package program_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi/worker/program"
)

// The examples in PyTorch read files of the formats that they name, learn from them, and evaluate.
func TestTheExamplesInPyTorchLearn(t *testing.T) {
	withPyTorch(t)
	for name, args := range map[string]func(dir string) []string{
		"clicks.py": func(dir string) []string { return []string{clicks(t, dir, "\t", ""), "900"} },
		"gpt.py": func(dir string) []string {
			return []string{write(t, dir, "text", strings.Repeat("to be or not to be. ", 40))}
		},
		"fashion.py": func(dir string) []string {
			for part, n := range map[string]int{"train": 60, "t10k": 20} {
				images := append([]byte{0, 0, 8, 3, 0, 0, 0, byte(n), 0, 0, 0, 28, 0, 0, 0, 28}, make([]byte, n*28*28)...)
				labels := append([]byte{0, 0, 8, 1, 0, 0, 0, byte(n)}, make([]byte, n)...)
				for i := range n {
					labels[8+i] = byte(i % 10)
					for j := range 28 {
						images[16+i*28*28+28*j+2*(i%10)] = 255 // a line
					}
				}
				write(t, dir, part+"-images-idx3-ubyte", string(images))
				write(t, dir, part+"-labels-idx1-ubyte", string(labels))
			}
			return []string{dir}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, params := example(t, name, args(t.TempDir())...)
			grads := make([]float32, len(params))
			first, last := 0.0, 0.0
			for i := range 15 {
				x := program.Request{Seed: 7, Indices: make([]int, 32)}
				for j := range x.Indices {
					x.Indices[j] = (j + 32*(i%2)) % p.About().Examples
				}
				loss, _, err := p.Gradient(t.Context(), params, grads, x)
				if err != nil && strings.Contains(err.Error(), "has no attribute 'scaled_dot_product_attention'") {
					t.Skip("this example needs PyTorch 2")
				}
				if err != nil {
					t.Fatal(err)
				}
				if last = loss; i == 0 {
					first = loss
				}
				squared := 0.0
				for _, g := range grads {
					squared += float64(g) * float64(g)
				}
				for j, g := range grads {
					params[j] -= float32(0.2 * float64(g) / math.Sqrt(squared)) // as long in each step
				}
			}
			if !(last < first-0.05) {
				t.Errorf("its loss was %v, and is %v", first, last)
			}
			if loss, accuracy, n, err := p.Evaluate(t.Context(), params); err != nil || !(loss > 0 && accuracy >= 0 && accuracy <= 1) || n == 0 {
				t.Errorf("evaluated: %v, %v, %d examples, %v", loss, accuracy, n, err)
			}
		})
	}
}

// Files of clicks may have a line of names, commas, and a number for each example, as those that are
// passed around do.
func TestClicksOfBothFormatsAreTheSame(t *testing.T) {
	withPyTorch(t)
	var losses []float64
	for _, path := range []string{clicks(t, t.TempDir(), "\t", ""), clicks(t, t.TempDir(), ",", ""), clicks(t, t.TempDir(), ",", "Id,")} {
		p, params := example(t, "clicks.py", path)
		loss, _, err := p.Gradient(t.Context(), params, make([]float32, len(params)), program.Request{Indices: []int{0, 1, 2, 3}})
		if err != nil {
			t.Fatal(err)
		}
		if losses = append(losses, loss); loss != losses[0] || p.About().Examples != 900 {
			t.Errorf("%s: loss %v of %d examples, want %v of 900", path, loss, p.About().Examples, losses[0])
		}
	}
}

// example starts an example, and returns its initial parameters.
func example(t *testing.T, name string, args ...string) (p *program.Program, params []float32) {
	t.Helper()
	path := filepath.Join("../../examples/python", name)
	for _, f := range []string{path, "../../python/kintsugi.py"} { // so that `go test` knows what the result depends on
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	t.Setenv("PYTHONPATH", "../../python")
	if p, err = program.Start(t.Context(), program.Config{Command: append([]string{python, path}, args...), Slots: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	about := p.About()
	l, err := about.Layout()
	if err != nil {
		t.Fatal(err)
	}
	params = make([]float32, l.Values)
	if err := p.Initialise(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	return p, params
}

// clicks writes a thousand examples, of which those of one category are clicked on.
func clicks(t *testing.T, dir, separator, number string) string {
	var b strings.Builder
	if separator == "," {
		b.WriteString(number + "label")
		for i := range 13 {
			fmt.Fprintf(&b, ",I%d", i+1)
		}
		for i := range 26 {
			fmt.Fprintf(&b, ",C%d", i+1)
		}
		b.WriteString("\n")
	}
	for i := range 1000 {
		if number != "" {
			fmt.Fprintf(&b, "%d,", 10000+i)
		}
		fmt.Fprint(&b, min(1, i%4)^1)
		for j := range 13 {
			b.WriteString(separator)
			if (i+j)%5 > 0 {
				fmt.Fprint(&b, (i*j)%97-2)
			}
		}
		for j := range 26 {
			b.WriteString(separator)
			if (i+j)%7 > 0 {
				fmt.Fprintf(&b, "%08x", i%4+100*j)
			}
		}
		b.WriteString("\n")
	}
	return write(t, dir, "clicks", b.String())
}

// write writes a file, and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

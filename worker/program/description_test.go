package program_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

func TestDescriptionsOfNoModel(t *testing.T) {
	w := []kintsugi.Tensor{{Name: "w", Shape: []int{3}}}
	for _, c := range []struct {
		d    program.Description
		want string
	}{
		{program.Description{Name: "a/b", Tensors: w}, `its "name" is "a/b"`},
		{program.Description{Name: "", Tensors: w}, `its "name" is ""`},
		{program.Description{Name: strings.Repeat("a", 65), Tensors: w}, "64 at most"},
		{program.Description{Name: "net"}, `no "tensors"`},
		{program.Description{Name: "net", Tensors: w, Examples: -1}, "negative numbers: -1 examples"},
		{program.Description{Name: "net", Tensors: w, LearningRate: -1}, "a learning rate of -1"},
		{program.Description{Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{3, 0}}}}, "w"},
		{program.Description{Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: nil}}}, "w"},
		{program.Description{Name: "net", Tensors: append(w, w...)}, "w"},
	} {
		if err := c.d.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v; want %s", c.d, err, c.want)
		}
	}
	if err := about.Check(); err != nil {
		t.Error(err)
	}
}

func TestADescribedModelIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.described")
	initial := []float32{1, -2, 3.5, 0, 5, 6, 7, 8, 9, 10, 1e-30}
	var b bytes.Buffer
	if err := program.Write(&b, &about, initial); err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(b.Bytes())
	d, err := program.Read(path)
	if err != nil || d.Differs(&about) != nil || d.Name != about.Name || d.Batch != about.Batch || d.Evaluates != about.Evaluates {
		t.Fatalf("read %+v, %v", d, err)
	}
	for lo := range initial {
		for hi := lo; hi <= len(initial); hi++ {
			got := make([]float32, hi-lo)
			if err := program.ReadInitial(path, lo, got); err != nil || !slices.Equal(got, initial[lo:hi]) {
				t.Fatalf("parameters %d to %d are %v, %v", lo, hi, got, err)
			}
		}
	}
	all := make([]float32, len(initial))
	for _, beyond := range []int{-1, 1, len(initial)} {
		if err := program.ReadInitial(path, beyond, all); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Fatalf("parameters from %d on, beyond the last: %v", beyond, err)
		}
	}
	for i := range b.Len() { // cut short anywhere
		write(b.Bytes()[:i])
		if _, err := program.Read(path); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", i, b.Len(), err)
		}
	}
	for i := b.Len() - 4*len(initial); i < b.Len(); i++ { // another byte among the parameters
		x := slices.Clone(b.Bytes())
		x[i] ^= 0x10
		write(x)
		for lo := range initial { // wherever it is, and whichever parameters are read
			if err := program.ReadInitial(path, lo, all[:1]); !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Fatalf("byte %d is other: parameter %d: %v", i, lo, err)
			}
		}
	}
}

func TestWhatIsOtherInAModelIsNamed(t *testing.T) {
	a := kintsugi.Tensor{Name: "a", Shape: []int{2}}
	b := kintsugi.Tensor{Name: "b", Shape: []int{3}}
	wide := kintsugi.Tensor{Name: "b", Shape: []int{4}}
	was := &program.Description{Tensors: []kintsugi.Tensor{a, b}, Examples: 10}
	for _, c := range []struct {
		is   program.Description
		want string
	}{
		{program.Description{Tensors: []kintsugi.Tensor{a}, Examples: 10}, "there was a tensor b, and there is none now"},
		{program.Description{Tensors: []kintsugi.Tensor{a, b, a}, Examples: 10}, "there was no tensor a"},
		{program.Description{Tensors: []kintsugi.Tensor{a, wide}, Examples: 10}, "tensor 1 was b [3], and is b [4] now"},
		{program.Description{Tensors: []kintsugi.Tensor{a, b}, Examples: 11}, "there were 10 examples, and there are 11 now"},
	} {
		if err := was.Differs(&c.is); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v; want %s", c.is, err, c.want)
		}
	}
	if err := was.Differs(&program.Description{Name: "x", Tensors: []kintsugi.Tensor{a, b}, Examples: 10, Batch: 5}); err != nil {
		t.Error(err)
	}
}

// FuzzRead reads arbitrary bytes as a program's description of its model.
func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	d := &program.Description{Name: "net", Tensors: []kintsugi.Tensor{{Name: "w", Shape: []int{2, 1}}}, Examples: 5}
	if err := program.Write(&b, d, []float32{1, 2}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"kintsugi_program":1,"crc32c":0,"name":"net","tensors":[{"name":"w","shape":[4611686018427387904]}]}` + "\n"))
	path := filepath.Join(f.TempDir(), "described")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		d, err := program.Read(path)
		if err == nil { // the file has them all, so this is no more than its size
			err = program.ReadInitial(path, 0, make([]float32, d.Values()))
		}
		switch {
		case err != nil && !errors.Is(err, kintsugi.ErrCorrupt) && !errors.Is(err, kintsugi.ErrUsage):
			t.Fatal(err)
		}
	})
}

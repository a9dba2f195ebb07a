package export_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt/export"
)

// The readers below are written from the descriptions of the formats alone (safetensors' README,
// numpy.lib.format), and share no code with the writers.

// readSafetensors returns the tensors by name, and the metadata.
func readSafetensors(b []byte) (map[string]export.Tensor, map[string]string, error) {
	if len(b) < 8 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) || b[8] != '{' {
		return nil, nil, fmt.Errorf("header of %d bytes in a file of %d", n, len(b))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		return nil, nil, err
	}
	data := b[8+n:]
	metadata, tensors := map[string]string{}, map[string]export.Tensor{}
	covered := make([]bool, len(data)) // the format allows neither holes nor overlap
	for name, raw := range header {
		if name == "__metadata__" {
			if err := json.Unmarshal(raw, &metadata); err != nil {
				return nil, nil, err
			}
			continue
		}
		var e struct {
			DType   string   `json:"dtype"`
			Shape   []uint64 `json:"shape"`
			Offsets []int    `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			return nil, nil, err
		}
		count, t := uint64(1), export.Tensor{Name: name}
		for _, d := range e.Shape {
			count, t.Shape = count*d, append(t.Shape, int(d))
		}
		if e.DType != "F32" || len(e.Offsets) != 2 || uint64(e.Offsets[1]-e.Offsets[0]) != 4*count {
			return nil, nil, fmt.Errorf("%s: %s", name, raw)
		}
		for i := e.Offsets[0]; i < e.Offsets[1]; i++ {
			if covered[i] {
				return nil, nil, fmt.Errorf("%s overlaps", name)
			}
			covered[i] = true
		}
		t.Values = floats(data[e.Offsets[0]:e.Offsets[1]])
		tensors[name] = t
	}
	if slices.Contains(covered, false) {
		return nil, nil, errors.New("bytes that belong to no tensor")
	}
	return tensors, metadata, nil
}

func floats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
	}
	return x
}

var npyDict = regexp.MustCompile(`^\{'descr': '(.*?)', 'fortran_order': (True|False), 'shape': \((.*)\), \} *\n$`)

func readNPY(name string, b []byte) (export.Tensor, error) {
	t := export.Tensor{Name: name}
	if len(b) < 10 || string(b[:8]) != "\x93NUMPY\x01\x00" {
		return t, fmt.Errorf("begins with %q", b[:min(8, len(b))])
	}
	end := 10 + int(b[8]) + int(b[9])<<8
	dict := npyDict.FindSubmatch(b[10:end])
	if dict == nil || end%64 != 0 || string(dict[1]) != "<f4" || string(dict[2]) != "False" {
		return t, fmt.Errorf("header %q", b[:end])
	}
	n := 1
	for d := range strings.SplitSeq(strings.TrimSuffix(string(dict[3]), ","), ",") {
		if d == "" {
			continue // a scalar
		}
		v, err := strconv.Atoi(strings.TrimSpace(d))
		if err != nil {
			return t, err
		}
		n, t.Shape = n*v, append(t.Shape, v)
	}
	if len(t.Shape) == 1 && !strings.HasSuffix(string(dict[3]), ",") {
		return t, fmt.Errorf("(%s) is no tuple in Python", dict[3])
	}
	if t.Values = floats(b[end:]); len(t.Values) != n || (len(b)-end)%4 != 0 {
		return t, fmt.Errorf("%d bytes for %d values", len(b)-end, n)
	}
	return t, nil
}

func readNPZ(b []byte) (map[string]export.Tensor, map[string]string, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	tensors, metadata := map[string]export.Tensor{}, map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, nil, err
		}
		name, isArray := strings.CutSuffix(f.Name, ".npy")
		if !isArray {
			if err := json.Unmarshal(content, &metadata); err != nil {
				return nil, nil, err
			}
			continue
		}
		if tensors[name], err = readNPY(name, content); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return tensors, metadata, nil
}

var samples = []export.Tensor{
	{Name: "fc1.weight", Shape: []int{2, 3}, Values: []float32{1, -2, 3.5, 0, float32(math.Inf(1)), float32(math.NaN())}},
	{Name: "fc1.bias", Shape: []int{3}, Values: []float32{float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32}},
	{Name: `kernel "ü"/1`, Shape: []int{1, 1, 1, 1}, Values: []float32{7}},
	{Name: "long", Shape: []int{100_000}, Values: make([]float32, 100_000)},
}

func TestWhatIsExportedIsReadByOthers(t *testing.T) {
	metadata := map[string]string{"step": "120", "model": "lenet"}
	formats := map[string]struct {
		write func(io.Writer, []export.Tensor, map[string]string) error
		read  func([]byte) (map[string]export.Tensor, map[string]string, error)
	}{
		"safetensors": {export.Safetensors, readSafetensors},
		"npz":         {export.NPZ, readNPZ},
	}
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			var a, b bytes.Buffer
			if err := errors.Join(f.write(&a, samples, metadata), f.write(&b, samples, metadata)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Error("the same tensors give other bytes the second time")
			}
			got, said, err := f.read(a.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(samples) || said["step"] != "120" || said["model"] != "lenet" {
				t.Errorf("%d tensors, metadata %v", len(got), said)
			}
			for _, want := range samples {
				g := got[want.Name]
				same := slices.EqualFunc(g.Values, want.Values, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
				if !slices.Equal(g.Shape, want.Shape) || !same {
					t.Errorf("%s came back with shape %v and values that are equal: %t", want.Name, g.Shape, same)
				}
			}
		})
	}
}

func TestWhatReadersWouldRefuseIsNotExported(t *testing.T) {
	for what, tensors := range map[string][]export.Tensor{
		"twice":   {{Name: "a", Shape: []int{1}, Values: []float32{1}}, {Name: "a", Shape: []int{1}, Values: []float32{1}}},
		"no name": {{Shape: []int{1}, Values: []float32{1}}},
		"letters": {{Name: "\xff", Shape: []int{1}, Values: []float32{1}}},
		"shape":   {{Name: "a", Shape: []int{2}, Values: []float32{1}}},
	} {
		if err := export.Safetensors(io.Discard, tensors, nil); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", what, err)
		}
		if err := export.NPZ(io.Discard, tensors, nil); !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	reserved := []export.Tensor{{Name: "__metadata__", Shape: []int{1}, Values: []float32{1}}}
	if err := export.Safetensors(io.Discard, reserved, nil); !errors.Is(err, kintsugi.ErrUsage) {
		t.Errorf("a tensor with a reserved name: %v", err)
	}
}

// The metadata of a file are those that it was written with, and a damaged header is an error that
// says what is wrong with it.
func TestMetadataAreReadAgain(t *testing.T) {
	want := map[string]string{"step": "7", "test_loss": "0.25"}
	var b bytes.Buffer
	if err := export.Safetensors(&b, []export.Tensor{{Name: "w", Shape: []int{2, 3}, Values: make([]float32, 6)}}, want); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	if got, err := export.Metadata(bytes.NewReader(whole)); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	header := 8 + int(binary.LittleEndian.Uint64(whole))
	for n := range header {
		if got, err := export.Metadata(bytes.NewReader(whole[:n])); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("after %d of %d bytes: %v, %v", n, header, got, err)
		}
	}
	long := slices.Clone(whole)
	long[7] = 1
	noJSON := slices.Clone(whole)
	noJSON[8] = 'x'
	for name, damaged := range map[string][]byte{"longer than any header": long, "no JSON": noJSON} {
		if got, err := export.Metadata(bytes.NewReader(damaged)); !errors.Is(err, kintsugi.ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	b.Reset()
	if err := export.Safetensors(&b, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := export.Metadata(&b); err != nil || len(got) != 0 {
		t.Errorf("without metadata: %v, %v", got, err)
	}
}

// full takes so many bytes, and then refuses.
type full struct{ room int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	if f.room -= n; n < len(p) {
		return n, errFull
	}
	return n, nil
}

// A file that does not fit is an error, wherever the room ends.
func TestWhatDoesNotFitIsAnError(t *testing.T) {
	tensors := []export.Tensor{{Name: "w", Shape: []int{3, 5}, Values: make([]float32, 15)}, {Name: "b", Shape: []int{3}, Values: make([]float32, 3)}}
	metadata := map[string]string{"step": "7"}
	for name, write := range map[string]func(io.Writer, []export.Tensor, map[string]string) error{"safetensors": export.Safetensors, "npz": export.NPZ} {
		var whole bytes.Buffer
		if err := write(&whole, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		for room := range whole.Len() {
			if err := write(&full{room}, tensors, metadata); !errors.Is(err, errFull) {
				t.Fatalf("%s: a file of %d bytes is written to room for %d: %v", name, whole.Len(), room, err)
			}
		}
		if err := write(&full{whole.Len()}, tensors, metadata); err != nil {
			t.Errorf("%s: a file of %d bytes does not fit into as many: %v", name, whole.Len(), err)
		}
	}
}

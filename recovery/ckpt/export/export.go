// Package export writes tensors in formats that other programs read: safetensors, and NumPy's NPZ.
// Begin with Safetensors and NPZ. Values are uncompressed little-endian float32, and the same input
// gives the same bytes. docs/formats.md says what the files contain.
package export

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Tensor is a tensor to export: as many values as the product of its shape, row by row. The values
// are read and not kept.
type Tensor struct {
	Name   string
	Shape  []int
	Values []float32
}

// check returns an error for tensors that a reader would refuse or confuse.
func check(tensors []Tensor, reserved string) error {
	seen := map[string]bool{}
	for _, t := range tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		switch {
		case t.Name == "" || !utf8.ValidString(t.Name) || t.Name == reserved:
			return fmt.Errorf("%w: export: %q cannot be the name of a tensor", kintsugi.ErrUsage, t.Name)
		case seen[t.Name]:
			return fmt.Errorf("%w: export: two tensors have the name %q", kintsugi.ErrUsage, t.Name)
		case n != len(t.Values):
			return fmt.Errorf("%w: export: tensor %s has shape %v and %d values", kintsugi.ErrUsage, t.Name, t.Shape, len(t.Values))
		}
		seen[t.Name] = true
	}
	return nil
}

// Safetensors writes a safetensors file: the length of the header, the header in JSON, and the
// values of all tensors in order. metadata may be nil.
func Safetensors(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	const reserved = "__metadata__"
	if err := check(tensors, reserved); err != nil {
		return err
	}
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := map[string]any{}
	if len(metadata) > 0 {
		header[reserved] = metadata
	}
	at := 0
	for _, t := range tensors {
		end := at + 4*len(t.Values)
		header[t.Name] = entry{"F32", append([]int{}, t.Shape...), [2]int{at, end}}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	for len(text)%8 != 0 { // so that the values are aligned
		text = append(text, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(kernels.Bytes(t.Values)); err != nil {
			return err
		}
	}
	return nil
}

// headerMost is more than the header of any model takes, in bytes: a longer one is no safetensors file.
const headerMost = 100 << 20

// Metadata returns the metadata of a safetensors file, of which it reads only the header. The error
// wraps kintsugi.ErrCorrupt if it is no such file.
func Metadata(r io.Reader) (map[string]string, error) {
	var size [8]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("%w: safetensors: no length of a header: %w", kintsugi.ErrCorrupt, err)
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > headerMost {
		return nil, fmt.Errorf("%w: safetensors: a header of %d bytes", kintsugi.ErrCorrupt, n)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(n))) // grows with what is there, not with what n promises
	if err != nil {
		return nil, fmt.Errorf("safetensors: read the header: %w", err)
	}
	if uint64(len(text)) < n {
		return nil, fmt.Errorf("%w: safetensors: the header ends after %d of %d bytes", kintsugi.ErrCorrupt, len(text), n)
	}
	var header struct {
		Metadata map[string]string `json:"__metadata__"`
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, fmt.Errorf("%w: safetensors: the header: %w", kintsugi.ErrCorrupt, err)
	}
	return header.Metadata, nil
}

// NPZ writes a zip archive that numpy.load reads: NAME.npy for each tensor, and metadata in
// metadata.json.
func NPZ(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	if err := check(tensors, ""); err != nil {
		return err
	}
	z := zip.NewWriter(w)
	for _, t := range tensors {
		f, err := z.CreateHeader(&zip.FileHeader{Name: t.Name + ".npy", Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err := f.Write(npyHeader(t.Shape)); err != nil {
			return err
		}
		if _, err := f.Write(kernels.Bytes(t.Values)); err != nil {
			return err
		}
	}
	if len(metadata) > 0 {
		text, err := json.Marshal(metadata)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		f, err := z.CreateHeader(&zip.FileHeader{Name: "metadata.json", Method: zip.Store})
		if err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
	return z.Close()
}

// npyHeader returns what comes before the values in an NPY file of version 1.0. Its length is a
// multiple of 64.
func npyHeader(shape []int) []byte {
	var b bytes.Buffer
	b.WriteString("{'descr': '<f4', 'fortran_order': False, 'shape': (")
	for _, d := range shape {
		fmt.Fprintf(&b, "%d,", d)
	}
	b.WriteString("), }")
	const before = 10
	b.WriteString(strings.Repeat(" ", (64-(before+b.Len()+1)%64)%64) + "\n")
	return slices.Concat([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(b.Len())), b.Bytes())
}

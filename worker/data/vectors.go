package data

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// Vectors is a list of labelled vectors of one length.
//
// Invariant: len(X) == len(Y)*Features, and each label is below Classes.
type Vectors struct {
	Features, Classes int
	X                 []float32 // [Len, Features], row-major
	Y                 []int32
}

// Len returns the number of vectors.
func (v *Vectors) Len() int { return len(v.Y) }

// Values returns the number of features.
func (v *Vectors) Values() int { return v.Features }

// Labels returns 1.
func (v *Vectors) Labels() int { return 1 }

// Fill writes the vectors at indices to x, [len(indices), Features], unchanged, and their classes
// to y. For the rest see [Examples].
func (v *Vectors) Fill(x []float32, y []int32, indices []int) {
	n := v.Features
	if len(x) < len(indices)*n || len(y) < len(indices) {
		panic(fmt.Sprintf("data: fill %d vectors of %d values into %d values and %d labels", len(indices), n, len(x), len(y)))
	}
	for i, k := range indices {
		copy(x[i*n:(i+1)*n], v.X[k*n:])
		y[i] = v.Y[k]
	}
}

// sparse holds vectors as read from a file: only the features that are not 0.
type sparse struct {
	class  []int // as in the file
	start  []int // by vector, with an end element
	index  []int32
	value  []float32
	widest int // largest number of features
	least  int // smallest class
	most   int
}

// ReadLIBSVM reads a file of labelled vectors in the format of LIBSVM. Each line has a class, which
// is a whole number from 0, and index:value for the features that are not 0, with indices ascending
// from 1. The smallest class in the file becomes class 0 if it is 1. The vectors have as many
// features as the largest index, or features if that is more. The file may be compressed with gzip.
// If a line is wrong, the error wraps kintsugi.ErrCorrupt and names the line.
func ReadLIBSVM(path string, features int) (*Vectors, error) {
	s, err := readSparse(path)
	if err != nil {
		return nil, err
	}
	v, err := s.vectors(max(features, s.widest), min(s.least, 1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

func readSparse(path string) (*sparse, error) {
	s := &sparse{start: []int{0}, least: maxID}
	return s, readLines(path, s.parse)
}

func (s *sparse) parse(line []byte) error {
	fields := bytes.Fields(line)
	if len(fields) == 0 {
		return corrupt("a line without a class")
	}
	class, ok := number(fields[0], maxCount)
	if !ok {
		return corrupt("the class %.20q is not a whole number from 0, below %d", fields[0], maxCount)
	}
	last := 0
	for _, f := range fields[1:] {
		a, b, _ := bytes.Cut(f, []byte{':'})
		index, ok := number(a, maxID)
		value, err := strconv.ParseFloat(string(b), 32)
		if !ok || index <= last || err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
			return corrupt("%.40q is not index:value with an index above %d and a number", f, last)
		}
		last = index
		s.index, s.value = append(s.index, int32(index-1)), append(s.value, float32(value))
	}
	s.class = append(s.class, class)
	s.start = append(s.start, len(s.index))
	s.widest, s.least, s.most = max(s.widest, last), min(s.least, class), max(s.most, class)
	return nil
}

// vectors returns the vectors with the given number of features. Class base of the file becomes
// class 0.
func (s *sparse) vectors(features, base int) (*Vectors, error) {
	if n := len(s.class); features < 1 || n > maxDense/features {
		return nil, corrupt("%d vectors of %d features: they must have one, and hold at most %d values", n, features, maxDense)
	}
	v := &Vectors{Features: features, Classes: s.most - base + 1, X: make([]float32, len(s.class)*features)}
	for i, class := range s.class {
		v.Y = append(v.Y, int32(class-base))
		for j := s.start[i]; j < s.start[i+1]; j++ {
			v.X[i*features+int(s.index[j])] = s.value[j]
		}
	}
	return v, nil
}

// newVectorSet makes a set from two halves.
func newVectorSet(name string, train, test *Vectors) *Set {
	classes := max(train.Classes, test.Classes)
	train.Classes, test.Classes = classes, classes
	return &Set{Name: name, Train: train, Test: test, Shape: [3]int{train.Features, 1, 1}, Classes: classes}
}

func (s *source) openVectors(dir string) (*Set, error) {
	paths, err := s.within(dir, s.files[0].name, s.files[1].name)
	if err != nil {
		return nil, err
	}
	var halves [2]*sparse
	for i, p := range paths {
		if halves[i], err = readSparse(p); err != nil {
			return nil, err
		}
	}
	features, base := max(halves[0].widest, halves[1].widest), min(halves[0].least, halves[1].least, 1)
	train, err := halves[0].vectors(features, base)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", paths[0], err)
	}
	test, err := halves[1].vectors(features, base)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", paths[1], err)
	}
	return newVectorSet(s.info.Name, train, test), nil
}

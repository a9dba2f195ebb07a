package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Images is a list of labelled images of one shape.
//
// Invariant: len(Pixels) == N*Channels*Height*Width, len(Labels) == N, and each label is below Classes.
type Images struct {
	N, Channels, Height, Width int

	// Classes is the number of classes of the whole set. The training half and the test half have
	// the same number, even if one of them lacks a class.
	Classes int

	Pixels []byte  // [N, Channels, Height, Width], row-major; 0 is background
	Labels []uint8 // [N]
}

// Values returns the number of pixels of one image, over all channels.
func (im *Images) Values() int { return im.Channels * im.Height * im.Width }

// Shape returns the shape of one image: channels, height, width.
func (im *Images) Shape() [3]int { return [3]int{im.Channels, im.Height, im.Width} }

// Fill writes the images at indices to x, normalised to (pixel/255 - mean) / std, and their labels
// to y. x is [len(indices), Channels, Height, Width], row-major. Both slices may be longer; the
// rest of them is not changed. An index may occur more than once.
//
// Fill allocates nothing and keeps no slice. It is safe for concurrent use as long as nobody writes
// to im. Its result has the same bits on every machine. It panics if x or y is too short or an
// index is outside [0, N).
func (im *Images) Fill(x []float32, y []int32, indices []int, mean, std float32) {
	size := im.Values()
	checkFill(x, y, indices, size, im.N)
	t := newTable(mean, std)
	for i, k := range indices {
		t.expand(x[i*size:(i+1)*size], im.Pixels[k*size:(k+1)*size])
		y[i] = int32(im.Labels[k])
	}
}

// checkFill panics if Fill cannot write images of so many values, of n that there are.
func checkFill(x []float32, y []int32, indices []int, values, n int) {
	if len(x) < len(indices)*values || len(y) < len(indices) {
		panic(fmt.Sprintf("data: fill %d images of %d values into %d values and %d labels", len(indices), values, len(x), len(y)))
	}
	for _, k := range indices {
		if k < 0 || k >= n {
			panic(fmt.Sprintf("data: image %d of %d", k, n))
		}
	}
}

// table has the normalised value of each pixel. A byte has 256 values, so a table replaces a
// division for each pixel. Its entries have the same bits that these divisions would give.
type table [256]float32

func newTable(mean, std float32) (t table) {
	for p := range t {
		t[p] = (float32(p)/255 - mean) / std
	}
	return t
}

// expand writes the normalised pixels of src to dst, which is as long.
func (t *table) expand(dst []float32, src []byte) {
	// Read eight pixels at a time: a loop over single bytes takes twice as long.
	for ; len(src) >= 8 && len(dst) >= 8; src, dst = src[8:], dst[8:] {
		p := binary.LittleEndian.Uint64(src)
		dst[0], dst[1], dst[2], dst[3] = t[byte(p)], t[byte(p>>8)], t[byte(p>>16)], t[byte(p>>24)]
		dst[4], dst[5], dst[6], dst[7] = t[byte(p>>32)], t[byte(p>>40)], t[byte(p>>48)], t[byte(p>>56)]
	}
	for j, p := range src {
		dst[j] = t[p]
	}
}

// Head returns the first n images, or all of them if there are fewer. The result shares memory with im.
func (im *Images) Head(n int) *Images {
	n = max(0, min(n, im.N))
	head := *im
	head.N, head.Pixels, head.Labels = n, im.Pixels[:n*im.Values()], im.Labels[:n]
	return &head
}

// split returns the first n images and the rest. Both share memory with im.
func (im *Images) split(n int) (first, rest *Images) {
	first = im.Head(n)
	after := *im
	after.N, after.Pixels, after.Labels = im.N-first.N, im.Pixels[len(first.Pixels):], im.Labels[first.N:]
	return first, &after
}

// ImageSet is a named set of images.
type ImageSet struct {
	Name  string
	Train *Images
	Test  *Images

	// Mean and Std are the mean and the standard deviation of the training pixels / 255. They are
	// the arguments of [Images.Fill] for both halves. Std is 1 if all training pixels are equal.
	Mean, Std float32
}

// newImageSet combines two halves of one shape, and computes Mean and Std of the training half.
func newImageSet(name string, train, test *Images) *ImageSet {
	classes := max(train.Classes, test.Classes)
	train.Classes, test.Classes = classes, classes
	mean, std := moments(train.Pixels)
	return &ImageSet{Name: name, Train: train, Test: test, Mean: mean, Std: std}
}

// Set returns the set as examples with normalised pixels.
func (s *ImageSet) Set() *Set {
	return &Set{
		Name: s.Name, Shape: s.Train.Shape(), Classes: s.Train.Classes,
		Train: normalised{s.Train, s.Mean, s.Std}, Test: normalised{s.Test, s.Mean, s.Std},
	}
}

// normalised implements Examples for images.
type normalised struct {
	*Images
	mean, std float32
}

func (n normalised) Len() int    { return n.N }
func (n normalised) Labels() int { return 1 }

func (n normalised) Fill(x []float32, y []int32, indices []int) {
	n.Images.Fill(x, y, indices, n.mean, n.std)
}

// moments returns the mean and the standard deviation of pixels / 255. It sums over the 256 values
// of a byte, so the order of the pixels cannot change a bit of the result.
func moments(pixels []byte) (mean, std float32) {
	if len(pixels) == 0 {
		return 0, 1
	}
	var count [256]uint64
	for _, p := range pixels {
		count[p]++
	}
	var sum uint64
	for p, c := range count {
		sum += uint64(p) * c
	}
	n := float64(len(pixels))
	m := float64(sum) / (255 * n)
	var squares float64
	for p, c := range count {
		d := float64(p)/255 - m
		squares += float64(float64(d*d) * float64(c))
	}
	if squares == 0 {
		return float32(m), 1
	}
	return float32(m), float32(math.Sqrt(squares / n))
}

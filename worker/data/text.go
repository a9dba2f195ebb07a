package data

import (
	"fmt"
	"io"
)

// Text is a list of windows of a text. Each character is labelled with the character that follows
// it. A character is a byte, and its token is its index in the alphabet.
//
// Invariant: each token is below Classes, and there are more than Window of them.
type Text struct {
	Tokens  []uint8
	Classes int // number of characters in the alphabet
	Window  int // number of characters in an example
	Stride  int // distance between the beginnings of two examples
}

// Window is the number of characters of an example of the text sets that [Open] returns.
const Window = 64

// Len returns the number of windows. The last window ends at least one character before the end of
// the text.
func (t *Text) Len() int { return (len(t.Tokens)-1-t.Window)/t.Stride + 1 }

// Values returns the number of characters of a window.
func (t *Text) Values() int { return t.Window }

// Labels returns the same number as Values: each character has a successor.
func (t *Text) Labels() int { return t.Window }

// Fill writes the windows at indices to x, and for each character the character that follows to y.
// Both are [len(indices), Window], row-major. float32 holds tokens exactly. For the rest see
// [Examples].
func (t *Text) Fill(x []float32, y []int32, indices []int) {
	n := t.Window
	if len(x) < len(indices)*n || len(y) < len(indices)*n {
		panic(fmt.Sprintf("data: fill %d windows of %d characters into %d values and %d labels", len(indices), n, len(x), len(y)))
	}
	for i, k := range indices {
		if k < 0 || k >= t.Len() {
			panic(fmt.Sprintf("data: window %d of %d", k, t.Len()))
		}
		from := t.Tokens[k*t.Stride:][:n+1]
		x, y := x[i*n:][:n], y[i*n:][:n]
		for j := range x {
			x[j], y[j] = float32(from[j]), int32(from[j+1])
		}
	}
}

// newTextSet makes a set from a text. The first nine tenths are the training half, in windows that
// begin at each character. The rest is the test half, in windows that do not overlap. The alphabet
// consists of the bytes of the training half, ascending; other bytes cannot be predicted and are
// left out of the test half.
func newTextSet(name string, text []byte) (*Set, error) {
	cut := len(text) / 10 * 9
	var place [256]int
	for _, c := range text[:cut] {
		place[c] = 1
	}
	classes := 0
	for c := range place {
		if place[c]--; place[c] == 0 {
			place[c] = classes
			classes++
		}
	}
	tokens := func(part []byte) []uint8 {
		list := make([]uint8, 0, len(part))
		for _, c := range part {
			if place[c] >= 0 {
				list = append(list, uint8(place[c]))
			}
		}
		return list
	}
	train, test := tokens(text[:cut]), tokens(text[cut:])
	if len(test) <= Window || classes < 2 {
		return nil, corrupt("a text of %d bytes, %d different, is too short: a tenth of it is to be tested on, in windows of %d", len(text), classes, Window)
	}
	return &Set{
		Name: name, Shape: [3]int{1, 1, Window}, Classes: classes, Sequence: true,
		Train: &Text{Tokens: train, Classes: classes, Window: Window, Stride: 1},
		Test:  &Text{Tokens: test, Classes: classes, Window: Window, Stride: Window},
	}, nil
}

// openText reads a text set, which has one file.
func (s *source) openText(dir string) (*Set, error) {
	paths, err := s.within(dir, s.files[0].name)
	if err != nil {
		return nil, err
	}
	f, _, err := openFile(paths[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", paths[0], err)
	}
	set, err := newTextSet(s.info.Name, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", paths[0], err)
	}
	return set, nil
}

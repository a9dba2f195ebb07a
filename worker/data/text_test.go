package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// TestGeneratedTextIsFrozen: losses in documents and checkpoints of runs refer to these bytes.
func TestGeneratedTextIsFrozen(t *testing.T) {
	text, _ := generateText(TextSeed, TextBytes)
	sum := sha256.Sum256(text)
	if got, want := hex.EncodeToString(sum[:]), "96cb51917c39798443735eb0587d92836be9f8c40c7f13b4856faa06df24ce43"; got != want {
		t.Errorf("the text has SHA-256 %s, want %s", got, want)
	}
	if short, _ := generateText(TextSeed, 1000); !bytes.Equal(short, text[:1000]) {
		t.Error("a shorter text is not a prefix")
	}
	if other, _ := generateText(TextSeed+1, 1000); bytes.Equal(other, text[:1000]) {
		t.Error("another seed gives the same text")
	}
}

// TestTheEntropyOfTheGeneratedTextIsAsStated checks the number in the documents: the loss per
// character of the best possible model. It also shows that counting a few characters back does not
// reach it, since the grammar is longer.
func TestTheEntropyOfTheGeneratedTextIsAsStated(t *testing.T) {
	text, bits := generateText(TextSeed, TextBytes)
	if got := float64(bits) * math.Ln2 / float64(len(text)); math.Abs(got-0.421) > 0.001 {
		t.Errorf("the entropy is %.4f nats a character, stated is 0.421", got)
	}
	if best := conditional(text, 3); best < 0.5 {
		t.Errorf("three characters back already bring a model to %.3f nats", best)
	}
}

// conditional returns the entropy of a character, given the characters before it, as counted in
// text.
func conditional(text []byte, order int) float64 {
	contexts, pairs := map[string]float64{}, map[string]float64{}
	for i := order; i < len(text); i++ {
		contexts[string(text[i-order:i])]++
		pairs[string(text[i-order:i+1])]++
	}
	sum := 0.0
	for pair, n := range pairs {
		sum -= n * math.Log(n/contexts[pair[:order]])
	}
	return sum / float64(len(text)-order)
}

func TestWindowsAreTheTextAndWhatFollows(t *testing.T) {
	text := bytes.Repeat([]byte("to be, or not to be; "), 100)
	s, err := newTextSet("hamlet", slices.Concat(text, []byte("QZ")))
	if err != nil {
		t.Fatal(err)
	}
	const alphabet = " ,;benort" // in ascending order; Q and Z are only in the test part
	if s.Classes != len(alphabet) || !s.Sequence || s.Shape != [3]int{1, 1, Window} {
		t.Errorf("%d characters, sequence %v, shape %v", s.Classes, s.Sequence, s.Shape)
	}
	cut := (len(text) + 2) / 10 * 9
	for name, half := range map[string]struct {
		e      Examples
		text   []byte
		stride int
		n      int
	}{
		"train": {s.Train, text[:cut], 1, cut - Window},
		"test":  {s.Test, text[cut:], Window, (len(text) - cut - 1) / Window},
	} {
		if half.e.Len() != half.n || half.e.Values() != Window || half.e.Labels() != Window {
			t.Fatalf("%s: %d windows of %d characters and %d labels, want %d", name, half.e.Len(), half.e.Values(), half.e.Labels(), half.n)
		}
		indices := []int{half.n - 1, 0, half.n / 2}
		x, y := make([]float32, 3*Window+1), make([]int32, 3*Window+1)
		half.e.Fill(x, y, indices)
		for i, k := range indices {
			for j := range Window {
				at := k*half.stride + j
				if got, next := alphabet[int(x[i*Window+j])], alphabet[y[i*Window+j]]; got != half.text[at] || next != half.text[at+1] {
					t.Fatalf("%s, window %d, character %d is %q before %q, want %q before %q", name, k, j, got, next, half.text[at], half.text[at+1])
				}
			}
		}
		if x[3*Window] != 0 || y[3*Window] != 0 {
			t.Errorf("%s: values after the batch were written to", name)
		}
		if n := testing.AllocsPerRun(10, func() { half.e.Fill(x, y, indices) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestTextSetsAreOpenedAndRefused(t *testing.T) {
	long := bytes.Repeat([]byte("all's well that ends well. "), 40)
	for _, c := range []struct {
		name, folder string
		content      []byte
		want         error
		says         string
	}{
		{"in its folder", "tinyshakespeare", long, nil, ""},
		{"in the folder itself", "", long, nil, ""},
		{"too short", "", long[:300], kintsugi.ErrCorrupt, "too short"},
		{"one letter", "", bytes.Repeat([]byte("a"), 2000), kintsugi.ErrCorrupt, "too short"},
		{"empty", "", nil, kintsugi.ErrCorrupt, "too short"},
	} {
		dir := t.TempDir()
		write(t, c.content, dir, c.folder, "input.txt")
		s, err := Open("shakespeare", dir)
		if c.want == nil {
			if err != nil || s.Name != "shakespeare" || s.Train.Len() != len(long)/10*9-Window {
				t.Errorf("%s: %v, %v", c.name, s, err)
			}
		} else if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	for _, dir := range []string{"", t.TempDir()} {
		if _, err := Open("shakespeare", dir); !errors.Is(err, kintsugi.ErrUsage) || !strings.Contains(err.Error(), "kintsugi data fetch shakespeare") {
			t.Errorf("in %q: %v, want a usage error that says how to come by the file", dir, err)
		}
	}
}

// FuzzTextSet: any file is refused, or every window is filled with tokens of the alphabet.
func FuzzTextSet(f *testing.F) {
	f.Add([]byte(""))
	f.Add(bytes.Repeat([]byte("ab"), 330))
	f.Add(append(bytes.Repeat([]byte("xyz"), 300), bytes.Repeat([]byte{0, 255, 'x'}, 100)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := newTextSet("fuzz", text)
		if err != nil {
			if !errors.Is(err, kintsugi.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
			return
		}
		x, y := make([]float32, Window), make([]int32, Window)
		for _, half := range []Examples{s.Train, s.Test} {
			for k := range half.Len() {
				half.Fill(x, y, []int{k})
				for j := range x {
					if x[j] < 0 || int(x[j]) >= s.Classes || y[j] < 0 || int(y[j]) >= s.Classes {
						t.Fatalf("window %d, character %d: token %v before %d of %d", k, j, x[j], y[j], s.Classes)
					}
				}
			}
		}
	})
}

func TestThePublishedPlaysReadAsPublished(t *testing.T) {
	dir := os.Getenv("KINTSUGI_DATA")
	if dir == "" {
		t.Skip("set KINTSUGI_DATA to the folder that holds tinyshakespeare (kintsugi data fetch)")
	}
	if err := Verify("shakespeare", dir); err != nil {
		t.Error(err)
	}
	s, err := Open("shakespeare", dir)
	if err != nil {
		t.Fatal(err)
	}
	if s.Classes != 65 || s.Train.Len() != 1003851-Window || s.Test.Len() != 111542/Window {
		t.Errorf("%d characters, %d and %d windows", s.Classes, s.Train.Len(), s.Test.Len())
	}
}

func ExampleOpen() {
	s, err := Open("text", "")
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Train.Len(), s.Test.Len(), s.Classes)
	text, _ := generateText(TextSeed, 180)
	fmt.Println(string(text))
	// Output:
	// 899936 1562 28
	// this distant garden calls these islands! some millers welcome this hollow river behind the winter; seven quiet bakers welcome many millers; a gentle lantern mends many kings.
	// these
}

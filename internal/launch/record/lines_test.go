package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// Lines are returned in the order of the file, whichever is parsed first, and each that cannot be
// read is counted once. A loop that splits the text says what the result must be.
func TestLinesAreReadInOrder(t *testing.T) {
	race.Skip(t)
	seeds := uint64(20)
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 6))
		var text bytes.Buffer
		for i := range rng.IntN(20_000) {
			switch rng.IntN(50) {
			case 0:
				text.WriteString("{\"kind\":\"step\",\"st\n")
			case 1:
				text.WriteString("\n")
			case 2:
				text.WriteString(`{"kind":"of a later version"}` + "\n")
			case 3:
				fmt.Fprintf(&text, `{"kind":"note","seconds":%d,"text":"%s"}`+"\n", i, strings.Repeat("n", rng.IntN(5000)))
			default:
				fmt.Fprintf(&text, `{"kind":"step","seconds":%d,"line":1,"step":%d,"counted":[0,1]}`+"\n", i, i+1)
			}
		}
		if rng.IntN(2) == 0 {
			text.WriteString(strings.Repeat("0", maxLine+1) + "\n")
		}
		if rng.IntN(2) == 0 {
			text.WriteString(`{"kind":"step","step":1}`) // the file ends without a newline
		}
		want, skipped := &Run{account: &Account{}}, 0
		for line := range bytes.Lines(text.Bytes()) {
			e, err := parseEvent(bytes.TrimSpace(line))
			if err != nil || !bytes.HasSuffix(line, []byte("\n")) {
				skipped++
				continue
			}
			if e != nil {
				want.add(e)
			}
		}
		steps, notes, whole := len(want.Steps), len(want.Notes), int64(bytes.LastIndexByte(text.Bytes(), '\n')+1)
		got := &Run{account: &Account{}}
		must(t, got.readEvents(iotest.HalfReader(&text)))
		if got.Skipped != skipped || got.whole != whole || len(got.Steps) != steps || len(got.Notes) != notes {
			t.Fatalf("seed %d: %d steps and %d notes, %d lines skipped; want %d, %d and %d", seed, len(got.Steps), len(got.Notes), got.Skipped, steps, notes, skipped)
		}
		for i, s := range got.Steps {
			if s.Step != want.Steps[i].Step {
				t.Fatalf("seed %d: step %d is read where step %d stands", seed, s.Step, want.Steps[i].Step)
			}
		}
	}
}

// A reader that finds a format of a later version, or a file that cannot be read, leaves no
// goroutine behind.
func TestReadingEndsWithAllItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		step := []byte(`{"kind":"step","seconds":1,"line":1,"step":1}` + "\n")
		later := append([]byte(`{"kind":"run","format":99}`+"\n"), bytes.Repeat(step, 1<<16)...)
		run := &Run{account: &Account{}}
		if err := run.readEvents(bytes.NewReader(later)); !errors.Is(err, kintsugi.ErrOtherModel) || len(run.Steps) > 0 {
			t.Errorf("a format of a later version: %v, and %d steps", err, len(run.Steps))
		}
		broken := errors.New("the disk is broken")
		run = &Run{account: &Account{}}
		if err := run.readEvents(io.MultiReader(bytes.NewReader(bytes.Repeat(step, 1<<14)), iotest.ErrReader(broken))); !errors.Is(err, broken) || len(run.Steps) != 1<<14 {
			t.Errorf("a file that ends with an error: %v, and %d steps", err, len(run.Steps))
		}
	})
}

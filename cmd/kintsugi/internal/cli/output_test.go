package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// line writes a line and returns how long that took.
func line(t *testing.T, o *Output, i int) time.Duration {
	t.Helper()
	begin := time.Now()
	text := fmt.Sprintln("line", i)
	if n, err := o.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	return time.Since(begin)
}

// gate passes on what is written once it is open.
type gate struct {
	open chan struct{}
	out  bytes.Buffer
}

func (g *gate) Write(text []byte) (int, error) {
	<-g.open
	return g.out.Write(text)
}

// Whatever is written comes out in its order, and if not all of it, then with the number of lines
// that are missing. Nobody waits for long.
func TestNobodyWaitsForTheReaderOfTheOutput(t *testing.T) {
	for _, n := range []int{1, 2, 100, holds + 1, holds + 2, 5 * holds} {
		synctest.Test(t, func(t *testing.T) {
			g := &gate{open: make(chan struct{})}
			o := NewOutput(g)
			defer close(o.queue)
			for i := range n {
				if d := line(t, o, i); i == 0 && d != waitsFor || i > 0 && d != 0 {
					t.Fatalf("line %d took %v", i, d)
				}
			}
			if err := o.Flush(time.Second); err == nil {
				t.Fatal("it was flushed, and nobody has read it")
			}
			close(g.open)
			if err := o.Flush(time.Second); err != nil {
				t.Fatal(err)
			}
			line(t, o, n)            // as if nothing had happened: it is there at once
			taken := min(n, holds+1) // the first one is on its way
			var want strings.Builder
			for i := range taken {
				fmt.Fprintln(&want, "line", i)
			}
			if n > taken {
				fmt.Fprintf(&want, "kintsugi: %d lines are missing here: nobody read them in time\n", n-taken)
			}
			fmt.Fprintln(&want, "line", n)
			if g.out.String() != want.String() {
				t.Errorf("%d lines: %.300s…", n, g.out.String())
			}
		})
	}
}

// A reader that is there has each line before the writer goes on, so none is lost if the process
// dies.
func TestALineIsThereWhenItsWriteReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		o := NewOutput(&out)
		defer close(o.queue)
		for i := range 100 {
			line(t, o, i)
			if !strings.HasSuffix(out.String(), fmt.Sprintln("line", i)) {
				t.Fatalf("line %d is not there", i)
			}
		}
	})
}

func TestNothingIsFlushedAtOnce(t *testing.T) {
	o := NewOutput(closed{})
	defer close(o.queue)
	if err := o.Flush(time.Minute); err != nil {
		t.Error(err)
	}
}

type closed struct{ error }

func (c closed) Write([]byte) (int, error) { return 0, c.error }

func TestAnOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	full := errors.New("no space left")
	o := NewOutput(closed{full})
	defer close(o.queue)
	if _, err := o.Write([]byte("x\n")); !errors.Is(err, full) {
		t.Error(err)
	}
}

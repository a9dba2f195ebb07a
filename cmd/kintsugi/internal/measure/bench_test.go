package measure

import (
	"fmt"
	"testing"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A row that lacks figures has a cell for each column, and Go benchmarks of those that are known.
func TestFiguresThatAreNotKnownAreLeftOut(t *testing.T) {
	for line, want := range map[string]string{"a\t\tb": "a\t–\tb\t–", "a\tb\tc\td": "a\tb\tc\td"} {
		if got := filled(line, 4); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
	unknown := fmt.Sprintf("BenchmarkX 3 %.2f steps/s 1.5 ratio %+.2f points", record.Unknown(), record.Unknown())
	for line, want := range map[string]string{
		unknown:                  "BenchmarkX 3 1.5 ratio",
		"BenchmarkX 3 2 steps/s": "BenchmarkX 3 2 steps/s",
		"BenchmarkX":             "BenchmarkX",
	} {
		if got := knownFigures(line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

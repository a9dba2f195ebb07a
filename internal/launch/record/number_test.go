package record

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// A number that was not measured is a dash in texts and null in JSON. Others are as any float64.
func TestANumberThatIsNotKnownIsADash(t *testing.T) {
	for _, n := range []float64{0, -1.25, 1e21, 123456.789} {
		for _, format := range []string{"%v", "%g", "%.2f", "%+.3f", "%8.1f|", "%-8.1f|", "%.0f %%", "%e"} {
			if got, want := fmt.Sprintf(format, Number(n)), fmt.Sprintf(format, n); got != want {
				t.Errorf("%s of %v is %q, want %q", format, n, got, want)
			}
		}
	}
	for _, n := range []Number{Unknown(), Number(math.Inf(1)), Number(math.Inf(-1))} {
		text, err := json.Marshal(n)
		if got := fmt.Sprintf("%.2f ± %+.1f s, %v", n, n, n); got != "– ± – s, –" || string(text) != "null" || err != nil {
			t.Errorf("one that is not known is %q, and %s in JSON, %v", got, text, err)
		}
	}
}

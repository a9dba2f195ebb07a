package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Where all figures are known, it is the JSON of the standard library, for each kind of field that
// rows have.
func TestJSONIsThatOfTheLibraryWhereAllIsKnown(t *testing.T) {
	type inner struct {
		X    float64 `json:"x"`
		Also []int   `json:"also,omitempty"`
	}
	type Outer struct { // encoding/json writes an embedded pointer only if its type is exported
		Z float64 `json:"z"`
	}
	type Other struct{ Y int }
	type row struct {
		inner
		*Outer
		*Other
		Name    string            `json:"name"`
		Figures []float64         `json:"figures"`
		Numbers []record.Number   `json:"numbers"`
		Ratio   float64           `json:"ratio,omitempty"`
		Nothing []string          `json:"nothing"`
		Paper   *inner            `json:"paper,omitempty"`
		Bound   *inner            `json:"bound"`
		Rows    []inner           `json:"rows"`
		By      map[string]uint64 `json:"by"`
		When    time.Time         `json:"when"`
		Left    int               `json:"-"`
		Took    time.Duration
		OK      bool `json:"ok"`
		hidden  float64
	}
	rows := []row{
		{Name: "a \"word\" & <another>\n", inner: inner{X: 1e-9}, Outer: &Outer{Z: 12}, Figures: []float64{1, 0.5, 1e21}, Numbers: []record.Number{2}, Paper: &inner{X: 3}, Left: 4,
			Rows: []inner{{X: 5, Also: []int{6}}, {}}, By: map[string]uint64{"b": 1, "a": 2}, When: time.Unix(7, 8).UTC(), Took: 9, OK: true, hidden: 10},
		{Ratio: 11, Figures: []float64{}},
		{},
	}
	want, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got, err := withNulls(rows)
	if err != nil || string(got) != string(want) {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	rows[0].Ratio, rows[0].X, rows[1].Figures = math.NaN(), math.Inf(1), []float64{1, math.NaN()}
	got, err = JSON(rows)
	if text := strings.Join(strings.Fields(string(got)), ""); err != nil || !strings.Contains(text, `"ratio":null`) || !strings.Contains(text, `[{"x":null,`) || !strings.Contains(text, `"figures":[1,null]`) {
		t.Errorf("with figures that are not known: %v\n%s", err, got)
	}
}

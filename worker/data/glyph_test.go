package data

import (
	"math"
	"testing"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"

	"github.com/kintsugi-ml/kintsugi/internal/race"
)

// distance is the slow and obvious version of a field: the distance of p to the nearest of all
// lines, negative if they wind around p.
func distance(outline []line, p point) float64 {
	nearest := math.Inf(1)
	all := make([]*line, len(outline))
	for i := range outline {
		all[i] = &outline[i]
		nearest = min(nearest, all[i].square(p))
	}
	if winds(all, p) {
		return -math.Sqrt(nearest)
	}
	return math.Sqrt(nearest)
}

// The lines that are passed over are never the nearest: each entry of each digit in each font has
// the bits that a look at all lines gives.
func TestFieldsAreThoseOfAllLines(t *testing.T) {
	race.Skip(t)
	var buffer sfnt.Buffer
	for n, ttf := range append(seenFonts(), unseenFonts()...) {
		f, err := sfnt.Parse(ttf)
		if err != nil {
			t.Fatal(err)
		}
		for digit := range 10 {
			g, err := f.GlyphIndex(&buffer, rune('0'+digit))
			if err != nil {
				t.Fatal(err)
			}
			segments, err := f.LoadGlyph(&buffer, g, fixed.I(int(f.UnitsPerEm())), nil)
			if err != nil {
				t.Fatal(err)
			}
			outline := centre(flatten(segments))
			var fd field
			fd.fill(outline)
			for i, got := range fd {
				if want := distance(outline, gridPoint(i)); math.Float64bits(got) != math.Float64bits(want) {
					t.Fatalf("font %d, digit %d, entry %d is %v, want %v", n, digit, i, got, want)
				}
			}
		}
	}
}

// The distance to an outline is negative inside it.
func TestDistanceFieldsAreSigned(t *testing.T) {
	square := centre([][]point{{{0, 0}, {2, 0}, {2, 2}, {0, 2}, {0, 0}}})
	for _, c := range []struct {
		p    point
		want float64
	}{
		{point{0, 0}, -0.5}, {point{0.25, 0}, -0.25}, {point{0, -0.625}, 0.125}, {point{0.75, 0.5}, 0.25}, {point{-0.5, 0}, 0},
	} {
		if got := distance(square, c.p); got != c.want {
			t.Errorf("distance of %v to the unit square is %v, want %v", c.p, got, c.want)
		}
	}
}

package data

import (
	"fmt"
	"math"
	"sync"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// A glyph is stored as a distance field: a grid of distances to the outline, in digit heights,
// negative inside. To draw a distorted glyph, read the field at a distorted grid of points. To make
// the stroke thinner or bolder, add a constant. Both need one look-up per pixel.
const (
	fieldSide   = 64                                 // entries along one side
	fieldReach  = 0.75                               // the grid covers [-fieldReach, fieldReach] in both directions, in digit heights
	fieldScale  = (fieldSide - 1) / (2 * fieldReach) // entries per digit height
	fieldMiddle = float64(fieldSide-1) / 2
)

type field [fieldSide * fieldSide]float64

type point struct{ x, y float64 }

// line is a straight piece of an outline, from a to b = a+d.
type line struct {
	a, b, d point
	inverse float64 // 1 / square of its length
}

// newField returns the distance field of r in the font f. The digit is centred and one unit high. y
// grows downwards, as in the images.
func newField(f *sfnt.Font, buffer *sfnt.Buffer, r rune) (*field, error) {
	g, err := f.GlyphIndex(buffer, r)
	if err != nil {
		return nil, err
	}
	// At this size one font unit is one pixel, so coordinates are exact.
	segments, err := f.LoadGlyph(buffer, g, fixed.I(int(f.UnitsPerEm())), &sfnt.LoadGlyphOptions{})
	if err != nil {
		return nil, err
	}
	fd := new(field)
	fd.fill(centre(flatten(segments)))
	return fd, nil
}

// gridPoint returns where an entry of a field lies.
func gridPoint(i int) point {
	return point{float64(i%fieldSide)/fieldScale - fieldReach, float64(i/fieldSide)/fieldScale - fieldReach}
}

// fill sets each entry to its distance to the nearest line, negative if the outline winds around it.
//
// It goes through the grid like an ox with a plough, so that each entry is one step from the one
// before. From there to here, no distance changes by more than that step. So the nearest line is
// near, and a line that was far away is looked at again only when enough steps could have led to it.
// The values are those that a look at every line would give.
func (fd *field) fill(outline []line) {
	const step, sure = 1 / fieldScale, 1 + 0x1p-30 // more than what rounding can do to a distance
	far := make([]float64, len(outline))           // by line: its distance when it was looked at, and what was walked before
	walked, bound := 0.0, math.Inf(1)              // the distance of the nearest line is at most bound
	var crossing []*line
	for y := range fieldSide {
		row := gridPoint(y * fieldSide).y
		crossing = crossing[:0]
		for i := range outline {
			if l := &outline[i]; min(l.a.y, l.b.y) <= row && row < max(l.a.y, l.b.y) {
				crossing = append(crossing, l)
			}
		}
		for x := range fieldSide {
			if y%2 == 1 {
				x = fieldSide - 1 - x
			}
			i := y*fieldSide + x
			p, nearest := gridPoint(i), math.Inf(1)
			for k := range outline {
				if far[k] > walked+bound {
					continue
				}
				square := outline[k].square(p)
				nearest = min(nearest, square)
				far[k] = math.Sqrt(square) + walked
			}
			fd[i] = math.Sqrt(nearest)
			bound = (fd[i] + step) * sure
			if winds(crossing, p) {
				fd[i] = -fd[i]
			}
			walked += step * sure
		}
	}
}

// curvePieces is the number of lines that replace a curve. The fonts draw a round digit with some
// twenty curves, so four lines for each stay within a hundredth of a pixel.
const curvePieces = 4

// flatten turns an outline into a list of closed contours, each a list of corners in font units.
func flatten(segments sfnt.Segments) [][]point {
	var contours [][]point
	var at point
	to := func(p point) {
		last := len(contours) - 1
		contours[last] = append(contours[last], p)
		at = p
	}
	for _, s := range segments {
		var arg [3]point
		for i, a := range s.Args {
			arg[i] = point{float64(a.X), float64(a.Y)}
		}
		from := at
		switch s.Op {
		case sfnt.SegmentOpMoveTo:
			contours = append(contours, nil)
			to(arg[0])
		case sfnt.SegmentOpLineTo:
			to(arg[0])
		case sfnt.SegmentOpQuadTo:
			for i := 1; i <= curvePieces; i++ {
				t := float64(i) / curvePieces
				to(between(between(from, arg[0], t), between(arg[0], arg[1], t), t))
			}
		case sfnt.SegmentOpCubeTo:
			for i := 1; i <= curvePieces; i++ {
				t := float64(i) / curvePieces
				a, b, c := between(from, arg[0], t), between(arg[0], arg[1], t), between(arg[1], arg[2], t)
				to(between(between(a, b, t), between(b, c, t), t))
			}
		}
	}
	return contours
}

func between(a, b point, t float64) point {
	return point{a.x + float64((b.x-a.x)*t), a.y + float64((b.y-a.y)*t)}
}

// centre returns the lines of the contours, moved so that the centre of their bounding box is the
// origin, and scaled to height 1.
func centre(contours [][]point) []line {
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, contour := range contours {
		for _, p := range contour {
			lo = point{min(lo.x, p.x), min(lo.y, p.y)}
			hi = point{max(hi.x, p.x), max(hi.y, p.y)}
		}
	}
	middle, height := point{float64((lo.x + hi.x) / 2), float64((lo.y + hi.y) / 2)}, hi.y-lo.y
	move := func(p point) point { return point{(p.x - middle.x) / height, (p.y - middle.y) / height} }
	var lines []line
	for _, contour := range contours {
		a := move(contour[len(contour)-1])
		for _, p := range contour {
			b := move(p)
			d := point{b.x - a.x, b.y - a.y}
			// A contour may close with a line of length 0.
			if square := float64(d.x*d.x) + float64(d.y*d.y); square > 0 {
				lines = append(lines, line{a, b, d, 1 / square})
			}
			a = b
		}
	}
	return lines
}

// square returns the square of the distance of p to a line.
func (l *line) square(p point) float64 {
	px, py := p.x-l.a.x, p.y-l.a.y
	t := clamp(float64((float64(px*l.d.x)+float64(py*l.d.y))*l.inverse), 1)
	qx, qy := px-float64(t*l.d.x), py-float64(t*l.d.y)
	return float64(qx*qx) + float64(qy*qy)
}

// winds reports whether an outline winds around p. It is enough to give the lines that have ends on
// both sides of a ray from p to the right.
func winds(outline []*line, p point) bool {
	winding := 0
	for _, l := range outline {
		// The ray crosses the line if one end is above the ray, the other is not, and the line is to the
		// right of p. An end exactly on the ray counts for one of its two lines.
		px, py := p.x-l.a.x, p.y-l.a.y
		side := float64(l.d.x*py) - float64(l.d.y*px)
		switch {
		case l.a.y <= p.y && p.y < l.b.y && side > 0:
			winding++
		case l.b.y <= p.y && p.y < l.a.y && side < 0:
			winding--
		}
	}
	return winding != 0
}

// at interpolates the field linearly at a position counted in entries. Outside the grid it returns
// the value at the border, which is far from the outline.
func (f *field) at(x, y float64) float64 {
	const last = fieldSide - 1 - 0x1p-10 // so that there is always an entry to the right and below
	x, y = clamp(x, last), clamp(y, last)
	i, j := int(x), int(y)
	x, y = x-float64(i), y-float64(j)
	k := j*fieldSide + i
	near, below := f[k:k+2:k+2], f[k+fieldSide:k+fieldSide+2:k+fieldSide+2]
	top := near[0] + float64(x*(near[1]-near[0]))
	bottom := below[0] + float64(x*(below[1]-below[0]))
	return top + float64(y*(bottom-top))
}

// clamp returns x limited to [0, high]. Unlike the built-in min and max it ignores NaN and the sign
// of zero, which makes drawing a third faster.
func clamp(x, high float64) float64 {
	if x < 0 {
		return 0
	}
	if x > high {
		return high
	}
	return x
}

// font is the digits of a font. A field is computed when it is first asked for.
type font [10]func() *field

// newFont returns the digits of a TrueType file that is compiled in. A field panics on an error: no
// user input can cause one, and a test draws every font.
func newFont(ttf []byte) *font {
	parse := sync.OnceValue(func() *sfnt.Font {
		f, err := sfnt.Parse(ttf)
		if err != nil {
			panic(fmt.Sprintf("data: parse a font: %v", err))
		}
		return f
	})
	f := new(font)
	for digit := range f {
		f[digit] = sync.OnceValue(func() *field {
			fd, err := newField(parse(), new(sfnt.Buffer), rune('0'+digit))
			if err != nil {
				panic(fmt.Sprintf("data: digit %d of a font: %v", digit, err))
			}
			return fd
		})
	}
	return f
}

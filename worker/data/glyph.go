package data

import (
	"math"

	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
)

// A glyph is kept as a distance field: a grid whose entries are the distance to the outline, in digit
// heights, negative inside. Reading it at a bent grid of points draws the bent glyph, and adding a
// constant makes the stroke thinner or bolder, both for one look-up per pixel.
const (
	fieldSide  = 64   // entries along one side
	fieldReach = 0.75 // the grid covers [-fieldReach, fieldReach] in both directions, in digit heights
	fieldScale = (fieldSide - 1) / (2 * fieldReach)
)

type field [fieldSide * fieldSide]float32

type point struct{ x, y float64 }

// line is a straight piece of an outline.
type line struct{ a, b point }

// newField returns the distance field of r in the font f, the digit centred and one unit high. y grows
// downwards, as in the images.
func newField(f *sfnt.Font, buffer *sfnt.Buffer, r rune) (*field, error) {
	g, err := f.GlyphIndex(buffer, r)
	if err != nil {
		return nil, err
	}
	// At this size a unit of the font is one pixel, so that coordinates are exact.
	segments, err := f.LoadGlyph(buffer, g, fixed.I(int(f.UnitsPerEm())), &sfnt.LoadGlyphOptions{})
	if err != nil {
		return nil, err
	}
	outline := centre(flatten(segments))
	fd := new(field)
	for i := range fd {
		p := point{float64(i%fieldSide)/fieldScale - fieldReach, float64(i/fieldSide)/fieldScale - fieldReach}
		fd[i] = float32(distance(outline, p))
	}
	return fd, nil
}

// curvePieces is the number of lines a curve becomes. The fonts draw a round digit with some twenty
// curves, so that four lines each stay within a hundredth of a pixel.
const curvePieces = 4

// flatten turns an outline into lines, in font units. It closes open contours.
func flatten(segments sfnt.Segments) []line {
	var lines []line
	var at, start point
	to := func(p point) {
		if p != at {
			lines = append(lines, line{at, p})
		}
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
			to(start)
			at, start = arg[0], arg[0]
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
	to(start)
	return lines
}

func between(a, b point, t float64) point {
	return point{a.x + float64((b.x-a.x)*t), a.y + float64((b.y-a.y)*t)}
}

// centre moves an outline so that the middle of its bounding box is the origin, and scales it to height 1.
func centre(lines []line) []line {
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range lines {
		lo = point{min(lo.x, l.a.x), min(lo.y, l.a.y)}
		hi = point{max(hi.x, l.a.x), max(hi.y, l.a.y)}
	}
	middle, height := point{(lo.x + hi.x) / 2, (lo.y + hi.y) / 2}, hi.y-lo.y
	move := func(p point) point { return point{(p.x - middle.x) / height, (p.y - middle.y) / height} }
	for i, l := range lines {
		lines[i] = line{move(l.a), move(l.b)}
	}
	return lines
}

// distance returns the distance of p to the nearest line, negative if the outline winds around p.
func distance(outline []line, p point) float64 {
	nearest, winding := math.Inf(1), 0
	for _, l := range outline {
		dx, dy := l.b.x-l.a.x, l.b.y-l.a.y
		px, py := p.x-l.a.x, p.y-l.a.y
		t := (float64(px*dx) + float64(py*dy)) / (float64(dx*dx) + float64(dy*dy))
		t = max(0, min(1, t))
		qx, qy := px-float64(t*dx), py-float64(t*dy)
		nearest = min(nearest, float64(qx*qx)+float64(qy*qy))

		side := float64(dx*py) - float64(dy*px)
		if l.a.y <= p.y && p.y < l.b.y && side > 0 {
			winding++
		}
		if l.b.y <= p.y && p.y < l.a.y && side < 0 {
			winding--
		}
	}
	if winding != 0 {
		return -math.Sqrt(nearest)
	}
	return math.Sqrt(nearest)
}

// at reads the field between its entries, linearly. Outside the grid it returns the value at the border,
// which is far from the outline.
func (f *field) at(x, y float32) float32 {
	const last = fieldSide - 1
	x = max(0, min(last-0x1p-10, float32((x+fieldReach)*fieldScale)))
	y = max(0, min(last-0x1p-10, float32((y+fieldReach)*fieldScale)))
	i, j := int(x), int(y)
	x, y = x-float32(i), y-float32(j)
	k := j*fieldSide + i
	a, b, c, d := f[k], f[k+1], f[k+fieldSide], f[k+fieldSide+1]
	top := a + float32(x*(b-a))
	bottom := c + float32(x*(d-c))
	return top + float32(y*(bottom-top))
}

// newFields returns the fields of the ten digits in the font of a TrueType file.
func newFields(ttf []byte) ([10]*field, error) {
	var fields [10]*field
	f, err := sfnt.Parse(ttf)
	if err != nil {
		return fields, err
	}
	var buffer sfnt.Buffer
	for digit := range fields {
		if fields[digit], err = newField(f, &buffer, rune('0'+digit)); err != nil {
			return fields, err
		}
	}
	return fields, nil
}

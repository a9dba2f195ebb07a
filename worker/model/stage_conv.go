package model

import (
	"gonum.org/v1/gonum/blas"
	"gorgonia.org/gorgonia"
)

// convStage is a Conv2D, with the following ReLU and MaxPool if there are any. It works on one
// image at a time, so that the unfolded image and the unpooled result stay in the cache, and only
// the input of the next layer is written to memory. It pools before it adds the bias and applies
// the ReLU. These are monotonic, so the order makes no difference, and a quarter of the values
// remains.
type convStage struct {
	in, plain, out Shape // plain is the shape before pooling; out is the same unless pooled
	conv           Conv2D
	relu           bool
	pool           int // window size of the MaxPool; 1: none

	z  []float32 // the result of an image before pooling, or its gradient: [filters, positions]
	at []uint8   // of the batch, see poolStage

	// The unfolded image: for each position, the channels·kernel² values that its results are
	// computed from, as [depth, positions]. The places of padding are never written and stay 0.
	columns []float32

	// The gradient of the unfolded image, as [positions, depth]. The first backward that needs it
	// allocates it. In this order z is the left factor of the product. Pooling and ReLU leave one
	// value of z in eight, and gonum skips zeros in the left factor.
	rows []float32
}

func newConvStage(conv Conv2D, in Shape, relu bool, pool, batch int) *convStage {
	plain := Shape{conv.Filters, in.Height + 2*conv.Pad - conv.Kernel + 1, in.Width + 2*conv.Pad - conv.Kernel + 1}
	s := &convStage{in: in, plain: plain, conv: conv, relu: relu, pool: pool}
	s.out = Shape{plain.Channels, plain.Height / pool, plain.Width / pool}
	s.columns = make([]float32, s.depth()*s.positions())
	s.z = make([]float32, plain.Values())
	if pool > 1 {
		s.at = make([]uint8, batch*s.out.Values())
	}
	return s
}

// depth returns the number of values that one result is computed from.
func (s *convStage) depth() int { return s.in.Channels * s.conv.Kernel * s.conv.Kernel }

func (s *convStage) positions() int { return s.plain.Height * s.plain.Width }

func (s *convStage) forward(y []float32, in [][]float32) {
	x, w, b := in[0], in[1], in[2]
	lib := gorgonia.WhichBLAS()
	positions, area := s.positions(), s.out.Height*s.out.Width
	for i := range len(x) / s.in.Values() {
		s.unfold(x[i*s.in.Values():][:s.in.Values()])
		lib.Sgemm(blas.NoTrans, blas.NoTrans, s.conv.Filters, positions, s.depth(), 1,
			w, s.depth(), s.columns, positions, 0, s.z, positions)
		image := y[i*s.out.Values():][:s.out.Values()]
		for f, bias := range b {
			plane, z := image[f*area:][:area], s.z[f*positions:][:positions]
			if s.pool > 1 {
				poolPlane(plane, s.at[i*s.out.Values()+f*area:], z, s.plain.Width, s.pool, s.out.Width)
				z = plane
			}
			for j, v := range z {
				plane[j] = v + bias
			}
		}
		if s.relu {
			rectify(image, image)
		}
	}
}

func (s *convStage) backward(d, in [][]float32, y, dy []float32) {
	x, w := in[0], in[1]
	dx, dw, db := d[0], d[1], d[2]
	clear(dw)
	clear(db)
	clear(dx)
	if dx != nil && s.rows == nil {
		s.rows = make([]float32, len(s.columns))
	}
	lib := gorgonia.WhichBLAS()
	positions, n, depth := s.positions(), s.in.Values(), s.depth()
	for i := range len(x) / n {
		s.plainGradient(i, db, y, dy)
		s.unfold(x[i*n:][:n])
		lib.Sgemm(blas.NoTrans, blas.Trans, s.conv.Filters, depth, positions, 1, s.z, positions, s.columns, positions, 1, dw, depth)
		if dx == nil {
			continue
		}
		lib.Sgemm(blas.Trans, blas.NoTrans, positions, depth, s.conv.Filters, 1, s.z, positions, w, depth, 0, s.rows, depth)
		s.fold(dx[i*n:][:n])
	}
}

// plainGradient overwrites z with the gradient of the unpooled result of image i, and adds the
// gradient of the bias to db.
func (s *convStage) plainGradient(i int, db, y, dy []float32) {
	positions, area := s.positions(), s.out.Height*s.out.Width
	lo := i * s.out.Values()
	y, dy = y[lo:][:s.out.Values()], dy[lo:][:s.out.Values()]
	if s.relu {
		// dy is the result of the next layer's backward and only used here, so it may be
		// overwritten.
		rectifyGradient(dy, y, dy)
	}
	if s.pool == 1 {
		copy(s.z, dy)
	} else {
		clear(s.z)
	}
	for f := range db {
		plane := dy[f*area:][:area]
		sum := float32(0)
		for _, v := range plane {
			sum += v
		}
		db[f] += sum
		if s.pool > 1 {
			unpoolPlane(s.z[f*positions:][:positions], s.at[lo+f*area:], plane, s.plain.Width, s.pool, s.out.Width)
		}
	}
}

// span returns the range [lo, hi) of results in a row or column of length out whose input at offset
// k of the kernel lies inside the image. length is the length of the image's row or column.
func (s *convStage) span(k, length, out int) (lo, hi int) {
	return min(out, max(0, s.conv.Pad-k)), max(0, min(out, length+s.conv.Pad-k))
}

// unfold fills columns with the values of an image that each result is computed from.
func (s *convStage) unfold(image []float32) {
	k, width, out := s.conv.Kernel, s.in.Width, s.plain.Width
	for r := range s.depth() {
		c, ky, kx := r/(k*k), r/k%k, r%k
		plane := image[c*s.in.Height*width:][:s.in.Height*width]
		row := s.columns[r*s.positions():][:s.positions()]
		top, bottom := s.span(ky, s.in.Height, s.plain.Height)
		left, right := s.span(kx, width, out)
		for y := top; y < bottom && left < right; y++ {
			copy(row[y*out+left:y*out+right], plane[(y+ky-s.conv.Pad)*width+left+kx-s.conv.Pad:])
		}
	}
}

// fold adds rows to the gradient of an image: the inverse of unfolding, with the values of each
// pixel summed.
func (s *convStage) fold(image []float32) {
	k, pad, width, depth := s.conv.Kernel, s.conv.Pad, s.in.Width, s.depth()
	for y := range s.plain.Height {
		above, below := max(0, pad-y), min(k, s.in.Height+pad-y) // rows of the kernel that lie inside the image
		for c := range s.in.Channels {
			for ky := above; ky < below; ky++ {
				line := image[(c*s.in.Height+y+ky-pad)*width:][:width]
				row := s.rows[y*s.plain.Width*depth+(c*k+ky)*k:]
				for x := range s.plain.Width {
					left, right := max(0, pad-x), min(k, width+pad-x)
					if left >= right {
						continue
					}
					to, from := line[x-pad+left:x-pad+right], row[x*depth+left:x*depth+right]
					for j, v := range from {
						to[j] += v
					}
				}
			}
		}
	}
}

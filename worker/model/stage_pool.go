package model

// poolStage is a MaxPool that does not follow a Conv2D.
type poolStage struct {
	in   Shape
	size int
	at   []uint8 // position of each result in its window: row·size + column
}

func (s *poolStage) forward(y []float32, in [][]float32) {
	planes := len(in[0]) / (s.in.Height * s.in.Width)
	if s.at == nil {
		s.at = make([]uint8, len(y))
	}
	n := (s.in.Height / s.size) * (s.in.Width / s.size)
	for p := range planes {
		plane := in[0][p*s.in.Height*s.in.Width:]
		poolPlane(y[p*n:(p+1)*n], s.at[p*n:], plane, s.in.Width, s.size, s.in.Width/s.size)
	}
}

func (s *poolStage) backward(d, in [][]float32, _, dy []float32) {
	area := s.in.Height * s.in.Width
	n := (s.in.Height / s.size) * (s.in.Width / s.size)
	clear(d[0])
	for p := range len(in[0]) / area {
		unpoolPlane(d[0][p*area:(p+1)*area], s.at[p*n:], dy[p*n:(p+1)*n], s.in.Width, s.size, s.in.Width/s.size)
	}
}

// poolPlane finds the largest value of each size×size window of a plane, and among equal values the
// first. It writes the value to y, and its position in the window to at. The rows of plane have
// width values, the rows of y have out values.
func poolPlane(y []float32, at []uint8, plane []float32, width, size, out int) {
	if size == 2 {
		poolPlane2(y, at, plane, width, out)
		return
	}
	for i := range y {
		corner := i/out*size*width + i%out*size
		best, place := plane[corner], 0
		for r := range size {
			for c, v := range plane[corner+r*width : corner+r*width+size] {
				if v > best {
					best, place = v, r*size+c
				}
			}
		}
		y[i], at[i] = best, uint8(place)
	}
}

// poolPlane2 is poolPlane for windows of 2×2, by far the most common size.
func poolPlane2(y []float32, at []uint8, plane []float32, width, out int) {
	for row := 0; row*out < len(y); row++ {
		top := plane[2*row*width:][:2*out]
		bottom := plane[(2*row+1)*width:][:2*out]
		y, at := y[row*out:][:out], at[row*out:][:out]
		for j := range y {
			best, place := top[2*j], uint8(0)
			if v := top[2*j+1]; v > best {
				best, place = v, 1
			}
			if v := bottom[2*j]; v > best {
				best, place = v, 2
			}
			if v := bottom[2*j+1]; v > best {
				best, place = v, 3
			}
			y[j], at[j] = best, place
		}
	}
}

// unpoolPlane copies dy to the positions of plane that poolPlane chose. plane must be 0 before.
func unpoolPlane(plane []float32, at []uint8, dy []float32, width, size, out int) {
	for row := 0; row*out < len(dy); row++ {
		corner := row * size * width
		for j, v := range dy[row*out:][:out] {
			place := int(at[row*out+j])
			plane[corner+j*size+place/size*width+place%size] = v
		}
	}
}

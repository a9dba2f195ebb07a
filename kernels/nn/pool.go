package nn

import "fmt"

// Pool is max-pooling over Size×Size windows of Height×Width planes, which follow one another.
// Windows do not overlap; trailing rows and columns that do not fill a window are ignored. Among
// equal values the first wins. A NaN wins only if it is the first of its window.
type Pool struct{ Height, Width, Size int }

func (q Pool) area() int { return q.Height * q.Width }

// Outputs returns the number of results of one plane.
func (q Pool) Outputs() int { return (q.Height / q.Size) * (q.Width / q.Size) }

func (q Pool) check(planes, out, at int) int {
	n := planes / q.area()
	if n*q.area() != planes || out != n*q.Outputs() || at != out || q.Size < 1 || q.Size > 15 {
		panic(fmt.Sprintf("nn: pooling %d values in %+v to %d, with %d places", planes, q, out, at))
	}
	return n
}

func (host) PoolForward(q Pool, y []float32, at []uint8, x []float32) {
	n, cols := q.check(len(x), len(y), len(at)), q.Width/q.Size
	for i := range n {
		lo, hi := i*q.Outputs(), (i+1)*q.Outputs()
		poolPlane(y[lo:hi], at[lo:hi], x[i*q.area():], q.Width, q.Size, cols)
	}
}

func (host) PoolBackward(q Pool, dx []float32, at []uint8, dy []float32) {
	n, cols := q.check(len(dx), len(dy), len(at)), q.Width/q.Size
	clear(dx)
	for i := range n {
		lo, hi := i*q.Outputs(), (i+1)*q.Outputs()
		unpoolPlane(dx[i*q.area():], at[lo:hi], dy[lo:hi], q.Width, q.Size, cols)
	}
}

// poolPlane overwrites y with the largest value of each size×size window of a plane, and at with
// that value's place in its window. y has rows of cols values; the rows of the plane begin stride
// values apart.
func poolPlane(y []float32, at []uint8, plane []float32, stride, size, cols int) {
	for row := 0; row*cols < len(y); row++ {
		y, at := y[row*cols:][:cols], at[row*cols:][:cols]
		above := plane[row*size*stride:]
		if size == 2 {
			poolRow2(y, at, above[:2*cols], above[stride:stride+2*cols])
			continue
		}
		for j := range y {
			best, place := above[j*size], 0
			for r := range size {
				for c, v := range above[r*stride+j*size:][:size] {
					if v > best {
						best, place = v, r*size+c
					}
				}
			}
			y[j], at[j] = best, uint8(place)
		}
	}
}

// poolRow2 computes one row of poolPlane for windows of 2×2, by far the most common.
func poolRow2(y []float32, at []uint8, top, bottom []float32) {
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

// unpoolPlane sets the values of a plane's windows to 0, except those that poolPlane chose, which
// it sets to dy. It returns the sum of the values that it has set to dy.
func unpoolPlane(plane []float32, at []uint8, dy []float32, stride, size, cols int) float32 {
	sum := float32(0)
	for row := 0; row*cols < len(dy); row++ {
		window := plane[row*size*stride:]
		for r := range size {
			clear(window[r*stride:][:cols*size])
		}
		for j, v := range dy[row*cols:][:cols] {
			if place := int(at[row*cols+j]); place != blocked {
				window[place/size*stride+j*size+place%size] = v
				sum += v
			}
		}
	}
	return sum
}

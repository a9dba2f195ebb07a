package nn

import "math"

// The operations on sequences, with sums in the same order as in the C code.

func (host) GELU(y, x []float32) {
	checkEqual(len(y), len(x), len(x))
	for i, v := range x {
		f, _ := geluFactor(v, v*v)
		y[i] = v * f
	}
}

func (host) GELUGradient(dx, dy, x []float32) {
	checkEqual(len(dx), len(dy), len(x))
	for i, v := range x {
		v2 := v * v
		f, rest := geluFactor(v, v2)
		inner := geluSlope + float32(geluCurve*v2)
		slope := f + float32(float32(float32(v*f)*rest)*inner)
		dx[i] = dy[i] * slope
	}
}

// fold adds up the lanes by halves.
func fold(l *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			l[i] += l[i+half]
		}
	}
	return l[0]
}

func (host) LayerNorm(y, stats, x, w, b []float32) {
	checkNorm(x, y, stats, w, b)
	n := len(w)
	for r := range len(x) / n {
		x, y := x[r*n:][:n], y[r*n:][:n]
		var sum, squares [lanes]float32
		for i, v := range x {
			sum[i%lanes] += v
		}
		mean := fold(&sum) / float32(n)
		for i, v := range x {
			d := v - mean
			squares[i%lanes] += float32(d * d)
		}
		scale := 1 / float32(math.Sqrt(float64(fold(&squares)/float32(n)+1e-5)))
		stats[2*r], stats[2*r+1] = mean, scale
		for i, v := range x {
			z := (v - mean) * scale
			y[i] = float32(z*w[i]) + b[i]
		}
	}
}

func (host) LayerNormGradient(dx, dw, db, dy, x, w, stats []float32) {
	checkNormGradient(dx, dw, db, dy, x, w, stats)
	n := len(w)
	for r := range len(x) / n {
		x, dy := x[r*n:][:n], dy[r*n:][:n]
		mean, scale := stats[2*r], stats[2*r+1]
		var sum, along [lanes]float32
		for i, v := range x {
			z, g := (v-mean)*scale, float32(dy[i]*w[i])
			sum[i%lanes] += g
			along[i%lanes] += float32(g * z)
			dw[i] += float32(dy[i] * z)
			db[i] += dy[i]
		}
		if dx == nil {
			continue
		}
		a, c := fold(&sum)/float32(n), fold(&along)/float32(n)
		dx := dx[r*n:][:n]
		for i, v := range x {
			z, g := (v-mean)*scale, float32(dy[i]*w[i])
			dx[i] = scale * (g - a - float32(z*c))
		}
	}
}

func checkNormGradient(dx, dw, db, dy, x, w, stats []float32) {
	checkNorm(x, dy, stats, w, db)
	checkEqual(len(dw), len(db), len(w))
	if dx != nil {
		checkEqual(len(dx), len(x), len(dy))
	}
}

// product sets out to Σ a[j·stride]·m[j] over j < n, in ascending order. m[j] is row j of m; its
// rows begin mStride values apart.
func product(out, a []float32, stride, n int, m []float32, mStride int) {
	clear(out)
	for j := range n {
		factor := a[j*stride]
		for i, v := range m[j*mStride:][:len(out)] {
			out[i] += float32(factor * v)
		}
	}
}

// softmax replaces a row by its softmax.
func softmax(row []float32) {
	var most, sum [lanes]float32
	for i := range most {
		most[i] = float32(math.Inf(-1))
	}
	for i, v := range row {
		if v > most[i%lanes] {
			most[i%lanes] = v
		}
	}
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			if most[i+half] > most[i] {
				most[i] = most[i+half]
			}
		}
	}
	for i, v := range row {
		row[i] = Exp32(v - most[0])
		sum[i%lanes] += row[i]
	}
	total := fold(&sum)
	for i := range row {
		row[i] /= total
	}
}

// rowsOf copies size values from index at of each row of x into contiguous rows of to. Rows of x
// have stride values.
func rowsOf(to, x []float32, stride, at, size int) {
	for t := range len(x) / stride {
		copy(to[t*size:][:size], x[t*stride+at:])
	}
}

// columnsOf is rowsOf, transposed.
func columnsOf(to, x []float32, stride, at, size int) {
	n := len(x) / stride
	for t := range n {
		for j, v := range x[t*stride+at:][:size] {
			to[j*n+t] = v
		}
	}
}

// rootOf returns 1/√size.
func rootOf(size int) float32 { return float32(1 / math.Sqrt(float64(size))) }

func (host) Attention(h Heads, head int, y, p, x, scratch []float32) {
	h.check(head, x, y, p, scratch)
	n, size, stride, row := h.Positions, h.Size, h.stride(), roundUp(h.Positions)
	keys, values, q := scratch[:size*n], scratch[size*n:2*size*n], scratch[2*size*n:][:size]
	columnsOf(keys, x, stride, h.at(1, head), size)
	rowsOf(values, x, stride, h.at(2, head), size)
	root := rootOf(size)
	for t := range n {
		for j, v := range x[t*stride+h.at(0, head):][:size] {
			q[j] = v * root
		}
		p := p[t*row:][:row]
		clear(p[t+1:])
		product(p[:t+1], q, 1, size, keys, n)
		softmax(p[:t+1])
		product(y[t*stride/3+h.at(0, head):][:size], p, 1, t+1, values, size)
	}
}

func (host) AttentionGradient(h Heads, head int, dx, dy, p, x, scratch []float32) {
	h.check(head, x, dy, p, scratch)
	checkEqual(len(dx), len(x), len(x))
	n, size, stride, row := h.Positions, h.Size, h.stride(), roundUp(h.Positions)
	room := scratch
	take := func(n int) []float32 {
		part := room[:n]
		room = room[n:]
		return part
	}
	values, keys, queries, results, scores := take(size*n), take(size*n), take(size*n), take(size*n), take(n*row)
	columnsOf(values, x, stride, h.at(2, head), size)
	rowsOf(keys, x, stride, h.at(1, head), size)
	rowsOf(queries, x, stride, h.at(0, head), size)
	rowsOf(results, dy, stride/3, h.at(0, head), size)
	root := rootOf(size)
	for t := range n {
		d, p := scores[t*row:][:t+1], p[t*row:][:t+1]
		product(d, results[t*size:], 1, size, values, n)
		var sum [lanes]float32
		for s, v := range p {
			sum[s%lanes] += float32(v * d[s])
		}
		mean := fold(&sum)
		for s, v := range p {
			d[s] = v * (d[s] - mean) * root
		}
		product(dx[t*stride+h.at(0, head):][:size], d, 1, t+1, keys, size)
	}
	for s := range n {
		product(dx[s*stride+h.at(1, head):][:size], scores[s*row+s:], row, n-s, queries[s*size:], size)
		product(dx[s*stride+h.at(2, head):][:size], p[s*row+s:], row, n-s, results[s*size:], size)
	}
}

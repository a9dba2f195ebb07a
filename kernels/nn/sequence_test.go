package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi/kernels/nn"
)

// TestExp32IsWithinTwoUnits tries a million values in the interval, and some outside.
func TestExp32IsWithinTwoUnits(t *testing.T) {
	worst := 0.0
	for i := range 1_000_000 {
		x := float32(-87 + 175*float64(i)/1e6)
		want := math.Exp(float64(x))
		unit := float64(math.Nextafter32(float32(want), math.MaxFloat32) - float32(want))
		worst = max(worst, math.Abs(float64(nn.Exp32(x))-want)/unit)
	}
	if worst > 2 {
		t.Errorf("off by %.2f units in the last place", worst)
	}
	if nn.Exp32(0) != 1 || nn.Exp32(float32(math.Inf(-1))) != nn.Exp32(-87) || nn.Exp32(1e30) != nn.Exp32(88) {
		t.Error("Exp32 of 0 is not 1, or that of large values is not that of the end of the interval")
	}
	if nan := nn.Exp32(float32(math.NaN())); nan == nan {
		t.Errorf("Exp32 of NaN is %v", nan)
	}
}

func TestGELUIsWithinItsBound(t *testing.T) {
	gelu := func(x float64) (y, slope float64) {
		const a, b = 0.7978845608028654, 0.044715
		v := a * (x + b*x*x*x)
		s := 1 / (1 + math.Exp(-2*v))
		return x * s, s + x*s*(1-s)*2*a*(1+3*b*x*x)
	}
	for i := range 200_000 {
		x := float32(-20 + 40*float64(i)/200_000)
		if i%100 == 0 {
			x *= float32(i) / 4 // far outside
		}
		y, dx := []float32{0}, []float32{0}
		nn.Host.GELU(y, []float32{x})
		nn.Host.GELUGradient(dx, []float32{1}, []float32{x})
		wantY, wantSlope := gelu(float64(x))
		if diff := math.Abs(float64(y[0]) - wantY); diff > 0x1p-22*math.Abs(float64(x)) {
			t.Fatalf("GELU(%g) is %g, want %g", x, y[0], wantY)
		}
		if math.Abs(float64(dx[0])-wantSlope) > 0x1p-20 {
			t.Fatalf("its derivative at %g is %g, want %g", x, dx[0], wantSlope)
		}
	}
}

// draw returns n values around size, some of them zeros of either sign.
func draw(rng *rand.Rand, n int, size float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch rng.IntN(20) {
		case 0:
		case 1:
			x[i] = float32(math.Copysign(0, -1))
		default:
			x[i] = float32(rng.NormFloat64()) * size
		}
	}
	return x
}

// operations runs every operation on one device and returns all results.
func operations(d nn.Device, seed uint64, rows, n int, h nn.Heads) (names []string, results [][]float32) {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	add := func(name string, r []float32) {
		names, results = append(names, name), append(results, r)
	}
	x, dy := draw(rng, rows*n, 3), draw(rng, rows*n, 1)
	y, dx := make([]float32, rows*n), make([]float32, rows*n)
	d.GELU(y, x)
	add("GELU", slices.Clone(y))
	d.GELUGradient(dx, dy, x)
	add("GELUGradient", slices.Clone(dx))
	w, b, stats := draw(rng, n, 1), draw(rng, n, 1), make([]float32, 2*rows)
	d.LayerNorm(y, stats, x, w, b)
	add("LayerNorm", y)
	add("its stats", stats)
	dw, db := draw(rng, n, 1), draw(rng, n, 1)
	d.LayerNormGradient(dx, dw, db, dy, x, w, stats)
	add("LayerNormGradient", dx)
	add("LayerNormGradient, weights", dw)
	add("LayerNormGradient, biases", db)
	only := [2][]float32{make([]float32, n), make([]float32, n)}
	d.LayerNormGradient(nil, only[0], only[1], dy, x, w, stats)
	add("LayerNormGradient without dx, weights", only[0])

	values := h.Positions * h.Heads * h.Size
	qkv, dOut := draw(rng, 3*values, 2), draw(rng, values, 1)
	out, dQKV := make([]float32, values), make([]float32, 3*values)
	scratch := draw(rng, h.Scratch(), 1e30)
	for head := range h.Heads {
		p := draw(rng, h.Weights(), 1e30)
		d.Attention(h, head, out, p, qkv, scratch)
		d.AttentionGradient(h, head, dQKV, dOut, p, qkv, scratch)
	}
	add("Attention", out)
	add("AttentionGradient", dQKV)
	return names, results
}

var headShapes = []nn.Heads{{64, 4, 32}, {1, 1, 1}, {7, 2, 3}, {16, 1, 16}, {17, 3, 17}, {33, 2, 64}, {80, 1, 24}, {5, 2, 100}}

func TestSequencesGiveEqualBitsOnAllDevices(t *testing.T) {
	for _, d := range nn.Devices()[1:] {
		for i, h := range headShapes {
			for _, n := range []int{1, 15, 16, 17, 31, 64, 100, 128} {
				names, got := operations(d, uint64(i), 3, n, h)
				_, want := operations(nn.Host, uint64(i), 3, n, h)
				for k, name := range names {
					for j := range want[k] {
						if math.Float32bits(got[k][j]) != math.Float32bits(want[k][j]) {
							t.Fatalf("%s: value %d of %s for rows of %d and %+v is %g, host has %g", d.Name(), j, name, n, h, got[k][j], want[k][j])
						}
					}
				}
			}
		}
	}
}

// TestAttentionIsWhatItSays compares with the definition in float64.
func TestAttentionIsWhatItSays(t *testing.T) {
	for i, h := range headShapes {
		rng := rand.New(rand.NewPCG(9, uint64(i)))
		width := h.Heads * h.Size
		x, y := draw(rng, 3*width*h.Positions, 1), make([]float32, width*h.Positions)
		at := func(t, part, head, j int) float64 { return float64(x[t*3*width+(part*h.Heads+head)*h.Size+j]) }
		for head := range h.Heads {
			p := make([]float32, h.Weights())
			nn.Host.Attention(h, head, y, p, x, make([]float32, h.Scratch()))
			for q := range h.Positions {
				total, want := 0.0, make([]float64, h.Size)
				for s := range q + 1 {
					score := 0.0
					for j := range h.Size {
						score += at(q, 0, head, j) * at(s, 1, head, j)
					}
					e := math.Exp(score / math.Sqrt(float64(h.Size)))
					total += e
					for j := range want {
						want[j] += e * at(s, 2, head, j)
					}
				}
				for j := range want {
					if got := float64(y[q*width+head*h.Size+j]); math.Abs(got-want[j]/total) > 2e-5 {
						t.Fatalf("%+v, head %d, position %d, value %d is %g, want %g", h, head, q, j, got, want[j]/total)
					}
				}
			}
		}
	}
}

func TestLayerNormIsWhatItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 0))
	for _, n := range []int{1, 2, 17, 128} {
		x, y, stats := draw(rng, n, 5), make([]float32, n), make([]float32, 2)
		w, b := draw(rng, n, 1), draw(rng, n, 1)
		nn.Host.LayerNorm(y, stats, x, w, b)
		mean, variance := 0.0, 0.0
		for _, v := range x {
			mean += float64(v) / float64(n)
		}
		for _, v := range x {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(n)
		}
		for i, v := range x {
			want := (float64(v)-mean)/math.Sqrt(variance+1e-5)*float64(w[i]) + float64(b[i])
			if math.Abs(float64(y[i])-want) > 1e-5 {
				t.Errorf("value %d of %d is %g, want %g", i, n, y[i], want)
			}
		}
	}
}

func TestNaNIsKeptInSequences(t *testing.T) {
	nan := float32(math.NaN())
	for _, d := range nn.Devices() {
		y := make([]float32, 20)
		d.GELU(y, slices.Repeat([]float32{nan}, 20))
		x := slices.Repeat([]float32{1, 2}, 10)
		x[7] = nan
		z, stats := make([]float32, 20), make([]float32, 2)
		d.LayerNorm(z, stats, x, x, x)
		h := nn.Heads{4, 1, 5}
		out, qkv := make([]float32, 20), make([]float32, 60)
		qkv[0] = nan // the first query
		d.Attention(h, 0, out, make([]float32, h.Weights()), qkv, make([]float32, h.Scratch()))
		if y[19] == y[19] || z[0] == z[0] || out[0] == out[0] {
			t.Errorf("%s: NaN becomes %g in a GELU, %g in a norm, %g in attention", d.Name(), y[19], z[0], out[0])
		}
		if out[5] != 0 {
			t.Errorf("%s: attention spreads NaN to another position", d.Name())
		}
	}
}

func TestEmbeddingsAreGatheredAndScattered(t *testing.T) {
	table, positions := []float32{1, 2, 3, 4, 5, 6}, []float32{10, 20, 30, 40}
	tokens := []float32{2, 0, 2, 1} // two examples of two positions
	y := make([]float32, 8)
	nn.Embed(y, tokens, table, positions, 2)
	if want := []float32{15, 26, 31, 42, 15, 26, 33, 44}; !slices.Equal(y, want) {
		t.Errorf("rows are %v, want %v", y, want)
	}
	dTable, dPositions := make([]float32, 6), []float32{1, 0, 0, 0}
	nn.EmbedGradient(dTable, dPositions, []float32{1, 2, 3, 4, 5, 6, 7, 8}, tokens, 2)
	if !slices.Equal(dTable, []float32{3, 4, 7, 8, 6, 8}) || !slices.Equal(dPositions, []float32{7, 8, 10, 12}) {
		t.Errorf("gradients are %v and %v", dTable, dPositions)
	}
}

func BenchmarkSequences(b *testing.B) {
	h := nn.Heads{64, 4, 32}
	rng := rand.New(rand.NewPCG(1, 2))
	x, y, p, scratch := draw(rng, 64*384, 1), make([]float32, 64*128), make([]float32, h.Weights()), make([]float32, h.Scratch())
	dx, wide, stats := make([]float32, 64*384), make([]float32, 64*384), make([]float32, 128)
	w, bias := draw(rng, 128, 1), draw(rng, 128, 1)
	for _, d := range nn.Devices() {
		for name, run := range map[string]func(){
			"attention": func() { d.Attention(h, 1, y, p, x, scratch) },
			"attention gradient": func() {
				d.AttentionGradient(h, 1, dx, y, p, x, scratch)
			},
			"gelu":          func() { d.GELU(wide, x) },
			"gelu gradient": func() { d.GELUGradient(wide, dx, x) },
			"norm":          func() { d.LayerNorm(y, stats, x[:64*128], w, bias) },
			"norm gradient": func() { d.LayerNormGradient(dx[:64*128], w, bias, y, x[:64*128], w, stats) },
		} {
			b.Run(fmt.Sprintf("%s/%s", name, d.Name()), func(b *testing.B) {
				for b.Loop() {
					run()
				}
			})
		}
	}
}

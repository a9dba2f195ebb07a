package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"github.com/kintsugi-ml/kintsugi/worker/data"
	models "github.com/kintsugi-ml/kintsugi/worker/model"
)

// plainFactors sets g to the gradient of the mean of (r − x₀ − y₀ − Σ xₖ·yₖ)² + λ·(‖x‖² + ‖y‖²)
// over a batch of ratings.
func plainFactors(f models.Factors, r *data.Ratings, params []float64, batch []int, g []float64) {
	clear(g)
	w := f.Width()
	for _, i := range batch {
		u, v := int(r.User[i])*w, (f.Users+int(r.Item[i]))*w
		x, y := params[u:u+w], params[v:v+w]
		e := float64(r.Value[i]) - x[0] - y[0]
		for k := 1; k < w; k++ {
			e -= x[k] * y[k]
		}
		c := 2 / float64(len(batch))
		g[u] += c * (f.Decay*x[0] - e)
		g[v] += c * (f.Decay*y[0] - e)
		for k := 1; k < w; k++ {
			g[u+k] += c * (f.Decay*x[k] - e*y[k])
			g[v+k] += c * (f.Decay*y[k] - e*x[k])
		}
	}
}

// plainAlternate is alternating least squares with weighted λ, in the order users, items, users, …,
// with Gonum's Cholesky factorisation.
func plainAlternate(ctx context.Context, f models.Factors, r *data.Ratings, steps int, params []float32) ([]float32, error) {
	w := f.Width()
	for step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		rows, lo, other, own, theirs := f.Users, 0, f.Users*w, r.User, r.Item
		if step%2 == 1 {
			rows, lo, other, own, theirs = f.Items, f.Users*w, 0, r.Item, r.User
		}
		a, b, n := make([]*mat.SymDense, rows), make([]*mat.VecDense, rows), make([]float64, rows)
		for i := range rows {
			a[i], b[i] = mat.NewSymDense(w, nil), mat.NewVecDense(w, nil)
		}
		for i, value := range r.Value {
			y := mat.NewVecDense(w, nil)
			for k := range w {
				y.SetVec(k, float64(params[other+int(theirs[i])*w+k]))
			}
			target := float64(value) - y.AtVec(0)
			y.SetVec(0, 1)
			row := own[i]
			a[row].SymRankOne(a[row], 1, y)
			b[row].AddScaledVec(b[row], target, y)
			n[row]++
		}
		for i := range rows {
			if err := plainSolve(params[lo+i*w:lo+(i+1)*w], a[i], b[i], f.Decay*n[i]); err != nil {
				return nil, fmt.Errorf("row %d in step %d: %w", i, step+1, err)
			}
		}
	}
	return params, nil
}

// plainSolve sets x to the solution of (a + λ·I)·x = b, or to zero if λ is 0.
func plainSolve(x []float32, a *mat.SymDense, b *mat.VecDense, lambda float64) error {
	clear(x)
	if lambda == 0 {
		return nil
	}
	for k := range x {
		a.SetSym(k, k, a.At(k, k)+lambda)
	}
	var chol mat.Cholesky
	var solution mat.VecDense
	chol.Factorize(a)
	if err := chol.SolveVecTo(&solution, b); err != nil {
		return err
	}
	for k := range x {
		x[k] = float32(solution.AtVec(k))
	}
	return nil
}

// plainTopics is collapsed Gibbs sampling, one token after the other.
func plainTopics(ctx context.Context, p models.Topics, docs *data.Documents, sweeps int, rng *rand.Rand) ([]float32, error) {
	topics := p.Topics
	byWord, byDoc, byTopic := make([]float64, p.Words*topics), make([]float64, docs.Len()*topics), make([]float64, topics)
	topic, weight := make([]int, len(docs.Words)), make([]float64, topics)
	count := func(d, i int, n float64) {
		byWord[int(docs.Words[i])*topics+topic[i]] += n
		byDoc[d*topics+topic[i]] += n
		byTopic[topic[i]] += n
	}
	for sweep := range sweeps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for d := range docs.Len() {
			for i := docs.Start[d]; i < docs.Start[d+1]; i++ {
				if sweep == 0 { // the first sweep only gives each token a topic
					topic[i] = rng.IntN(topics)
					count(d, i, 1)
					continue
				}
				count(d, i, -1)
				sum := 0.0
				for k := range weight {
					weight[k] = (byWord[int(docs.Words[i])*topics+k] + p.Beta) * (byDoc[d*topics+k] + p.Alpha) / (byTopic[k] + float64(p.Words)*p.Beta)
					sum += weight[k]
				}
				at, k := rng.Float64()*sum, 0
				for ; k < topics-1 && at >= weight[k]; k++ {
					at -= weight[k]
				}
				topic[i] = k
				count(d, i, 1)
			}
		}
	}
	params := make([]float32, p.Words*topics+p.Tokens)
	for i, n := range byWord {
		params[i] = float32(n)
	}
	for i, k := range topic {
		params[len(byWord)+i] = float32(k + 1)
	}
	return params, nil
}

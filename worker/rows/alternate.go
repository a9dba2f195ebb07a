package rows

import (
	"context"
	"fmt"
	"math"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/worker/data"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// Alternate is alternating least squares with weighted λ (Zhou et al. 2008). A step on an even
// version sets all rows of users to the minimum for the items of that version; a step on an odd
// version sets all rows of items. With ỹ = (1, y₁ …) and n ratings r of a user, the row x solves
//
//	(Σ ỹ·ỹᵀ + λ·n·I)·x = Σ (r − y₀)·ỹ.
//
// Only one goroutine may use an Alternate at a time.
type Alternate struct {
	f      model.Factors
	layout *kintsugi.Layout
	slots  int
	sides  [2]side // users, items
	solver solver

	lost     []kintsugi.ChunkRange // chunks to repair in the next step; nil: none
	repaired []float32             // a copy of the parameters with the lost rows repaired
	at       kintsugi.PushID       // the push whose step repairs; valid if repairing
	pending  bool
}

// side is one of the two factors: the position of its rows, and the ratings of each row.
type side struct {
	lo    int   // first value in the flat vector
	start []int // by row, with an end element: index of the row's first rating in other and value
	other []int32
	value []float32
	owner []int // by row: the slot that owns it
}

// NewAlternate returns the algorithm for a description with Factors, the training ratings, and the
// number of slots of the run.
func NewAlternate(d *model.Description, ratings *data.Ratings, slots int) (*Alternate, error) {
	f := d.Factors
	if f == nil || !f.Alternate || ratings.Users != f.Users || ratings.Items != f.Items || slots < 1 {
		return nil, fmt.Errorf("%w: model %s for ratings of %d items by %d users and %d workers", kintsugi.ErrUsage, d.Name, ratings.Items, ratings.Users, slots)
	}
	layout, err := kintsugi.NewLayout(d.Tensors())
	if err != nil {
		return nil, err
	}
	a := &Alternate{f: *f, layout: layout, slots: slots, solver: newSolver(f.Width())}
	a.sides[0] = newSide(0, f.Users, ratings.User, ratings.Item, ratings.Value)
	a.sides[1] = newSide(f.Users*f.Width(), f.Items, ratings.Item, ratings.User, ratings.Value)
	a.share()
	return a, nil
}

// newSide sorts the ratings by row. The ratings of one row keep their order.
func newSide(lo, rows int, row, other []int32, value []float32) side {
	s := side{lo: lo, start: make([]int, rows+1), other: make([]int32, len(row)), value: make([]float32, len(row)), owner: make([]int, rows)}
	for _, r := range row {
		s.start[r+1]++
	}
	for r := range rows {
		s.start[r+1] += s.start[r]
	}
	next := append([]int(nil), s.start[:rows]...)
	for i, r := range row {
		s.other[next[r]], s.value[next[r]] = other[i], value[i]
		next[r]++
	}
	return s
}

// share assigns an owner to each row. Rows that begin in the same chunk have the same owner.
func (a *Alternate) share() {
	w, chunk := a.f.Width(), 0
	for i := range a.sides {
		s := &a.sides[i]
		for r := range s.owner {
			for a.layout.Chunks[chunk].Hi <= s.lo+r*w {
				chunk++
			}
			s.owner[r] = chunk % a.slots
		}
	}
}

// Reconcile notes that the given chunks were restored to earlier versions, while all other chunks
// were kept. The next step repairs them before its own computation: rows that the previous step had
// set are computed again from the other side's rows. If those were kept, the result has the same
// bits as before. Lost rows of the side that this step sets need no repair.
func (a *Alternate) Reconcile(lost []kintsugi.ChunkRange) { a.lost, a.pending = lost, true }

// Gradient overwrites grads with the rows that the slot of id sets on that version, and with +0
// elsewhere. A zero inside these rows is −0, since the codec does not send +0. Gradient returns the
// mean squared error of the ratings of these rows before the step, and their number. When ctx ends,
// it returns early.
func (a *Alternate) Gradient(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	if len(params) != a.layout.Values || len(grads) != a.layout.Values {
		return 0, 0, fmt.Errorf("%w: model mf:als has %d parameters, got %d and room for %d", kintsugi.ErrUsage, a.layout.Values, len(params), len(grads))
	}
	clear(grads)
	turn := int(id.Version % 2)
	if a.pending {
		a.at, a.pending = id, false
	}
	if len(a.lost) > 0 && a.at == id {
		params = a.repair(params, grads, 1-turn, int(id.Slot))
	}
	sum := 0.0
	for r, owner := range a.sides[turn].owner {
		if owner != int(id.Slot) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		e, n := a.squaredError(params, turn, r)
		sum, examples = sum+e, examples+n
		a.solve(a.row(grads, turn, r), params, turn, r)
	}
	return sum / float64(max(1, examples)), max(1, examples), nil
}

// repair returns a copy of the parameters in which the lost rows of a side are solved for again. It
// puts those that the slot owns into grads. A chunk is lost as a whole, so it is set as a whole.
func (a *Alternate) repair(params, grads []float32, side, slot int) []float32 {
	a.repaired = append(a.repaired[:0], params...)
	for r, owner := range a.sides[side].owner {
		lo := a.sides[side].lo + r*a.f.Width()
		if !a.wasLost(lo, lo+a.f.Width()) {
			continue
		}
		a.solve(a.row(a.repaired, side, r), params, side, r)
		if owner == slot {
			copy(a.row(grads, side, r), a.row(a.repaired, side, r))
		}
	}
	return a.repaired
}

// wasLost reports whether any of the values [lo, hi) lies in a lost chunk.
func (a *Alternate) wasLost(lo, hi int) bool {
	for _, r := range a.lost {
		if from, to := a.layout.Span(r); from < hi && lo < to {
			return true
		}
	}
	return false
}

// row returns row r of a side in a flat vector.
func (a *Alternate) row(flat []float32, side, r int) []float32 {
	w := a.f.Width()
	lo := a.sides[side].lo + r*w
	return flat[lo : lo+w : lo+w]
}

// squaredError returns the sum of the squared errors of a row's ratings, and the number of ratings.
func (a *Alternate) squaredError(params []float32, side, r int) (sum float64, n int) {
	s, x := &a.sides[side], a.row(params, side, r)
	for i := s.start[r]; i < s.start[r+1]; i++ {
		e := float64(s.value[i]) - model.Predict(x, a.row(params, 1-side, int(s.other[i])))
		sum += float64(e * e)
	}
	return sum, s.start[r+1] - s.start[r]
}

// solve sets x to the minimum of row r of a side, with the other side's rows fixed as in params.
func (a *Alternate) solve(x, params []float32, side, r int) {
	s := &a.sides[side]
	n := s.start[r+1] - s.start[r]
	if n == 0 {
		clear(x)
		named(x)
		return
	}
	a.solver.begin(a.f.Decay * float64(n))
	for i := s.start[r]; i < s.start[r+1]; i++ {
		a.solver.add(a.row(params, 1-side, int(s.other[i])), float64(s.value[i]))
	}
	a.solver.solve(x)
	named(x)
}

// named turns +0 into −0, which the codec sends.
func named(x []float32) {
	for k, v := range x {
		if v == 0 {
			x[k] = float32(math.Copysign(0, -1))
		}
	}
}

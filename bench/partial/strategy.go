package partial

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/recovery/scar"
)

// Strategies lists what can be compared. All but replica save the bytes of one model in C steps.
//
//	full            all blocks every C steps, and after a failure all go back: the baseline
//	partial         all blocks every C steps, and what was lost goes back
//	CHOICE:r        a share r every r·C steps, chosen as package scar does; what was lost goes back. Accesses are
//	                counted where steps change some blocks only
//	half:r          priority:r, where the copy that distances are taken to is bf16
//	curved:r        priority:r, by ½·Σh(x − saved)² in place of ‖x − saved‖²: h is the mean square of the gradient, of each value
//	                where the optimizer's state has it, else of a block
//	secant:r        the same with the secant: how the gradient of a block, of one batch, changes over a step, which takes a second gradient
//	adaptive        by priority, r from how uneven the blocks move; goes back to whichever loss is lower: what was lost
//	                is taken from the running checkpoint, or everything is
//	shadow:CODEC    a copy elsewhere is sent x − copy, encoded, by priority, each step; what an encoding left out
//	                is in the next difference. An optimizer's state goes with it as bf16, since small errors in it may
//	                be divided by one another
//	coasting:CODEC  the same, and the copy goes on by itself: each of its blocks keeps the velocity that its differences
//	                showed, and what is sent is the difference to where that has brought it
//	packed          where values are whole numbers below a limit: as many bits of each as tell them apart, by priority, each step
//	replica         a copy that is one step behind, at the bytes of a model in each step
var Strategies = []string{
	"full", "partial", "priority:1/2", "priority:1/4", "priority:1/8", "roundrobin:1/8", "random:1/8", "threshold:1/8",
	"mostused:1/8", "recentlyused:1/8", "half:1/8", "curved:1/8", "secant:1/8", "adaptive",
	"shadow:int8", "shadow:int4", "shadow:sign", "coasting:int8", "coasting:int4", "coasting:sign", "packed", "replica",
}

// keeper keeps what is needed to recover from a failure.
type keeper interface {
	// save is called with the state after each step.
	save(state []float32, version int) error

	// restore changes the state of a version to the one that training continues from, and returns
	// the version of that state.
	restore(x []float32, version int, lost []int) (int, error)

	bytes() int64 // number of bytes saved so far
}

// CheckStrategy returns a kintsugi.ErrUsage if there is no strategy of that name.
func CheckStrategy(strategy string) error {
	one := &course{blocks: []Block{{0, 1}}, values: 1, arrays: 1, states: [][]float32{{0}}}
	_, err := newKeeper(strategy, one, nil, 8)
	return err
}

// mismatch is an error that says why a strategy cannot be used for a workload.
type mismatch string

func (m mismatch) Error() string { return string(m) }

// newKeeper returns a mismatch if the strategy cannot be used for the workload, and a
// kintsugi.ErrUsage if there is none of that name.
func newKeeper(strategy string, path *course, w Workload, period int) (keeper, error) {
	base := copied{path: path, saved: slices.Clone(path.states[0])}
	_, distances := w.(distancer)
	name, argument, _ := strings.Cut(strategy, ":")
	switch name {
	case "full", "partial":
		return &fullCopy{copied: base, period: period, back: name == "full"}, nil
	case "replica":
		return &fullCopy{copied: base, period: 1}, nil
	case "shadow", "coasting":
		if distances {
			return nil, mismatch("differences of its values mean nothing")
		}
		codec, err := parseCoder(argument)
		if err != nil {
			return nil, err
		}
		p, err := newPlanned(base, w, period, 1/float64(period), scar.Priority, codec)
		if err != nil || name == "shadow" {
			return p, err
		}
		return newCoasting(p), nil
	case "packed":
		limited, ok := w.(limiter)
		if !ok && w != nil {
			return nil, mismatch("its values are no whole numbers below a limit")
		}
		p, err := newPlanned(base, w, period, 1/float64(period), scar.Priority, nil)
		if err != nil || !ok {
			return p, err
		}
		return p, p.pack(bits.Len(uint(limited.Limit()-1)), period)
	case "adaptive":
		p, err := newPlanned(base, w, period, 1/float64(period), scar.Priority, nil)
		if err != nil {
			return nil, err
		}
		return &adaptive{planned: p, workload: w, period: period}, nil
	}
	return newChosen(base, w, period, strategy)
}

// newChosen is newKeeper for the strategies that choose a share of the blocks.
func newChosen(base copied, w Workload, period int, strategy string) (keeper, error) {
	name, argument, _ := strings.Cut(strategy, ":")
	half, bends := name == "half", name == "curved" || name == "secant"
	if half || bends {
		name = scar.Priority.String()
	}
	choice, err := scar.ParseChoice(name)
	if err != nil {
		return nil, fmt.Errorf("%w: no strategy is called %q; know %s", kintsugi.ErrUsage, strategy, strings.Join(Strategies, ", "))
	}
	var over float64
	if _, err := fmt.Sscanf(argument, "1/%g", &over); err != nil || !(over >= 1) {
		return nil, fmt.Errorf("%w: strategy %q: want a fraction such as %s:1/8", kintsugi.ErrUsage, strategy, name)
	}
	touching, touches := w.(toucher)
	counts := choice == scar.MostUsed || choice == scar.RecentlyUsed
	if _, distances := w.(distancer); half && distances {
		return nil, mismatch("its values need few bits")
	}
	if counts && !touches && w != nil {
		return nil, mismatch("each of its steps changes all blocks")
	}
	p, err := newPlanned(base, w, period, 1/over, choice, nil)
	if err != nil {
		return nil, err
	}
	if counts {
		p.toucher = touching
	}
	if half {
		p.distance = halfDistance
	}
	if bends && w != nil {
		return p, p.bend(strategy, w)
	}
	return p, nil
}

// copied is a copy of a state, from which blocks are restored.
type copied struct {
	path  *course
	saved []float32
	spent int64
}

func (c *copied) bytes() int64 { return c.spent }

func (c *copied) restore(x []float32, version int, lost []int) (int, error) {
	for _, b := range lost {
		c.path.each(b, func(lo, hi int) { copy(x[lo:hi], c.saved[lo:hi]) })
	}
	return version, nil
}

// each calls f with a block's range in each array of a state.
func (p *course) each(block int, f func(lo, hi int)) {
	b := p.blocks[block]
	for a := range p.arrays {
		f(a*p.values+b.Lo, a*p.values+b.Hi)
	}
}

// fullCopy saves everything every period steps.
type fullCopy struct {
	copied
	period, version int
	back            bool // everything goes back, not only what was lost
}

func (f *fullCopy) save(state []float32, version int) error {
	if version > 0 && version%f.period == 0 {
		f.version = version
		copy(f.saved, state)
		f.spent += f.path.bytes()
	}
	return nil
}

func (f *fullCopy) restore(x []float32, version int, lost []int) (int, error) {
	if f.back {
		copy(x, f.saved)
		return f.version, nil
	}
	return f.copied.restore(x, version, lost)
}

// planned saves what a planner chooses: values, or encoded differences to the copy.
type planned struct {
	copied
	planner   *scar.Planner
	choice    scar.Choice
	distance  func(b Block, x, saved []float32) float64
	distances []float64
	codec     coder                                    // nil: values
	toucher   toucher                                  // nil: accesses are not counted
	observe   func(state []float32, version int) error // called with each state; nil: nothing is observed
	weigh     func(distances []float64)                // converts distances to weights; nil: distances are used
	diff      []float32
	payload   []byte
}

func newPlanned(base copied, w Workload, period int, fraction float64, choice scar.Choice, codec coder) (*planned, error) {
	p := &planned{copied: base, choice: choice, codec: codec, distances: make([]float64, len(base.path.blocks))}
	p.distance = func(b Block, x, saved []float32) float64 {
		return kernels.SquaredDistance(x[b.Lo:b.Hi], saved[b.Lo:b.Hi])
	}
	if d, ok := w.(distancer); ok {
		p.distance = d.Distance
	}
	cfg := scar.Config{Period: kintsugi.Step(period), Fraction: fraction, Choice: choice, Seed: 1}
	if !choice.NeedsDistances() { // otherwise blocks that rarely change would never be saved
		cfg.MaxAge = kintsugi.Step(4 * period)
	}
	var plain, encoded int64
	for _, b := range base.path.blocks {
		n := b.Hi - b.Lo
		size := 4 * n * base.path.arrays
		plain += int64(size)
		if codec != nil {
			size = codec.MaxBytes(n, n) + 2*n*(base.path.arrays-1)
			p.diff = make([]float32, max(n, len(p.diff)))
		}
		encoded += int64(size)
		cfg.Bytes = append(cfg.Bytes, int64(size))
	}
	if codec != nil { // with the bytes of one model of values, several models of differences can be saved
		cfg.Period = kintsugi.Step(max(1, math.Ceil(float64(period)*float64(encoded)/float64(plain))))
		cfg.Fraction = 1 / float64(cfg.Period)
	}
	var err error
	p.planner, err = scar.New(cfg)
	return p, err
}

// pack saves each value in the given number of bits. With the bytes of one model of values, several
// such models can be saved.
func (p *planned) pack(width, period int) (err error) {
	cfg := scar.Config{Period: kintsugi.Step(max(1, math.Ceil(float64(period*width)/32))), Choice: p.choice, Seed: 1}
	cfg.Fraction = 1 / float64(cfg.Period)
	for _, b := range p.path.blocks {
		cfg.Bytes = append(cfg.Bytes, int64((b.Hi-b.Lo)*width+7)/8*int64(p.path.arrays))
	}
	p.planner, err = scar.New(cfg)
	return err
}

func (p *planned) save(state []float32, version int) error {
	step := kintsugi.Step(version)
	if p.toucher != nil && version > 0 {
		p.toucher.Touched(version-1, func(block int) { p.planner.Accessed(kintsugi.ChunkID(block), 1) })
	}
	if p.observe != nil {
		if err := p.observe(state, version); err != nil {
			return err
		}
	}
	if !p.planner.Due(step) {
		return nil
	}
	if p.choice.NeedsDistances() {
		for i, b := range p.path.blocks {
			p.distances[i] = p.distance(b, state, p.saved)
		}
		if p.weigh != nil {
			p.weigh(p.distances)
		}
	}
	plan := p.planner.Plan(step, p.distances)
	p.spent += plan.Bytes
	var err error
	for _, c := range plan.Chunks {
		if p.codec == nil {
			p.path.each(int(c), func(lo, hi int) { copy(p.saved[lo:hi], state[lo:hi]) })
			continue
		}
		if err = p.follow(int(c), state); err != nil {
			break
		}
	}
	p.planner.Done(plan, true)
	return err
}

// follow moves the copy of a block by the decoded difference, and copies the optimizer's state as
// bf16.
func (p *planned) follow(block int, state []float32) (err error) {
	p.path.each(block, func(lo, hi int) {
		codec, saved, d := halfCoder, p.saved[lo:hi], p.diff[:hi-lo]
		if lo < p.path.values { // parameters
			codec = p.codec
		} else {
			clear(saved)
		}
		for i := range d {
			d[i] = state[lo+i] - saved[i]
		}
		p.payload = codec.Encode(p.payload[:0], d, nil, len(d), 0)
		if e := kernels.Best().Decode(d, codec.Encoding(), p.payload); e != nil {
			err = e
		}
		for i := range d {
			saved[i] += d[i]
		}
	})
	return err
}

// halfDistance returns the distance to saved values that are held as bf16.
func halfDistance(b Block, x, saved []float32) float64 {
	held := make([]float32, b.Hi-b.Lo)
	payload := halfCoder.Encode(nil, saved[b.Lo:b.Hi], nil, len(held), 0)
	if err := kernels.Best().Decode(held, halfCoder.Encoding(), payload); err != nil {
		panic(err) // it was encoded here, and host devices cannot fail
	}
	return kernels.SquaredDistance(x[b.Lo:b.Hi], held)
}

// coder encodes differences: a codec for gradients, or int4, which is not used for gradients.
type coder interface {
	Encoding() kernels.Encoding
	MaxBytes(n, rowLen int) int
	Encode(dst []byte, x, residual []float32, rowLen int, seed uint64) []byte
}

func parseCoder(spec string) (coder, error) {
	if spec == kernels.Int4.String() {
		return int4Coder{}, nil
	}
	return compress.Parse(spec)
}

type int4Coder struct{}

func (int4Coder) Encoding() kernels.Encoding { return kernels.Int4 }
func (int4Coder) MaxBytes(n, _ int) int      { return kernels.Int4Bytes(n) }

func (int4Coder) Encode(dst []byte, x, residual []float32, _ int, _ uint64) []byte {
	n := len(dst)
	dst = slices.Grow(dst, kernels.Int4Bytes(len(x)))[:n+kernels.Int4Bytes(len(x))]
	if err := kernels.Best().EncodeInt4(dst[n:], x, nil, residual); err != nil {
		panic(err) // host devices cannot fail
	}
	return dst
}

// halfCoder uses two bytes per value.
var halfCoder, _ = parseCoder("bf16")

// adaptive chooses the fraction, and what goes back.
type adaptive struct {
	*planned
	workload Workload
	period   int
}

func (a *adaptive) save(state []float32, version int) error {
	if version > 0 && version%a.period == 0 { // before the save, which would set the distances to 0
		for i, b := range a.path.blocks {
			a.distances[i] = a.distance(b, state, a.saved)
		}
		// Assume failures and costs for which the period is optimal. That a save costs 1/64 of the
		// cost of all bytes is an assumption.
		_, fraction, _ := scar.Adapt(scar.Conditions{
			FailureEvery: float64(a.period) * float64(a.period) / 2, ReworkPerAge: 0.5, ModelCost: 1, SaveCost: 1.0 / 64,
			Uneven: a.planner.Uneven(kintsugi.Step(version), a.distances),
		}, kintsugi.Step(a.period))
		if err := a.planner.Set(kintsugi.Step(a.period), fraction); err != nil {
			return err
		}
	}
	return a.planned.save(state, version)
}

func (a *adaptive) restore(x []float32, version int, lost []int) (int, error) {
	if _, err := a.planned.restore(x, version, lost); err != nil {
		return 0, err
	}
	part, err := a.workload.Loss(x)
	if err != nil {
		return 0, err
	}
	if all, err := a.workload.Loss(a.saved); err != nil || part <= all || math.IsNaN(all) {
		return version, err
	}
	copy(x, a.saved)
	return version, nil
}

// coasting is a shadow that extrapolates between two differences.
type coasting struct {
	*planned
	velocity []float32 // of each parameter, per step
	at       []int     // by block: the version whose difference was sent last
	now      int       // the version of the copy
}

func newCoasting(p *planned) *coasting {
	return &coasting{planned: p, velocity: make([]float32, p.path.values), at: make([]int, len(p.path.blocks))}
}

// coast extrapolates the copy to a version.
func (c *coasting) coast(version int) {
	steps := float32(version - c.now)
	for i, v := range c.velocity {
		c.saved[i] += v * steps
	}
	c.now = version
}

// agility is the fraction of a difference that is added to the velocity. With all of it, the noise
// of single steps would move the copy.
const agility = 0.5

func (c *coasting) save(state []float32, version int) error {
	c.coast(version)
	was := slices.Clone(c.saved[:c.path.values])
	if err := c.planned.save(state, version); err != nil {
		return err
	}
	for i, b := range c.path.blocks {
		if c.planner.SavedStep(kintsugi.ChunkID(i)) != kintsugi.Step(version) || c.at[i] == version {
			continue
		}
		share := agility / float32(version-c.at[i])
		for j := b.Lo; j < b.Hi; j++ {
			c.velocity[j] += share * (c.saved[j] - was[j])
		}
		c.at[i] = version
	}
	return nil
}

func (c *coasting) restore(x []float32, version int, lost []int) (int, error) {
	steps := float32(version - c.now)
	for _, b := range lost {
		c.path.each(b, func(lo, hi int) {
			copy(x[lo:hi], c.saved[lo:hi])
			for i := lo; i < min(hi, c.path.values); i++ {
				x[i] += c.velocity[i] * steps
			}
		})
	}
	return version, nil
}

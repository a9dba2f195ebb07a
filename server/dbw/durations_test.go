package dbw

import (
	"math"
	"slices"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

// sample returns the mean and the weight of the samples of T(h, k), which have knots.
func (d *durations) sample(h, k int) (mean, weight float64) {
	i := d.nearest(h)*len(d.knots) + d.knotOf[k]
	if d.wt[i] == 0 {
		return 0, 0
	}
	return d.sum[i] / d.wt[i], d.wt[i]
}

// A step that takes far longer than any before is no change by itself. A slow drift is followed
// without an alarm, and a change in either direction is noticed.
func TestAChangeIsMoreThanOneStep(t *testing.T) {
	steady := func(c *change, n int, v float64) (alarms int) {
		for i := range n {
			if c.seen(v + 0.05*float64(1-2*(i%2))) {
				alarms++
			}
		}
		return alarms
	}
	for _, outlier := range []float64{1e6, -1e6} {
		var c change
		if n := steady(&c, 100, 0); n > 0 {
			t.Fatalf("%d alarms in steady values", n)
		}
		if c.seen(outlier) {
			t.Errorf("one value of %v is taken for a change", outlier)
		}
	}
	for _, by := range []float64{1, -1} {
		var c change
		steady(&c, 100, 0)
		noticed := 0
		for i := 1; i <= 100 && noticed == 0; i++ {
			if c.seen(by) {
				noticed = i
			}
		}
		// Each value counts as 3 standard deviations at most, less half a one, and 8 are needed.
		if noticed != 4 {
			t.Errorf("a change by %v is noticed after %d steps, want 4", by, noticed)
		}
		if c != (change{}) {
			t.Errorf("after a change it goes on with %+v", c)
		}
	}
	var c change
	alarms := 0
	for i := range 4000 {
		alarms += steady(&c, 1, 0.0005*float64(i)) // e² times slower in the end
	}
	if alarms > 0 {
		t.Errorf("%d alarms while a mean drifts by a two-thousandth of it a step", alarms)
	}
}

// The mean and the variance of the first values are theirs.
func TestAChangeKnowsItsFirstValues(t *testing.T) {
	values := []float64{3, -1, 4, 1, -5, 9, 2, 6}
	var c change
	mean, variance := 0.0, 0.0
	for _, v := range values {
		c.seen(v)
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values))
	}
	if math.Abs(c.mean-mean) > 1e-12 || math.Abs(c.variance-variance) > 1e-12 {
		t.Errorf("mean %v and variance %v, want %v and %v", c.mean, c.variance, mean, variance)
	}
}

// With few members every quota has its own samples. With many, quotas near both ends have, and any
// other one uses the nearest.
func TestQuotasWithSamplesOfTheirOwn(t *testing.T) {
	for n, want := range map[int][]int{
		1: {1}, 3: {1, 2, 3}, 16: {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		17: {1, 2, 3, 4, 6, 12, 14, 15, 16, 17}, // 1, 2, 3, 4.5 and 6.75 from either end
	} {
		if got := knotsFor(n); !slices.Equal(got, want) {
			t.Errorf("%d members: %v, want %v", n, got, want)
		}
	}
	d := newDurations(30, false)
	d.resize(17)
	for k, want := range map[int]int{1: 1, 2: 2, 5: 6, 6: 6, 7: 6, 8: 6, 9: 12, 10: 12, 13: 14, 17: 17} {
		if got := d.knots[d.nearest(k)]; got != want {
			t.Errorf("quota %d uses the samples of %d, want %d", k, got, want)
		}
	}
}

// Between quotas with samples, and between rows that were seen, times are interpolated.
func TestTimesBetweenSamplesAreInterpolated(t *testing.T) {
	d := newDurations(30, false)
	d.resize(17)
	for _, h := range []int{4, 12} {
		for _, k := range d.knots {
			d.add(h, k, float64(2000-100*h+k)) // the more begin together, the sooner the k-th comes
		}
	}
	for _, c := range []struct {
		h, k int
		want float64
	}{
		{4, 6, 1606}, {12, 11, 811}, {4, 8, 1608}, {4, 9, 1609}, {4, 10, 1610}, // linear in k
		{6, 6, 1406}, {8, 9, 1209}, {11, 17, 917}, // and in h
		{1, 3, 1603}, {3, 8, 1608}, {17, 8, 808}, {13, 1, 801}, // beyond the rows that were seen, the nearest
	} {
		if got := d.at(c.h, c.k); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("T(%d,%d) is %v, want %v", c.h, c.k, got, c.want)
		}
	}
	if got := newDurations(30, false); got.at(1, 1) != 0 || got.known() {
		t.Error("something is known before the first sample")
	}
}

// A time that is no number is no sample.
func TestSamplesAreTimes(t *testing.T) {
	d := newDurations(30, false)
	d.resize(2)
	for _, seconds := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1e-9} {
		d.add(1, 1, seconds)
	}
	d.add(1, 3, 5) // nor is that of more gradients than there are members
	if d.known() {
		t.Fatalf("sums %v, weights %v", d.sum, d.wt)
	}
	d.add(1, 1, 0)
	if mean, w := d.sample(1, 1); mean != 0 || w != 1 || !d.known() {
		t.Errorf("a time of 0 has mean %v and weight %v", mean, w)
	}
	d.add(9, 2, 4) // after a step that counted more gradients than there are members now
	if mean, w := d.sample(2, 2); mean != 4 || w != 1 {
		t.Errorf("mean %v, weight %v", mean, w)
	}
}

// Workers who are interrupted, and whom a step has not waited for, would have taken longer than the
// step. Estimates below that rise, and others stay.
func TestWhoWasInterruptedWouldHaveTakenLonger(t *testing.T) {
	d := newDurations(1e9, true)
	d.release(0, 0, 3, 3)
	for i, at := range []float64{1, 2, 10} {
		d.arrive(kintsugi.Slot(i), 0, at)
	}
	d.release(1, 10, 3, 3)
	d.arrive(0, 1, 11) // the first alone
	if d.committed(2, 15) {
		t.Error("a step that did not have its quota is taken for a change")
	}
	d.release(2, 15, 1, 3)
	want := map[int][2]float64{1: {1, 2}, 2: {(2 + 5) / 2.0, 2}, 3: {10, 1}}
	for k, w := range want {
		if mean, weight := d.sample(3, k); math.Abs(mean-w[0]) > 1e-6 || math.Abs(weight-w[1]) > 1e-6 {
			t.Errorf("T(3,%d) has mean %v and weight %v, want %v", k, mean, weight, w)
		}
	}
	if got := d.at(1, 2); got != d.at(3, 2) {
		t.Errorf("T(1,2) is %v: all begin together, whatever the step before counted, so it is T(3,2) = %v", got, d.at(3, 2))
	}
}

// After a step of another line or conductor, and after many steps without a gradient of some
// worker, steps before are no longer timed.
func TestStepsAreTimedAsLongAsGradientsMayTellOfThem(t *testing.T) {
	d := newDurations(1e9, false)
	d.release(5, 0, 2, 2)
	d.release(9, 1, 2, 2)
	d.arrive(0, 5, 3)
	if _, w := d.sample(2, 1); w != 0 || len(d.open) != 1 {
		t.Errorf("after a hole %d steps are timed, and one before it has a sample", len(d.open))
	}
	d.arrive(1, 9, 3)
	if mean, w := d.sample(2, 1); mean != 2 || w != 1 {
		t.Errorf("mean %v, weight %v", mean, w)
	}
	for v := kintsugi.Step(10); v < 200; v++ {
		d.release(v, float64(v), 2, 2)
	}
	if len(d.open) != 4*2+64 || d.open[0].version != 200-(4*2+64) {
		t.Errorf("%d steps are timed, from %d on", len(d.open), d.open[0].version)
	}
}

// When members come or go, samples are kept for the same share of the members, with less weight.
func TestSamplesAreKeptWhenMembersCome(t *testing.T) {
	d := newDurations(30, false)
	d.resize(3)
	for k, seconds := range []float64{1, 4, 9} {
		d.add(2, k+1, seconds)
	}
	d.add(2, 3, 11)
	d.resize(5)
	for k, want := range []float64{1, 1, 4, 4, 10} {
		mean, w := d.sample(3, k+1)
		if weight := map[bool]float64{true: 0.5, false: 0.25}[k == 4]; mean != want || w != weight {
			t.Errorf("T(3,%d) has mean %v and weight %v, want %v and %v", k+1, mean, w, want, weight)
		}
	}
}

// A quota that was never seen continues the line through those that were.
func TestTimesThatWereNeverSeenAreHopedFor(t *testing.T) {
	d := newDurations(30, false)
	d.resize(6)
	y, w := make([]float64, 6), make([]float64, 6)
	d.fillRow(y, w, []float64{0, 8, 0, 12, 0, 0}, []float64{0, 2, 0, 2, 0, 0})
	if !slices.Equal(y, []float64{4, 4, 5, 6, 7, 8}) || !slices.Equal(w, []float64{hoped, 2, hoped, 2, hoped, hoped}) {
		t.Errorf("times %v with weights %v", y, w)
	}
	d.fillRow(y, w, []float64{0, 0, 7, 0, 0, 0}, []float64{0, 0, 1, 0, 0, 0}) // no line
	if !slices.Equal(y, []float64{7, 7, 7, 7, 7, 7}) {
		t.Errorf("times %v", y)
	}
	d.fillRow(y, w, []float64{0, 8, 0, 4, 0, 0}, []float64{0, 1, 0, 1, 0, 0}) // it does not fall
	if !slices.Equal(y, []float64{8, 8, 8, 4, 4, 4}) {
		t.Errorf("times %v", y)
	}
}

// A change makes most of what was learnt before be forgotten.
func TestAfterAChangeOldSamplesCountLittle(t *testing.T) {
	d := newDurations(1e9, false)
	now := 0.0
	step := kintsugi.Step(0)
	run := func(took float64) bool {
		d.release(step, now, 1, 1)
		now += took
		d.arrive(0, step, now)
		step++
		return d.committed(1, now)
	}
	for range 50 {
		if run(1) {
			t.Fatal("a steady run has changed")
		}
	}
	changed := 0
	for i := 1; i <= 20 && changed == 0; i++ {
		if run(4) {
			changed = i
		}
	}
	if _, w := d.sample(1, 1); changed == 0 || math.Abs(w-forgiven*float64(50+changed)) > 1e-6 {
		t.Errorf("after %d slow steps the samples have a weight of %v", changed, w)
	}
	if d.release(step, now, 1, 1); d.committed(1, now+100) { // without its gradient
		t.Error("a step that was not waited for is a change")
	}
}

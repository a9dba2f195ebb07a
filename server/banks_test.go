package server

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/shm"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

func openOutside(t *testing.T) *Outside {
	t.Helper()
	o, err := OpenOutside(filepath.Join(t.TempDir(), "state"), "run")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// reading is a version that somebody reads, as a save does, and what was in it at first.
type reading struct {
	x      *version
	bank   int
	s      Shard
	before [][]float32
}

func (r *reading) arrays() [][]float32 { return append([][]float32{r.s.Params}, r.s.State...) }

// unchanged reports whether every value that is read is still what it was.
func (r *reading) unchanged() bool {
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	return slices.EqualFunc(r.arrays(), r.before, func(a, b []float32) bool { return slices.EqualFunc(a, b, same) })
}

// read begins to read the released version.
func (x *desk) read() (*reading, error) {
	x.Helper()
	var r *reading
	var err error
	x.do(func() {
		v, _ := x.r.versions.pin(0)
		bank := -1
		if bank, err = x.r.versions.pinWhole(v); err != nil {
			x.r.versions.unpinWhole(v, bank)
			return
		}
		r = &reading{x: v, bank: bank, s: x.r.shard(v)}
		for _, a := range r.arrays() {
			r.before = append(r.before, slices.Clone(a))
		}
	})
	return r, err
}

// A step has the same bits whether the optimizer's state lies in this process or in banks outside
// it. A version that somebody reads stays as it is, whatever else happens, and however long; and
// the file holds the newest version, as the next life of the server would find it.
func TestStateOutsideIsTheSameAndStaysAsLongAsItIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 14))
	o := openOutside(t)
	out, in := newDeskOutside(t, kernels.Best(), 1, true, o), newDesk(t, kernels.Best(), 1, true)
	var readings []*reading
	refused, most := 0, 0
	for n := range 12 * len(stories) {
		s := stories[0]
		if n%3 == 2 {
			s = stories[n/3%len(stories)]
		}
		if rng.IntN(4) > 0 {
			r, err := out.read()
			if err != nil {
				if refused++; !strings.Contains(err.Error(), "wait until a save has ended") {
					t.Errorf("a reader too many: %v", err)
				}
			} else {
				readings = append(readings, r)
			}
		}
		a, b := s.tell(out, rng), s.tell(in, rng)
		out.release()
		in.release()
		if err := out.seen(a).same(in.seen(b)); err != nil {
			t.Fatalf("step %d, in which %s: %v", n+1, s.name, err)
		}
		banks := make(map[int]bool)
		for _, r := range readings {
			if !r.unchanged() {
				t.Fatalf("step %d, in which %s: version %d has changed while it is read", n+1, s.name, r.s.Step)
			}
			banks[r.bank] = true
		}
		most = max(most, len(banks))
		out.wantFound(o)
		if len(readings) > 0 && rng.IntN(4) == 0 {
			i := rng.IntN(len(readings))
			out.r.versions.unpinWhole(readings[i].x, readings[i].bank)
			readings = slices.Delete(readings, i, i+1)
		}
	}
	for _, r := range readings {
		out.r.versions.unpinWhole(r.x, r.bank)
	}
	if o.pins != [shm.Banks]int{} {
		t.Errorf("banks are pinned by nobody: %v", o.pins)
	}
	if want := shm.Banks - stepBanks; most != want || refused == 0 {
		t.Errorf("%d versions were read at once, and %d readers were refused; want %d versions, and some", most, refused, want)
	}
}

// A step that is decided anew is made in a bank of its own. Until it is made, the earlier try is
// whole: a view that ends meanwhile may still begin its line with that.
func TestAnEarlierTryKeepsItsBank(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 16))
	x := newDeskOutside(t, kernels.Best(), 1, false, openOutside(t))
	x.arrive(rng, everyone...)
	x.stable(x.commit())
	x.do(func() {
		v := x.r.versions
		again := v.take(1)
		if _, err := x.r.beginOutside(0, again); err != nil {
			t.Error(err)
		}
		if got := []int{v.current.bank, v.next.bank, again.bank}; got[0] == got[1] || got[2] == got[0] || got[2] == got[1] {
			t.Errorf("the version before, a step and the same step again are in banks %v", got)
		}
		v.discard(again)
	})
}

// wantFound reports an error if the file does not hold the released version.
func (x *desk) wantFound(o *Outside) {
	x.Helper()
	_, found, err := shm.Open(o.file.Bytes(), x.r.header())
	if err != nil {
		x.Fatal(err)
	}
	v, _ := x.r.versions.pin(0)
	defer x.r.versions.unpin(v)
	newest := found[len(found)-1]
	if newest.Step != uint64(v.step) {
		x.Fatalf("the newest version outside is %d, that in the process %d", newest.Step, v.step)
	}
	for i, b := range newest.Arrays {
		if !slices.Equal(b, kernels.Bytes(v.array(i))) {
			x.Errorf("array %d of version %d is another outside", i, v.step)
		}
	}
}

// A shard whose state need not outlive its process any more takes it home; and the memory outside
// goes back to the system, when nobody reads it.
func TestStateComesHomeAndItsMemoryIsGivenBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 15))
	o := openOutside(t)
	x := newDeskOutside(t, kernels.Best(), 1, true, o)
	for range 3 {
		x.arrive(rng, everyone...)
		x.stable(x.commit())
		x.release()
	}
	r, err := x.read()
	if err != nil {
		t.Fatal(err)
	}
	before := x.seen(kintsugi.Stable{})
	x.do(func() {
		v := x.r.versions
		v.wait()
		x.r.outside, x.r.view.Replicas = nil, 2
		x.r.adopt(v.waiting[0].step)
		if v.current.bank >= 0 || v.current == r.x {
			t.Error("the state has not come home")
		}
		if err := o.drop(); err != nil {
			t.Error(err)
		}
	})
	if err := x.seen(kintsugi.Stable{}).same(before); err != nil {
		t.Error(err)
	}
	if _, _, err := shm.Open(o.file.Bytes(), x.r.header()); err == nil {
		t.Error("the next life finds what it must not find")
	}
	if !r.unchanged() {
		t.Error("a version has changed while it is read")
	}
	x.r.versions.unpinWhole(r.x, r.bank)
	if n := len(o.file.Bytes()); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	x.arrive(rng, everyone...)
	x.stable(x.commit())
	x.release()
}

package record

import (
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
)

// usage adds up what a run takes, in the units of the machine.
type usage struct {
	prices   string      // of the newest header
	replicas int         // of the newest header
	places   cost.ByRole // of the newest header
	since    float64     // when those places began to count
	taken    cost.ByRole // node-seconds before that

	absent  cost.ByRole
	left    map[string]float64 // by part: when its newest process ended
	cpu     cost.ByRole
	peak    map[string]uint64 // by part: the most bytes of memory that one of its processes had
	busy    float64
	saving  float64
	ended   uint64    // gradients that were finished or given up
	counted []stretch // of the line that counts, ascending
	lost    uint64    // counted gradients of steps that were taken back

	releases []float64 // times of the newest releases, on whatever line
	handing  float64   // by which the steps around announced departures took longer than others
}

// header begins or resumes the run with so many places.
func (u *usage) header(e *Header) {
	u.taken, u.since = u.nodeSeconds(e.Seconds), e.Seconds
	u.prices, u.replicas = e.Prices, e.Replicas
	u.places = cost.ByRole{Coordinator: 1, Server: float64(e.Servers), Worker: float64(e.Workers)}
	if !e.WentOn {
		u.left = make(map[string]float64) // a run that is resumed was not there meanwhile
	}
}

// nodeSeconds returns what all places take until a time.
func (u *usage) nodeSeconds(until float64) cost.ByRole {
	return u.taken.Plus(u.places.Times(until - u.since))
}

// life books a process that has ended.
func (u *usage) life(e *Life) {
	role, _, _ := strings.Cut(e.Part, "/")
	one := func(x float64) cost.ByRole {
		switch role {
		case "server":
			return cost.ByRole{Server: x}
		case "worker":
			return cost.ByRole{Worker: x}
		}
		return cost.ByRole{Coordinator: x}
	}
	if before, ok := u.left[e.Part]; ok && e.BeganSeconds > before {
		u.absent = u.absent.Plus(one(e.BeganSeconds - before))
	}
	if u.left == nil {
		u.left = make(map[string]float64)
	}
	if u.peak == nil {
		u.peak = make(map[string]uint64)
	}
	u.left[e.Part] = e.Seconds
	u.peak[e.Part] = max(u.peak[e.Part], e.PeakBytes)
	u.cpu = u.cpu.Plus(one(e.CPUSeconds))
}

// peaks returns the most bytes of memory that the processes of one place had, summed over the places.
func (u *usage) peaks() uint64 {
	total := uint64(0)
	for p := range maps.Values(u.peak) {
		total += p
	}
	return total
}

// step books a released step.
func (u *usage) step(e *Step) {
	for _, t := range e.Times {
		u.busy += float64(t.Compute.Microseconds()+t.Transfer.Microseconds()) / 1e6 // as the events have it
	}
	u.ended += uint64(len(e.Times))
	u.saving += e.SavingSeconds
	u.restore(e.Step - 1) // a step that comes again takes the one before back
	n := uint64(len(e.Counted))
	if last := len(u.counted) - 1; last >= 0 && u.counted[last].end == e.Step && u.counted[last].total == n*u.counted[last].steps() {
		u.counted[last].end++
		u.counted[last].total += n
		return
	}
	if len(u.counted) == 2*keptStretches {
		u.fold(keptStretches)
	}
	u.counted = append(u.counted, stretch{e.Step, e.Step + 1, n})
}

// keptStretches is how many stretches are remembered one by one, at the least. With a quota that is
// chosen before each step they are as many steps, and a restore seldom goes back so far.
const keptStretches = 1 << 15

// stretch is steps [from, end) that counted so many gradients together, each as many as the others.
// A record may begin at any step, so nothing is as long as steps are many.
type stretch struct{ from, end, total uint64 }

func (s stretch) steps() uint64 { return s.end - s.from }

// upTo returns what the steps before end have counted.
func (s stretch) upTo(end uint64) uint64 {
	hi, lo := bits.Mul64(s.total, end-s.from)
	part, _ := bits.Div64(hi, lo, s.steps()) // end <= s.end, so that it is at most the total
	return part
}

// fold makes one of the oldest stretches: a restore that goes back into them takes their steps to have counted alike.
func (u *usage) fold(n int) {
	all := stretch{from: u.counted[0].from, end: u.counted[n-1].end}
	for _, c := range u.counted[:n] {
		all.total += c.total
	}
	u.counted = append(u.counted[:0], u.counted[n-1:]...)
	u.counted[0] = all
}

// restore books that the steps after one are taken back.
func (u *usage) restore(step uint64) {
	for last := len(u.counted) - 1; last >= 0 && u.counted[last].end > step+1; last-- {
		c := &u.counted[last]
		from := max(c.from, step+1)
		left := c.upTo(from)
		u.lost += c.total - left
		if c.end, c.total = from, left; c.from == c.end {
			u.counted = u.counted[:last]
		}
	}
}

// keptReleases is how many releases are remembered, to see what a departure did to the steps around
// it, and usualSteps how many of them tell what a step takes otherwise.
const (
	keptReleases = 4096
	usualSteps   = 64
)

// released remembers a release.
func (u *usage) released(at float64) {
	if len(u.releases) == 2*keptReleases {
		u.releases = append(u.releases[:0], u.releases[keptReleases:]...)
	}
	u.releases = append(u.releases, at)
}

// longest returns the longest time between two releases that began at a time or later, or were under way at it.
func (u *usage) longest(from float64) float64 {
	gap := 0.0
	for i := len(u.releases) - 1; i > 0 && u.releases[i] >= from; i-- {
		gap = max(gap, u.releases[i]-u.releases[i-1])
	}
	return gap
}

// usual returns the median time of the steps before a time.
func (u *usage) usual(before float64) float64 {
	var took []float64
	for i := len(u.releases) - 1; i > 0 && len(took) < usualSteps; i-- {
		if u.releases[i] < before {
			took = append(took, u.releases[i]-u.releases[i-1])
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// of returns the usage of a run whose totals are s.
func (u *usage) of(s *Summary) cost.Usage {
	lagging := 0.0
	if s.Steps > 0 {
		perStep := max(0, s.WallSeconds-s.OutageSeconds) / float64(s.Steps+s.ReworkSteps)
		for _, f := range s.Failures {
			if f.PartialRework.Known() {
				lagging += max(0, float64(f.PartialRework)) * perStep
			}
		}
	}
	return cost.Usage{
		WallSeconds: s.WallSeconds, NodeSeconds: u.nodeSeconds(s.WallSeconds), Absent: u.absent, CPUSeconds: u.cpu, BusySeconds: u.busy,
		Computed: u.ended, Counted: s.CountedGradients, Useful: s.UsefulGradients, Accuracy: float64(s.FinalAccuracy), Replicas: u.replicas,
		SavingSeconds: u.saving, OutageSeconds: s.OutageSeconds, ReworkSeconds: s.ReworkSeconds, LaggingSeconds: lagging, HandingSeconds: u.handing,
	}
}

// bill returns what the run cost at the prices of its header.
func (u *usage) bill(s *Summary) *cost.Bill {
	p, ok, err := cost.Parse(u.prices)
	b := cost.BillOf(u.of(s), p, ok && err == nil)
	return &b
}

// Bill returns what the run cost at some prices, ok false for none. It is computed from the events,
// also where a summary.json of an earlier version has none.
func (run *Run) Bill(p cost.Prices, ok bool) cost.Bill {
	s := run.account.Summary()
	return cost.BillOf(run.account.usage.of(&s), p, ok)
}

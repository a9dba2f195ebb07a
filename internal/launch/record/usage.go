package record

import (
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
)

// usage adds up the resources that a run uses, in machine units.
type usage struct {
	prices   string      // of the newest header
	replicas int         // of the newest header
	places   cost.ByRole // of the newest header
	since    float64     // start of the counting for those places
	taken    cost.ByRole // node-seconds before that

	absent  cost.ByRole
	left    map[string]float64 // by part: when its newest process ended
	cpu     cost.ByRole
	peak    map[string]uint64 // by part: largest peak memory of its processes, in bytes
	busy    float64
	saving  float64
	ended   uint64    // gradients finished or given up
	counted []stretch // of the current line, ascending
	lost    uint64    // counted gradients of steps that were taken back

	releases []float64 // times of the newest releases, on any line
	handing  float64   // extra time of the steps around announced departures
}

// header begins or resumes the run with the given places.
func (u *usage) header(e *Header) {
	u.taken, u.since = u.nodeSeconds(e.Seconds), e.Seconds
	u.prices, u.replicas = e.Prices, e.Replicas
	u.places = cost.ByRole{Coordinator: 1, Server: float64(e.Servers), Worker: float64(e.Workers)}
	if !e.WentOn {
		u.left = make(map[string]float64) // the run did not exist meanwhile, so its places do not count as empty
	}
}

// nodeSeconds returns the node-seconds of all places up to a time.
func (u *usage) nodeSeconds(until float64) cost.ByRole {
	return u.taken.Plus(u.places.Times(until - u.since))
}

// life notes a process that has ended.
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

// peaks returns the largest peak memory of each place, summed over the places, in bytes.
func (u *usage) peaks() uint64 {
	total := uint64(0)
	for p := range maps.Values(u.peak) {
		total += p
	}
	return total
}

// step notes a released step.
func (u *usage) step(e *Step) {
	for _, t := range e.Times {
		u.busy += float64(t.Compute.Microseconds()+t.Transfer.Microseconds()) / 1e6 // with the precision of the events
	}
	u.ended += uint64(len(e.Times))
	u.saving += e.SavingSeconds
	u.restore(e.Step - 1) // a repeated step takes back the one before
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

// keptStretches is the least number of stretches that are kept separately. If the quota is chosen
// for each step, these are as many steps, and a restore seldom goes back so far.
const keptStretches = 1 << 15

// stretch is a range of steps [from, end) that counted total gradients, each step the same number.
// A record may begin at any step, so no array is indexed by steps.
type stretch struct{ from, end, total uint64 }

func (s stretch) steps() uint64 { return s.end - s.from }

// upTo returns the number of gradients counted by the steps before end.
func (s stretch) upTo(end uint64) uint64 {
	hi, lo := bits.Mul64(s.total, end-s.from)
	part, _ := bits.Div64(hi, lo, s.steps()) // end <= s.end, so the result is at most the total
	return part
}

// fold merges the n oldest stretches. A restore into them assumes that their steps counted equally
// many gradients.
func (u *usage) fold(n int) {
	all := stretch{from: u.counted[0].from, end: u.counted[n-1].end}
	for _, c := range u.counted[:n] {
		all.total += c.total
	}
	u.counted = append(u.counted[:0], u.counted[n-1:]...)
	u.counted[0] = all
}

// restore notes that the steps after the given one are taken back.
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

// keptReleases is the number of releases that are remembered, to see how a departure affected the
// steps around it. usualSteps is the number of these from which the usual time of a step is
// computed.
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

// usual returns the median time of the last steps before a time.
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

// of returns the usage of a run with the totals s.
func (u *usage) of(s *Summary) cost.Usage {
	lagging := 0.0
	if s.Steps > 0 {
		perStep := max(0, s.WallSeconds-s.OutageSeconds) / (float64(s.Steps) + float64(s.ReworkSteps))
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

// bill returns the cost of the run at the prices of its header.
func (u *usage) bill(s *Summary) *cost.Bill {
	p, ok, err := cost.Parse(u.prices)
	b := cost.BillOf(u.of(s), p, ok && err == nil)
	return &b
}

// Bill returns the cost of the run at the given prices; ok says whether the prices are known. It is
// computed from the events, even if summary.json is from an earlier version without costs.
func (run *Run) Bill(p cost.Prices, ok bool) cost.Bill {
	s := run.account.Summary()
	return cost.BillOf(run.account.usage.of(&s), p, ok)
}

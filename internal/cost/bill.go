package cost

import "math"

// Usage is the resources that a run used. Seconds are of the run's clock.
type Usage struct {
	WallSeconds float64
	NodeSeconds ByRole // of all places, from the beginning to the end of the run
	Absent      ByRole // part of NodeSeconds between the end of a process and the start of the next one in its place

	CPUSeconds  ByRole  // of all processes that have ended; zero: not known
	BusySeconds float64 // workers were computing or sending a gradient

	Computed uint64 // gradients finished or given up
	Counted  uint64 // gradients counted by steps
	Useful   uint64 // gradients counted by steps that were not taken back

	Accuracy float64 // of the last evaluation, in [0, 1]; NaN: none

	Replicas      int     // of each shard
	SavingSeconds float64 // steps waited for the checkpoint

	OutageSeconds  float64 // a failure waited for the next step
	ReworkSeconds  float64 // steps were repeated
	LaggingSeconds float64 // time of the steps by which partial recoveries fell behind
	HandingSeconds float64 // extra time of the steps around announced departures
}

// A Bill is what a run used, and what that cost. Unknown quantities are nil.
type Bill struct {
	WallSeconds   float64 `json:"wall_seconds"`
	NodeSeconds   ByRole  `json:"node_seconds"`
	AbsentSeconds ByRole  `json:"absent_node_seconds"` // part of node_seconds in which the place was empty
	CPUSeconds    *ByRole `json:"cpu_seconds"`         // null: not recorded

	WorkerBusy *float64 `json:"worker_busy_fraction"` // share of the workers' node-seconds spent computing or sending a gradient

	ComputedGradients uint64   `json:"computed_gradients"`
	UsefulGradients   uint64   `json:"useful_gradients"` // counted by steps that were not taken back
	UsefulFraction    *float64 `json:"useful_fraction"`

	Steady  Steady  `json:"steady_tax"`
	Failure Failure `json:"failure_tax"`

	Prices   string `json:"prices"`    // "": none were given
	OnDemand *Money `json:"on_demand"` // null: no prices were given
	Spot     *Money `json:"spot"`
}

// Steady is the cost of protecting a run while nothing fails.
type Steady struct {
	CheckpointNodeSeconds float64 `json:"checkpoint_node_seconds"` // all nodes, while steps wait for the checkpoint
	CopyNodeSeconds       float64 `json:"copy_node_seconds"`       // the share of the servers that holds copies, (R − 1) / R
	CopyCPUSeconds        float64 `json:"copy_cpu_seconds"`        // the same share of the servers' CPU time, an upper bound
	Fraction              float64 `json:"fraction"`                // of all node-seconds
}

// Failure is the cost of failures.
type Failure struct {
	OutageNodeSeconds float64 `json:"outage_node_seconds"` // all nodes, from a failure to the next step
	ReworkNodeSeconds float64 `json:"rework_node_seconds"` // all nodes, during repeated steps and the steps by which partial recoveries fell behind
	NoticeNodeSeconds float64 `json:"notice_node_seconds"` // all nodes, during the extra time of steps around announced departures
	Fraction          float64 `json:"fraction"`            // of all node-seconds
}

// Money is a bill in the currency of the prices.
type Money struct {
	Total   float64 `json:"total"`
	Steady  float64 `json:"steady_tax"`
	Failure float64 `json:"failure_tax"`

	PerPoint    *float64 `json:"per_accuracy_point"`        // null: the run has no accuracy above 0
	PerThousand *float64 `json:"per_1000_useful_gradients"` // null: there are no useful gradients
}

// BillOf computes a bill. If priced is false, the bill has no money.
func BillOf(u Usage, p Prices, priced bool) Bill {
	b := Bill{
		WallSeconds: u.WallSeconds, NodeSeconds: u.NodeSeconds, AbsentSeconds: u.Absent,
		WorkerBusy: share(u.BusySeconds, u.NodeSeconds.Worker), ComputedGradients: u.Computed, UsefulGradients: u.Useful,
		UsefulFraction: share(float64(u.Useful), float64(max(u.Computed, u.Counted))),
	}
	if u.CPUSeconds.Sum() > 0 {
		b.CPUSeconds = &u.CPUSeconds
	}
	t := u.taxes(u.NodeSeconds)
	steady, failure := t.steady(), t.failure()
	b.Steady.CheckpointNodeSeconds = t.saving.Sum()
	b.Steady.CopyNodeSeconds = t.copies.Sum()
	b.Steady.CopyCPUSeconds = u.copies(u.CPUSeconds).Sum()
	b.Failure.OutageNodeSeconds = t.outage.Sum()
	b.Failure.ReworkNodeSeconds = t.rework.Sum()
	b.Failure.NoticeNodeSeconds = t.notice.Sum()
	if all := u.NodeSeconds.Sum(); all > 0 {
		b.Steady.Fraction, b.Failure.Fraction = steady.Sum()/all, failure.Sum()/all
	}
	if !priced {
		return b
	}
	b.Prices = p.String()
	paid := u.NodeSeconds.Plus(u.Absent.Times(-1))
	b.OnDemand, b.Spot = u.money(p.OnDemand, u.NodeSeconds), u.money(p.Spot, paid)
	return b
}

// taxes are the node-seconds of the parts of the two taxes, by role.
type taxes struct{ outage, rework, notice, saving, copies ByRole }

func (t *taxes) steady() ByRole  { return t.saving.Plus(t.copies) }
func (t *taxes) failure() ByRole { return t.outage.Plus(t.rework).Plus(t.notice) }

// taxes returns which of the given node-seconds each part took. A part takes no more than the parts
// before it have left: what is measured may overlap, as when a repeated step ends an outage, and
// nobody pays twice.
func (u *Usage) taxes(all ByRole) (t taxes) {
	if u.WallSeconds <= 0 {
		return taxes{}
	}
	left := u.WallSeconds
	during := func(seconds float64) ByRole {
		seconds = min(seconds, left)
		left -= seconds
		return all.Times(seconds / u.WallSeconds)
	}
	t.outage, t.rework, t.notice = during(u.OutageSeconds), during(u.ReworkSeconds+u.LaggingSeconds), during(u.HandingSeconds)
	t.saving = during(u.SavingSeconds)
	t.copies = u.copies(all)
	t.copies.Server = min(t.copies.Server, all.Server*(left/u.WallSeconds))
	return t
}

// copies returns the share of the servers' resources that belongs to copies. A copy needs less work
// than the shard itself, as it starts from the sum of the gradients. But it takes this share of the
// machines, which must be paid for.
func (u *Usage) copies(all ByRole) ByRole {
	if u.Replicas < 2 {
		return ByRole{}
	}
	return ByRole{Server: all.Server * float64(u.Replicas-1) / float64(u.Replicas)}
}

// money multiplies paid node-seconds by hourly prices. Taxes have the same share of them as of all
// node-seconds, by role, so that on spot nobody pays a tax for absent nodes, which cost nothing.
func (u *Usage) money(prices, paid ByRole) *Money {
	const hour = 3600
	t := u.taxes(paid)
	m := &Money{Total: paid.dot(prices) / hour, Steady: t.steady().dot(prices) / hour, Failure: t.failure().dot(prices) / hour}
	if u.Accuracy > 0 {
		m.PerPoint = share(m.Total, 100*u.Accuracy)
	}
	m.PerThousand = share(1000*m.Total, float64(u.Useful))
	return m
}

// share returns x / of, or nil if that is not a finite number.
func share(x, of float64) *float64 {
	r := x / of
	if math.IsNaN(r) || math.IsInf(r, 0) {
		return nil
	}
	return &r
}

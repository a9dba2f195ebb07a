package cost

// Row is one line of a bill as a table.
type Row struct {
	Name           string
	Part           bool // a part of the last line above it that is no part; it has no money of its own
	NodeSeconds    float64
	Fraction       float64 // of all node-seconds
	OnDemand, Spot float64 // 0 without prices
}

// Rows returns a bill as a table: the total, the two taxes with their parts, and the rest.
func (b *Bill) Rows() []Row {
	all := b.NodeSeconds.Sum()
	row := func(name string, part bool, seconds float64) Row {
		r := Row{Name: name, Part: part, NodeSeconds: seconds}
		if all > 0 {
			r.Fraction = seconds / all
		}
		return r
	}
	whole := row("all nodes", false, all)
	steady := row("steady tax", false, b.Steady.Fraction*all)
	failure := row("failure tax", false, b.Failure.Fraction*all)
	rest := row("the rest", false, left(all, steady.NodeSeconds, failure.NodeSeconds))
	if b.OnDemand != nil {
		whole.OnDemand, whole.Spot = b.OnDemand.Total, b.Spot.Total
		steady.OnDemand, steady.Spot = b.OnDemand.Steady, b.Spot.Steady
		failure.OnDemand, failure.Spot = b.OnDemand.Failure, b.Spot.Failure
		rest.OnDemand, rest.Spot = left(whole.OnDemand, steady.OnDemand, failure.OnDemand), left(whole.Spot, steady.Spot, failure.Spot)
	}
	return []Row{
		whole,
		steady, row("steps that waited for the checkpoint", true, b.Steady.CheckpointNodeSeconds), row("copies on servers", true, b.Steady.CopyNodeSeconds),
		failure, row("from a loss to the next step", true, b.Failure.OutageNodeSeconds), row("steps done again", true, b.Failure.ReworkNodeSeconds),
		row("departures that were announced", true, b.Failure.NoticeNodeSeconds),
		rest,
	}
}

// left returns what two taxes leave of the whole. They never take more, apart from rounding.
func left(whole, steady, failure float64) float64 { return max(0, whole-steady-failure) }

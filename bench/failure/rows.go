package failure

import (
	"math"
	"slices"

	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// Row is a cell of the grid over all seeds: means, unless stated otherwise.
type Row struct {
	Name    string `json:"name"`
	Model   string `json:"model"`
	Preset  string `json:"preset"`
	Workers int    `json:"workers"`
	Kills   int    `json:"kills"`
	Seeds   int    `json:"seeds"`

	Final     record.Number `json:"final_accuracy"` // mean of the evaluations in the last fifth
	Deviation record.Number `json:"deviation"`      // of one run

	// By kill.
	Before  []record.Number `json:"accuracy_before"`
	After   []record.Number `json:"accuracy_after"`
	Gap     []record.Number `json:"gap_seconds"` // median
	Longest []record.Number `json:"longest_gap_seconds"`
	Pending []record.Number `json:"pending_gradients"`

	Redone  record.Number `json:"redone_steps"`
	Stays60 record.Number `json:"stays_above_60_percent_from_seconds"`
	Stays70 record.Number `json:"stays_above_70_percent_from_seconds"`

	// Hundredths of accuracy above the undisturbed runs with the same seeds, at equal numbers of
	// counted pushes; and above checkpoint/async, or checkpoint if steps are synchronous, after
	// equal times. Each has its standard error.
	OfUndisturbed      record.Number `json:"points_above_undisturbed_at_equal_gradients"`
	OfUndisturbedError record.Number `json:"points_above_undisturbed_error"`
	OfCheckpoint       record.Number `json:"points_above_checkpoint_at_equal_seconds"`
	OfCheckpointError  record.Number `json:"points_above_checkpoint_error"`

	Seconds     record.Number `json:"seconds"`
	Gradients   record.Number `json:"gradients"`       // computed gradients
	Useful      record.Number `json:"useful_fraction"` // of these: counted by a step that was not taken back
	Busy        record.Number `json:"busy_fraction"`
	BusyOutage  record.Number `json:"busy_fraction_in_outage"`
	ServerMB    record.Number `json:"server_megabytes"`
	WorkerMB    record.Number `json:"worker_megabytes"`
	NodeSeconds record.Number `json:"node_seconds"`
	PerPoint    record.Number `json:"node_seconds_per_point"` // per hundredth of accuracy above guessing

	// From the bill, from the first process to the last: shares of all node-seconds, and money if
	// there are prices.
	SteadyTax  record.Number `json:"steady_tax_fraction"`
	FailureTax record.Number `json:"failure_tax_fraction"`
	CPUSeconds record.Number `json:"cpu_seconds"`
	Money      record.Number `json:"money"`
	MoneyPoint record.Number `json:"money_per_accuracy_point"`

	Paper *Paper `json:"paper,omitempty"`

	runs []*Trial
}

// Rows combines the runs of all seeds.
func Rows(runs []Trial) []Row {
	var rows []Row
	for i := range runs {
		r := &runs[i]
		at := slices.IndexFunc(rows, func(x Row) bool {
			return x.Model == r.Model && x.Preset == r.Preset && x.Workers == r.Workers && x.Kills == r.Kills
		})
		if at < 0 {
			at = len(rows)
			rows = append(rows, Row{Model: r.Model, Preset: r.Preset, Workers: r.Workers, Kills: r.Kills})
		}
		rows[at].runs = append(rows[at].runs, r)
	}
	for i := range rows {
		rows[i].fill()
	}
	for i := range rows {
		rows[i].compare(rows)
	}
	return rows
}

func (r *Row) fill() {
	c := Cell{Model: r.Model, Preset: Preset{Name: r.Preset}, Workers: r.Workers, Kills: r.Kills}
	r.Name, r.Seeds = "failure/"+c.Name(), len(r.runs)
	r.Final, r.Deviation = r.spread(func(x *Trial) float64 { return x.end() })
	for k := range r.Kills {
		death := func(f func(d Death) float64) []float64 {
			return r.of(func(x *Trial) float64 {
				if k >= len(x.Deaths) {
					return math.NaN()
				}
				return f(x.Deaths[k])
			})
		}
		gaps := death(func(d Death) float64 { return float64(d.Gap) })
		r.Before = append(r.Before, average(death(func(d Death) float64 { return float64(d.Before) })))
		r.After = append(r.After, average(death(func(d Death) float64 { return float64(d.After) })))
		r.Pending = append(r.Pending, average(death(func(d Death) float64 { return float64(d.Pending) })))
		if len(gaps) == 0 {
			r.Gap, r.Longest = append(r.Gap, record.Unknown()), append(r.Longest, record.Unknown())
		} else {
			r.Gap, r.Longest = append(r.Gap, record.Number(bench.Median(gaps))), append(r.Longest, record.Number(slices.Max(gaps)))
		}
	}
	mean := func(f func(x *Trial) float64) record.Number { return average(r.of(f)) }
	r.Redone = mean(func(x *Trial) float64 { return float64(x.Redone) })
	r.Stays60 = mean(func(x *Trial) float64 { return x.stays(0.6) })
	r.Stays70 = mean(func(x *Trial) float64 { return x.stays(0.7) })
	r.Seconds = mean(func(x *Trial) float64 { return x.Seconds })
	r.Gradients = mean(func(x *Trial) float64 { return float64(x.Computed) })
	r.Useful = mean((*Trial).useful)
	r.Busy = mean(func(x *Trial) float64 { return float64(x.Busy) })
	r.BusyOutage = mean(func(x *Trial) float64 { return float64(x.BusyOutage) })
	r.ServerMB = mean(func(x *Trial) float64 { return float64(x.ServerMB) })
	r.WorkerMB = mean(func(x *Trial) float64 { return float64(x.WorkerMB) })
	r.NodeSeconds = mean(func(x *Trial) float64 { return x.NodeSeconds })
	r.PerPoint = mean(func(x *Trial) float64 { return x.NodeSeconds / (100 * (x.end() - 0.1)) })
	r.Paper = paperOf(r.Preset, r.Kills)
	bill := func(f func(b *cost.Bill) float64) record.Number {
		return mean(func(x *Trial) float64 {
			if x.Cost == nil {
				return math.NaN()
			}
			return f(x.Cost)
		})
	}
	money := func(f func(m *cost.Money) float64) record.Number {
		return bill(func(b *cost.Bill) float64 {
			if b.OnDemand == nil {
				return math.NaN()
			}
			return f(b.OnDemand)
		})
	}
	r.SteadyTax = bill(func(b *cost.Bill) float64 { return b.Steady.Fraction })
	r.FailureTax = bill(func(b *cost.Bill) float64 { return b.Failure.Fraction })
	r.CPUSeconds = bill(func(b *cost.Bill) float64 {
		if b.CPUSeconds == nil {
			return math.NaN()
		}
		return b.CPUSeconds.Sum()
	})
	r.Money = money(func(m *cost.Money) float64 { return m.Total })
	r.MoneyPoint = money(func(m *cost.Money) float64 {
		if m.PerPoint == nil {
			return math.NaN()
		}
		return *m.PerPoint
	})
}

// of returns f of each run, without unknown values.
func (r *Row) of(f func(x *Trial) float64) (list []float64) {
	for _, x := range r.runs {
		if v := f(x); !math.IsNaN(v) && !math.IsInf(v, 0) {
			list = append(list, v)
		}
	}
	return list
}

func (r *Row) spread(f func(x *Trial) float64) (mean, deviation record.Number) {
	list := r.of(f)
	_, deviation = bench.MeanDeviation(list)
	return average(list), deviation
}

func average(list []float64) record.Number {
	if len(list) == 0 {
		return record.Unknown()
	}
	return record.Number(bench.Mean(list))
}

// end returns the mean accuracy in the last fifth of a run, by pushes.
func (r *Trial) end() float64 {
	var list []float64
	for _, p := range r.Curve {
		if float64(p.Counted) >= lastPart*float64(r.Counted) {
			list = append(list, p.Accuracy)
		}
	}
	if len(list) == 0 {
		return float64(r.Final)
	}
	return bench.Mean(list)
}

// stays returns the second after which no evaluation is below the given accuracy, or NaN if the
// last one is below.
func (r *Trial) stays(accuracy float64) float64 {
	from := math.NaN()
	for _, p := range slices.Backward(r.Curve) {
		if p.Accuracy < accuracy {
			break
		}
		from = p.Seconds
	}
	return from
}

// useful returns the fraction of gradients that are in the final parameters.
func (r *Trial) useful() float64 {
	if r.Computed == 0 || r.Counted == 0 {
		return math.NaN()
	}
	redone := float64(r.Redone) / float64(r.steps()) * float64(r.Counted)
	kept := float64(r.Computed - r.Dropped)
	return max(0, kept-redone) / float64(r.Computed)
}

// steps returns the number of released steps, including lost ones.
func (r *Trial) steps() uint64 {
	if r.Async {
		return r.Counted
	}
	return r.Counted / uint64(max(1, r.Workers))
}

package report

import (
	"strconv"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

type billRow struct {
	Name, Seconds, Of string
	OnDemand, Spot    string
	Part              bool
}

// bill fills in what the run used, and what that cost if the prices are known.
func (p *page) bill(run *record.Run) {
	prices, ok, err := cost.Parse(run.Header.Prices)
	b := run.Bill(prices, ok && err == nil)
	if b.NodeSeconds.Sum() <= 0 {
		return
	}
	p.Priced = b.OnDemand != nil
	for _, r := range b.Rows() {
		row := billRow{Name: r.Name, Seconds: digits3(r.NodeSeconds), Of: percent(r.Fraction), Part: r.Part}
		if p.Priced && !r.Part {
			row.OnDemand, row.Spot = money(r.OnDemand), money(r.Spot)
		}
		p.Bill = append(p.Bill, row)
	}
	p.Paid = paid(&b)
}

// paid describes the parts of a bill.
func paid(b *cost.Bill) string {
	var parts []string
	add := func(text string, x *float64) {
		if x != nil {
			parts = append(parts, text+percent(*x))
		}
	}
	add("Workers were busy for ", b.WorkerBusy)
	add("steps that stayed counted so many of the gradients: ", b.UsefulFraction)
	if b.OnDemand != nil {
		if b.OnDemand.PerPoint != nil {
			parts = append(parts, "a point of accuracy cost "+money(*b.OnDemand.PerPoint)+" on demand, "+money(*b.Spot.PerPoint)+" on spot")
		}
		parts = append(parts, "an hour of a node costs "+b.Prices)
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + "."
}

// money formats an amount: small runs cost fractions of a cent.
func money(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

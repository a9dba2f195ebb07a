package cost

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/kintsugi-ml/kintsugi"
)

func TestPricesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]Prices{
		"server=0.1":                   {ByRole{Server: 0.1}, ByRole{Server: 0.1}},
		"server=0.1/0.03,worker=2/0.5": {ByRole{Server: 0.1, Worker: 2}, ByRole{Server: 0.03, Worker: 0.5}},
		" worker=0 , coordinator=1/1 ": {ByRole{Coordinator: 1}, ByRole{Coordinator: 1}},
		"worker=0/0.5,server=2/0":      {ByRole{Server: 2}, ByRole{Worker: 0.5}},
		"server=1e15":                  {ByRole{Server: 1e15}, ByRole{Server: 1e15}},
	} {
		got, ok, err := Parse(text)
		if err != nil || !ok || got != want {
			t.Errorf("Parse(%q) = %+v, %v, %v; want %+v", text, got, ok, err, want)
		}
		if again, _, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%q is read as %+v, %v; want %+v", got.String(), again, err, got)
		}
	}
	if _, ok, err := Parse(" "); ok || err != nil {
		t.Errorf("no prices: %v, %v", ok, err)
	}
	for _, text := range []string{"server", "server=", "server=-1", "server=NaN", "server=+Inf", "gpu=1", "server=1,server=2", "server=1/", "server=1/2/3", ",", "server=1e308", "server=1/1e16"} {
		if _, ok, err := Parse(text); ok || !errors.Is(err, kintsugi.ErrUsage) {
			t.Errorf("Parse(%q): %v, %v; want ErrUsage", text, ok, err)
		}
	}
}

// hour is an hour of one coordinator, two servers and four workers.
var hour = Usage{WallSeconds: 3600, NodeSeconds: ByRole{3600, 7200, 14400}, Accuracy: math.NaN(), Replicas: 1}

func TestABillIsWhatNodesTakeTimesTheirPrices(t *testing.T) {
	prices := Prices{OnDemand: ByRole{0.5, 1, 2}, Spot: ByRole{0.5, 0.25, 0.5}}
	for _, c := range []struct {
		name         string
		change       func(*Usage)
		demand, spot Money
		steady, fail float64 // fractions of the node-seconds
	}{
		{"nothing happens", func(*Usage) {}, Money{Total: 10.5}, Money{Total: 3}, 0, 0},
		{"a quarter of a worker's hour is missing: on spot it is not paid for", func(u *Usage) { u.Absent = ByRole{Worker: 900} },
			Money{Total: 10.5}, Money{Total: 2.875}, 0, 0},
		{"workers are there for a tenth of the hour, and half of it is an outage", func(u *Usage) { u.Absent, u.OutageSeconds = ByRole{Worker: 12960}, 1800 },
			Money{Total: 10.5, Failure: 5.25}, Money{Total: 1.2, Failure: 0.6}, 0, 0.5},
		{"steps wait for the checkpoint for a tenth", func(u *Usage) { u.SavingSeconds = 360 },
			Money{Total: 10.5, Steady: 1.05}, Money{Total: 3, Steady: 0.3}, 0.1, 0},
		{"two replicas: half of the servers", func(u *Usage) { u.Replicas = 2 },
			Money{Total: 10.5, Steady: 1}, Money{Total: 3, Steady: 0.25}, 1. / 7, 0},
		{"an outage, steps done again, a partial recovery and a departure", func(u *Usage) {
			u.OutageSeconds, u.ReworkSeconds, u.LaggingSeconds, u.HandingSeconds = 36, 72, 36, 36
		}, Money{Total: 10.5, Failure: 0.525}, Money{Total: 3, Failure: 0.15}, 0, 0.05},
		{"two replicas, and failures for three quarters: the copies are paid from the rest", func(u *Usage) { u.Replicas, u.OutageSeconds = 2, 2700 },
			Money{Total: 10.5, Steady: 0.5, Failure: 7.875}, Money{Total: 3, Steady: 0.125, Failure: 2.25}, 1. / 14, 0.75},
		{"nobody pays for more than there was", func(u *Usage) { u.OutageSeconds = 7200 }, Money{Total: 10.5, Failure: 10.5}, Money{Total: 3, Failure: 3}, 0, 1},
	} {
		u := hour
		c.change(&u)
		b := BillOf(u, prices, true)
		for _, x := range []struct {
			what      string
			got, want float64
		}{
			{"on demand", b.OnDemand.Total, c.demand.Total}, {"of it steady", b.OnDemand.Steady, c.demand.Steady}, {"of it failures", b.OnDemand.Failure, c.demand.Failure},
			{"on spot", b.Spot.Total, c.spot.Total}, {"of it steady", b.Spot.Steady, c.spot.Steady}, {"of it failures", b.Spot.Failure, c.spot.Failure},
			{"steady fraction", b.Steady.Fraction, c.steady}, {"failure fraction", b.Failure.Fraction, c.fail},
		} {
			if math.Abs(x.got-x.want) > 1e-12 {
				t.Errorf("%s: %s %v; want %v", c.name, x.what, x.got, x.want)
			}
		}
		if b.OnDemand.PerPoint != nil || b.OnDemand.PerThousand != nil || b.CPUSeconds != nil {
			t.Errorf("%s: something is told that is not known: %+v", c.name, b.OnDemand)
		}
	}
}

func TestABillSaysWhatAPointOfAccuracyAndAGradientCost(t *testing.T) {
	u := hour
	u.Accuracy, u.Computed, u.Counted, u.Useful, u.BusySeconds, u.CPUSeconds = 0.84, 5000, 4500, 4000, 3600, ByRole{Server: 100, Worker: 3000}
	b := BillOf(u, Prices{OnDemand: ByRole{Worker: 2.1}, Spot: ByRole{Worker: 0.84}}, true)
	for what, pair := range map[string][2]float64{
		"busy":             {*b.WorkerBusy, 0.25},
		"useful":           {*b.UsefulFraction, 0.8},
		"per point":        {*b.OnDemand.PerPoint, 0.1},
		"per point, spot":  {*b.Spot.PerPoint, 0.04},
		"per 1000":         {*b.OnDemand.PerThousand, 2.1},
		"CPU of the whole": {b.CPUSeconds.Sum(), 3100},
	} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s: %v; want %v", what, pair[0], pair[1])
		}
	}
}

// The rows of a bill come to what all nodes took and cost, and parts of a tax to the tax, also in a
// run that did little but fail.
func TestTheRowsOfABillComeToTheWhole(t *testing.T) {
	u := hour
	u.Replicas, u.SavingSeconds, u.OutageSeconds, u.ReworkSeconds, u.LaggingSeconds, u.HandingSeconds = 2, 36, 72, 108, 18, 9
	theRowsComeToTheWhole(t, u)
	for _, outage := range []float64{1700, 3300, 3500, 3600, 5000} {
		u.OutageSeconds = outage
		theRowsComeToTheWhole(t, u)
	}
	u.ReworkSeconds, u.SavingSeconds, u.Replicas = 4000, 4000, 3
	theRowsComeToTheWhole(t, u)
	u.Absent = ByRole{Coordinator: 10, Server: 1000, Worker: 14000}
	theRowsComeToTheWhole(t, u)
	idle := BillOf(Usage{Accuracy: math.NaN(), Replicas: 2, OutageSeconds: 1}, Prices{}, false)
	for _, r := range idle.Rows() {
		if r.NodeSeconds != 0 || r.Fraction != 0 {
			t.Errorf("a run that did nothing: %+v", r)
		}
	}
}

func theRowsComeToTheWhole(t *testing.T, u Usage) {
	t.Helper()
	b := BillOf(u, Prices{OnDemand: ByRole{0.5, 1, 2}, Spot: ByRole{0.5, 0.25, 0.75}}, true)
	var whole, sum, tax Row
	var parts float64
	for i, r := range b.Rows() {
		if math.Abs(r.Fraction-r.NodeSeconds/25200) > 1e-12 || r.NodeSeconds < 0 || r.Part && (r.OnDemand != 0 || r.Spot != 0) {
			t.Errorf("row %d: %+v", i, r)
		}
		switch {
		case i == 0:
			whole = r
		case r.Part:
			parts += r.NodeSeconds
		default:
			if tax.Name != "" && math.Abs(parts-tax.NodeSeconds) > 1e-9 {
				t.Errorf("the parts of %s are %v node-seconds, it is %v", tax.Name, parts, tax.NodeSeconds)
			}
			tax, parts = r, 0
			sum.NodeSeconds, sum.OnDemand, sum.Spot = sum.NodeSeconds+r.NodeSeconds, sum.OnDemand+r.OnDemand, sum.Spot+r.Spot
		}
	}
	spot := 4 - u.Absent.dot(ByRole{0.5, 0.25, 0.75})/3600
	if math.Abs(whole.OnDemand-10.5) > 1e-9 || math.Abs(whole.Spot-spot) > 1e-9 || whole.NodeSeconds != 25200 {
		t.Errorf("all nodes: %+v", whole)
	}
	if math.Abs(sum.NodeSeconds-whole.NodeSeconds) > 1e-9 || math.Abs(sum.OnDemand-whole.OnDemand) > 1e-9 || math.Abs(sum.Spot-whole.Spot) > 1e-9 {
		t.Errorf("the rows come to %+v, all nodes are %+v", sum, whole)
	}
}

func TestWithoutPricesThereIsNoMoney(t *testing.T) {
	if b := BillOf(hour, Prices{}, false); b.OnDemand != nil || b.Spot != nil || b.Prices != "" {
		t.Errorf("%+v", b)
	}
	if b := BillOf(Usage{Accuracy: math.NaN()}, Prices{}, true); b.OnDemand.Total != 0 || b.WorkerBusy != nil || b.UsefulFraction != nil {
		t.Errorf("a run that did nothing: %+v", b)
	}
}

// A bill says what each part of its taxes took, in node-seconds of all roles, and of copies in those
// of servers alone.
func TestABillNamesThePartsOfItsTaxes(t *testing.T) {
	u := hour
	u.Replicas, u.CPUSeconds, u.Absent = 3, ByRole{1, 600, 10000}, ByRole{Server: 100}
	u.SavingSeconds, u.OutageSeconds, u.ReworkSeconds, u.LaggingSeconds, u.HandingSeconds = 36, 72, 108, 18, 9
	prices := Prices{OnDemand: ByRole{0.5, 1, 2}, Spot: ByRole{0.5, 0.25, 2}}
	b := BillOf(u, prices, true)
	b.OnDemand, b.Spot, b.WorkerBusy, b.UsefulFraction = nil, nil, nil, nil // other tests are about these
	want := Bill{
		WallSeconds: 3600, NodeSeconds: ByRole{3600, 7200, 14400}, AbsentSeconds: ByRole{Server: 100}, CPUSeconds: &ByRole{1, 600, 10000},
		Steady:  Steady{CheckpointNodeSeconds: 36 * 7, CopyNodeSeconds: 4800, CopyCPUSeconds: 400, Fraction: (36*7 + 4800) / (3600 * 7.)},
		Failure: Failure{OutageNodeSeconds: 72 * 7, ReworkNodeSeconds: 126 * 7, NoticeNodeSeconds: 9 * 7, Fraction: 207 / 3600.},
		Prices:  "coordinator=0.5,server=1/0.25,worker=2",
	}
	for what, pair := range map[string][2]*float64{
		"checkpoint": {&b.Steady.CheckpointNodeSeconds, &want.Steady.CheckpointNodeSeconds}, "copies": {&b.Steady.CopyNodeSeconds, &want.Steady.CopyNodeSeconds},
		"CPU of copies": {&b.Steady.CopyCPUSeconds, &want.Steady.CopyCPUSeconds}, "steady": {&b.Steady.Fraction, &want.Steady.Fraction},
		"outage": {&b.Failure.OutageNodeSeconds, &want.Failure.OutageNodeSeconds}, "rework": {&b.Failure.ReworkNodeSeconds, &want.Failure.ReworkNodeSeconds},
		"notice": {&b.Failure.NoticeNodeSeconds, &want.Failure.NoticeNodeSeconds}, "failure": {&b.Failure.Fraction, &want.Failure.Fraction},
	} {
		if math.Abs(*pair[0]-*pair[1]) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, *pair[0], *pair[1])
		}
		*pair[0] = *pair[1]
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("%+v\nwant %+v", b, want)
	}
	u.WallSeconds = 0 // it is not known how long the run was
	if b := BillOf(u, prices, true); b.Failure.OutageNodeSeconds != 0 || b.Steady.CheckpointNodeSeconds != 0 {
		t.Errorf("%+v", b)
	}
}

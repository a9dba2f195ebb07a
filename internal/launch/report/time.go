package report

import (
	"html/template"
	"math"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// overTime draws loss, accuracy and throughput over time. Outages are gaps here, and repeated steps
// take their time.
func (s *story) overTime() template.HTML {
	f := &figure{name: "time", unit: "s", x: newScale(0, endOf(s.run), plotLeft, plotRight), bottom: 16}
	f.ticks = f.x.timeTicks(10)
	f.marks = s.outagesOverTime
	p := f.panel("loss", 210)
	p.scaleY(s.lossScale(), lossTicks)
	s.drawLossOverTime(p)
	s.checkpointMarks(p, func(c record.Checkpoint) float64 { return c.Seconds })
	s.accuracyPanel(f, s.outages(), func(e record.Evaluation) float64 { return e.Seconds })
	s.throughputPanel(f)
	return f.svg("loss, accuracy and steps per second over time")
}

// drawLossOverTime draws each piece of the history in its colour; each line of the run is a new
// curve.
func (s *story) drawLossOverTime(p *panel) {
	at := func(i int) float64 { return s.spans[i].Seconds }
	low := thin(len(s.spans), curvePoints, p.x.lo, p.x.hi, at, func(i int) float64 { return float64(s.spans[i].Low) }).low
	high := thin(len(s.spans), curvePoints, p.x.lo, p.x.hi, at, func(i int) float64 { return float64(s.spans[i].High) }).high
	var tracked []point
	p.clip(func() {
		p.area("shade", p.place(breakGaps(high, s.outages())), p.place(breakGaps(low, s.outages())))
		for _, piece := range s.runs() {
			class := [...]string{kept: "curve loss", lostSteps: "curve lost", mended: "curve gold"}[piece.kind]
			share := (at(piece.hi-1) - at(piece.lo)) / (p.x.hi - p.x.lo)
			limit := int(min(curvePoints, max(2, math.Ceil(share*curvePoints)))) // a step may be later than the end in the summary
			points := thin(piece.hi-piece.lo, limit, at(piece.lo), at(piece.hi-1)+1e-9,
				func(j int) float64 { return at(piece.lo + j) }, func(j int) float64 { return s.smooth[piece.lo+j] }).mean
			tracked = append(tracked, points...)
			p.path(class, p.place(breakGaps(points, s.outages())))
		}
	})
	if n := len(tracked); n > 0 {
		p.label("loss", tracked[n-1].y, digits(float64(s.run.Summary.FinalLoss)))
	}
	p.track("loss", "", 4, 1, tracked)
}

// outages returns the time ranges [from, to) in which no step could be released, if they are long
// enough to be visible.
func (s *story) outages() [][2]float64 {
	var spans [][2]float64
	for _, c := range s.failures() {
		if float64(c.RecoverySeconds) > 0.01*endOf(s.run) {
			spans = append(spans, [2]float64{c.Seconds, c.Seconds + float64(c.RecoverySeconds)})
		}
	}
	return spans
}

// breakGaps interrupts a curve where no step was released: a line across an outage would show
// losses that were never measured.
func breakGaps(points []point, spans [][2]float64) []point {
	var out []point
	for i, p := range points {
		if i > 0 {
			for _, span := range spans {
				if points[i-1].x <= span[0] && p.x >= span[1]-1e-9 {
					out = append(out, point{span[0], math.NaN()})
					break
				}
			}
		}
		out = append(out, p)
	}
	return out
}

// throughputPanel draws steps per second; the part that was repeated is gold.
func (s *story) throughputPanel(f *figure) {
	n := max(10, min(280, len(s.spans)/8))
	width := (f.x.hi - f.x.lo) / float64(n)
	rate, again := make([]float64, n), make([]float64, n)
	highest := 0.0
	for _, e := range s.spans {
		b := max(0, min(n-1, int((e.Seconds-f.x.lo)/width)))
		rate[b] += float64(e.Steps) / width
		if e.Again {
			again[b] += float64(e.Steps) / width
		}
		highest = max(highest, rate[b])
	}
	p := f.panel("steps per second", 110)
	p.scaleY(newScale(0, highest*1.08, 0, 0), func(s scale) []tick { return s.linearTicks(4, nil) })
	var zero, all, gold, middle []point
	for b := range rate {
		x := f.x.lo + float64(b)*width
		for _, at := range []float64{x, x + width} {
			zero = append(zero, point{at, 0})
			all = append(all, point{at, rate[b]})
			gold = append(gold, point{at, again[b]})
		}
		middle = append(middle, point{x + width/2, rate[b]})
	}
	p.area("fill loss", p.place(all), p.place(zero))
	p.area("fill gold", p.place(gold), p.place(zero))
	p.path("curve thin loss", p.place(all))
	mean := float64(s.run.Outline.Steps) / endOf(s.run)
	p.label("muted", mean, "mean "+digits3(mean))
	p.track("rate", " steps/s", 1, 1, middle)
}

// digits3 formats a rate with up to three digits, so that it fits beside a curve.
func digits3(x float64) string {
	if x >= 100 {
		return count(int(math.Round(x)))
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}

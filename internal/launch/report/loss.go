package report

import (
	"html/template"
	"math"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
	"github.com/kintsugi-ml/kintsugi/internal/words"
)

// lossScale chooses the y axis of the loss from its moving average and most of the single values,
// so that one extreme batch does not flatten the curve. The axis is logarithmic if the loss falls
// by a factor of more than 30.
func (s *story) lossScale() scale {
	least, greatest := make([]float64, len(s.spans)), make([]float64, len(s.spans))
	for i, e := range s.spans {
		least[i], greatest[i] = float64(e.Low), float64(e.High)
	}
	lo, hi, ok := between(s.smooth, 0)
	if !ok {
		return newScale(0, 1, 0, 0)
	}
	most := 1 - math.Pow(0.99, float64(max(1, s.run.Outline.Each))) // the minimum of so many steps is likely to lie below the lowest percent of all steps
	if rawLo, _, ok := between(least, min(0.5, most)); ok {
		lo = min(lo, rawLo)
	}
	if _, rawHi, ok := between(greatest, min(0.5, most)); ok {
		hi = max(hi, rawHi)
	}
	if lo > 0 && hi/lo > 30 {
		s := newScale(lo/1.1, hi*1.1, 0, 0)
		s.log = true
		return s
	}
	if lo > 0 && lo < 0.35*hi {
		lo = 0
	}
	margin := 0.04 * (hi - lo)
	if lo != 0 {
		lo -= margin
	}
	return newScale(lo, hi+margin, 0, 0)
}

func lossTicks(s scale) []tick {
	if s.log {
		return s.logTicks()
	}
	return s.linearTicks(5, nil)
}

// lossOverSteps draws the loss by step. Lost steps are a second line over the same steps; repeated
// steps are gold.
func (s *story) lossOverSteps() template.HTML {
	highest := 1.0
	for _, e := range s.spans {
		highest = max(highest, float64(e.Last))
	}
	f := &figure{name: "steps", unit: "step", x: newScale(0, highest, plotLeft, plotRight), bottom: 16}
	f.ticks = f.x.stepTicks(10)
	f.marks = s.failuresOverSteps
	p := f.panel("loss", 290)
	p.scaleY(s.lossScale(), lossTicks)
	step := func(i int) float64 { return float64(s.spans[i].Last) }
	s.drawLoss(p, step, s.survivors())
	s.checkpointMarks(p, func(c record.Checkpoint) float64 { return float64(c.Step) })
	s.accuracyPanel(f, nil, func(e record.Evaluation) float64 { return float64(e.Step) })
	return f.svg("loss over steps")
}

// drawLoss draws the range of the single losses as a shade, the moving average of the surviving
// steps as a curve, and the lost and repeated pieces over it.
func (s *story) drawLoss(p *panel, x func(i int) float64, base []int) {
	of := func(y func(i int) float64) envelope {
		return thin(len(base), curvePoints, p.x.lo, p.x.hi, func(j int) float64 { return x(base[j]) }, func(j int) float64 { return y(base[j]) })
	}
	low, high := of(func(i int) float64 { return float64(s.spans[i].Low) }).low, of(func(i int) float64 { return float64(s.spans[i].High) }).high
	mean := of(func(i int) float64 { return s.smooth[i] }).mean
	p.clip(func() {
		p.area("shade", p.place(high), p.place(low))
		if len(base) <= curvePoints {
			p.path("single", p.place(of(func(i int) float64 { return float64(s.spans[i].Loss) }).mean))
		}
		p.path("curve loss", p.place(mean))
		s.drawPieces(p, x, mended, "curve gold")
		s.drawPieces(p, x, lostSteps, "curve lost")
	})
	if n := len(mean); n > 0 {
		p.label("loss", mean[n-1].y, digits(float64(s.run.Summary.FinalLoss)))
	}
	p.track("loss", "", 4, 1, mean)
}

// drawPieces draws all pieces of one kind.
func (s *story) drawPieces(p *panel, x func(i int) float64, k kind, class string) {
	for _, piece := range s.runs() {
		if piece.kind != k {
			continue
		}
		points := thin(piece.hi-piece.lo, 80, x(piece.lo), x(piece.hi-1)+1e-9,
			func(j int) float64 { return x(piece.lo + j) }, func(j int) float64 { return s.smooth[piece.lo+j] }).mean
		p.path(class, p.place(points))
	}
}

// accuracyPanel adds a panel with the evaluations, if any have an accuracy. The curve is
// interrupted in the ranges of x in which nothing could be measured.
func (s *story) accuracyPanel(f *figure, spans [][2]float64, x func(record.Evaluation) float64) {
	var points []point
	lo, hi := 1.0, 0.0
	for _, e := range s.run.Evaluations {
		if e.Accuracy.Known() {
			points = append(points, point{x(e), float64(e.Accuracy)})
			lo, hi = min(lo, float64(e.Accuracy)), max(hi, float64(e.Accuracy))
		}
	}
	if len(points) == 0 {
		return
	}
	p := f.panel("accuracy", 110)
	p.scaleY(accuracyScale(lo, hi), accuracyTicks)
	if len(points) > curvePoints {
		points = thin(len(points), curvePoints, p.x.lo, p.x.hi,
			func(i int) float64 { return points[i].x }, func(i int) float64 { return points[i].y }).mean
	}
	placed := p.place(points)
	p.path("curve accuracy", p.place(breakGaps(points, spans)))
	if len(points) <= 60 {
		for _, at := range placed {
			p.circle("dot accuracy", at.x, at.y, 2.5)
		}
	}
	last := points[len(points)-1].y
	p.label("accuracy", last, percent(last))
	p.track("accuracy", " %", 1, 100, points)
}

func accuracyScale(lo, hi float64) scale {
	margin := max(0.02, 0.06*(hi-lo))
	return newScale(max(0, lo-margin), min(1, hi+margin), 0, 0)
}

func accuracyTicks(s scale) []tick {
	return s.linearTicks(4, func(v float64) string { return strconv.FormatFloat(math.Round(v*1e3)/10, 'f', -1, 64) + " %" })
}

// checkpointMarks draws a small diamond on the axis for each full checkpoint and each save that
// failed, unless marks would overlap.
func (s *story) checkpointMarks(p *panel, x func(record.Checkpoint) float64) {
	last := math.Inf(-1)
	for _, c := range s.run.Checkpoints {
		at := p.x.at(x(c))
		if c.Running && c.Error == "" { // there is one every few steps, and they would hide the others
			continue
		}
		if at-last < 5 && at >= last {
			continue
		}
		last = at
		class, text := "checkpoint", "checkpoint of step "+count(c.Step)+", "+words.Bytes(float64(c.Bytes))
		if c.Error != "" {
			class, text = "checkpoint bad", "checkpoint of step "+count(c.Step)+" went wrong: "+c.Error
		}
		p.WriteString(`<path class="` + class + `" d="M` + px(at) + " " + px(p.bottom-8) + `l4 4l-4 4l-4-4z">` + title(text) + `</path>`)
	}
}

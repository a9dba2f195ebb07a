package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// maxServers is the limit on curves of single servers; if there are more, only the most and the
// least expensive are drawn.
const maxServers = 6

// whatLossesCost draws what the loss of each server would have cost, in steps, over time. Dots show
// what real losses cost. A curve has a gap where its value was not known.
func (s *story) whatLossesCost() template.HTML {
	var parts []string
	curves := make(map[string][]point)
	highest := 1.0
	for _, e := range s.run.Exposures {
		for _, c := range e.Servers {
			switch {
			case !c.Steps.Known() && curves[c.Part] == nil:
				continue
			case !c.Steps.Known():
				curves[c.Part] = append(curves[c.Part], point{e.Seconds, math.NaN()})
				continue
			case curves[c.Part] == nil:
				parts = append(parts, c.Part)
			}
			curves[c.Part] = append(curves[c.Part], point{e.Seconds, float64(c.Steps)})
			highest = math.Max(highest, float64(c.Steps))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	var measured []point
	for _, r := range s.run.Reworks {
		if at, ok := s.failed(r.Part, r.Seconds); ok && r.Measured.Known() {
			measured = append(measured, point{at, math.Max(0, float64(r.Measured))})
			highest = math.Max(highest, float64(r.Measured))
		}
	}
	f := &figure{name: "costs", unit: "s", x: newScale(0, endOf(s.run), plotLeft, plotRight), bottom: 16}
	f.ticks = f.x.timeTicks(10)
	f.marks = s.outagesOverTime
	p := f.panel("steps that the loss of a server would cost", 160)
	p.scaleY(newScale(0, highest*1.08, 0, 0), func(s scale) []tick { return s.linearTicks(4, nil) })
	last := func(part string) (y float64) {
		for _, at := range slices.Backward(curves[part]) {
			if y = at.y; !math.IsNaN(y) {
				break
			}
		}
		return y
	}
	slices.SortFunc(parts, func(a, b string) int { return int(math.Copysign(1, last(b)-last(a))) })
	if len(parts) > maxServers {
		parts = []string{parts[0], parts[len(parts)-1]}
	}
	for i, part := range parts {
		points := curves[part]
		if len(points) > curvePoints {
			points = thin(len(points), curvePoints, p.x.lo, p.x.hi,
				func(i int) float64 { return points[i].x }, func(i int) float64 { return points[i].y }).mean
		}
		p.path("curve thin "+serverColours[i%len(serverColours)], p.place(points))
		p.track(part, " steps", 1, 1, points)
	}
	for _, at := range p.place(measured) {
		p.circle("dot reason", at.x, at.y, 4)
	}
	now := digits3(last(parts[0]))
	if newest := curves[parts[0]]; math.IsNaN(newest[len(newest)-1].y) {
		now = "unknown"
	}
	p.label("muted", last(parts[0]), parts[0]+" "+now)
	s.howOldTheCheckpointWas(f)
	return f.svg("what the loss of each server would have cost, over time")
}

// howOldTheCheckpointWas adds a panel with the age of the newest full checkpoint.
func (s *story) howOldTheCheckpointWas(f *figure) {
	var points []point
	highest := 0.0
	for _, e := range s.run.Exposures {
		if e.AgeSeconds.Known() {
			points = append(points, point{e.Seconds, float64(e.AgeSeconds)})
			highest = math.Max(highest, float64(e.AgeSeconds))
		}
	}
	if highest == 0 {
		return
	}
	p := f.panel("seconds since the version that the newest checkpoint has", 60)
	p.scaleY(newScale(0, highest*1.08, 0, 0), func(s scale) []tick { return s.linearTicks(2, nil) })
	p.path("curve thin muted", p.place(points))
	p.track("checkpoint", " s", 1, 1, points)
	p.label("muted", points[len(points)-1].y, digits3(points[len(points)-1].y))
}

// serverColours are the classes of the curves.
var serverColours = []string{"loss", "accuracy", "muted"}

// failed returns the time of the newest failure of a part before a time.
func (s *story) failed(part string, before float64) (at float64, ok bool) {
	for _, f := range s.run.Summary.Failures {
		if f.Part == part && f.Seconds <= before {
			at, ok = f.Seconds, true
		}
	}
	return at, ok
}

// unknown says how often the cost of a loss was not known, and the last reason; "" if it was always
// known.
func unknown(exposures []record.Exposure) string {
	blind, why := 0, ""
	for _, e := range exposures {
		if i := slices.IndexFunc(e.Servers, func(c record.ServerCost) bool { return !c.Steps.Known() }); i >= 0 {
			blind, why = blind+1, e.Servers[i].Why
		}
	}
	if blind == 0 {
		return ""
	}
	return fmt.Sprintf("Not known in %d of %d looks; at last: %s. ", blind, len(exposures), why)
}

// foretold compares the predictions and measurements of partial recoveries; "" if there are none.
func foretold(reworks []record.Rework) string {
	if len(reworks) == 0 {
		return ""
	}
	last := reworks[len(reworks)-1]
	var predicted, measured, variance float64
	n := 0
	for _, r := range reworks {
		if r.Predicted.Known() && r.Measured.Known() {
			predicted, measured, n = predicted+float64(r.Predicted), measured+float64(r.Measured), n+1
			variance += float64(r.Deviation) * float64(r.Deviation)
		}
	}
	if n == 0 {
		return ""
	}
	return plural(n, "partial restore") + " predicted to cost " + digits3(predicted) + " steps, measured " + digits3(measured) + " ± " +
		digits3(math.Sqrt(variance)) + "; predictions are now multiplied by " + strconv.FormatFloat(last.Calibration, 'f', 2, 64) + "."
}

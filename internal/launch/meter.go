package launch

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kintsugi-ml/kintsugi"
)

// Progress is the state of a run at one moment, for the progress line.
type Progress struct {
	Step, Steps    kintsugi.Step // newest released step, and number of steps of the run; Steps 0: no end is known
	StepsPerSecond float64       // over the last seconds, including outages
	Loss           float64       // moving average; NaN before the first step
	Accuracy       float64       // of the last evaluation, in [0, 1]; NaN if there was none
	Alive, Workers int           // members at the newest step, and number of workers that the run was started with
	Staleness      uint32        // largest staleness among the gradients of the newest step
	BytesPerSecond float64       // pushed and pulled
	Left           time.Duration // estimate; 0: unknown
	Broken         []string      // parts that are down or paused now, such as "server/0 down 2.3s"
	// AtRisk is what the most expensive loss of a server would cost now, in steps. NaN: not known. 0:
	// nothing, or not computed.
	AtRisk   float64
	SavedAgo time.Duration // time since the newest full checkpoint's version was the newest; 0: not known
}

// field is one field of the line. If there is not enough room, the fields with the highest rank are
// left out first.
type field struct {
	rank int
	text string
}

func (p Progress) fields() []field {
	steps := "step " + commas(uint64(p.Step))
	if p.Steps > 0 {
		steps += fmt.Sprintf("/%s %d%%", commas(uint64(p.Steps)), 100*p.Step/p.Steps)
	}
	fs := []field{{0, steps}}
	add := func(rank int, shown bool, format string, args ...any) {
		if shown {
			fs = append(fs, field{rank, fmt.Sprintf(format, args...)})
		}
	}
	add(1, len(p.Broken) > 0, "[%s]", strings.Join(p.Broken, ", "))
	add(3, true, "%s steps/s", threeDigits(p.StepsPerSecond))
	add(2, !math.IsNaN(p.Loss), "loss %.4g", p.Loss)
	add(5, !math.IsNaN(p.Accuracy), "accuracy %.1f%%", 100*p.Accuracy)
	add(6, p.Workers > 0 && p.Step > 0, "%d/%d workers", p.Alive, p.Workers)
	add(8, p.Staleness > 0, "stale %d", p.Staleness)
	add(7, p.BytesPerSecond > 0, "%s", rateText(p.BytesPerSecond))
	add(9, p.AtRisk > 0, "%s steps at risk", threeDigits(p.AtRisk))
	add(9, math.IsNaN(p.AtRisk), "steps at risk unknown")
	add(10, p.SavedAgo > 0, "checkpoint %s old", trimDuration(p.SavedAgo.Round(time.Second)))
	add(4, p.Left > 0, "%s left", trimDuration(p.Left.Round(time.Second)))
	return fs
}

// Line formats the progress in at most width columns. It leaves out the least important fields
// until the rest fits.
func (p Progress) Line(width int) string {
	fs := p.fields()
	for {
		texts := make([]string, len(fs))
		worst := 0
		for i, f := range fs {
			texts[i] = f.text
			if f.rank > fs[worst].rank {
				worst = i
			}
		}
		line := strings.Join(texts, "  ")
		if utf8.RuneCountInString(line) <= width {
			return line
		}
		if len(fs) == 1 {
			return string([]rune(line)[:max(0, width)])
		}
		fs = slices.Delete(fs, worst, worst+1)
	}
}

// Attrs returns the progress for a structured log, with units in the names.
func (p Progress) Attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Uint64("step", uint64(p.Step))}
	if p.Steps > 0 {
		attrs = append(attrs, slog.Uint64("steps", uint64(p.Steps)))
	}
	attrs = append(attrs, slog.Float64("steps_per_second", tenths(p.StepsPerSecond)))
	// A JSON log cannot hold NaN.
	if !math.IsNaN(p.Loss) && !math.IsInf(p.Loss, 0) {
		attrs = append(attrs, slog.Float64("loss", p.Loss))
	}
	if !math.IsNaN(p.Accuracy) {
		attrs = append(attrs, slog.Float64("accuracy", p.Accuracy))
	}
	if p.Step > 0 {
		attrs = append(attrs, slog.Int("workers_alive", p.Alive))
	}
	attrs = append(attrs, slog.Int("workers", p.Workers), slog.Int("staleness_steps", int(p.Staleness)),
		slog.Float64("bytes_per_second", math.Round(p.BytesPerSecond)))
	if p.AtRisk > 0 {
		attrs = append(attrs, slog.Float64("at_risk_steps", tenths(p.AtRisk)))
	}
	if math.IsNaN(p.AtRisk) {
		attrs = append(attrs, slog.String("at_risk_steps", "unknown"))
	}
	if p.SavedAgo > 0 {
		attrs = append(attrs, slog.Float64("checkpoint_age_seconds", tenths(p.SavedAgo.Seconds())))
	}
	if p.Left > 0 {
		attrs = append(attrs, slog.Float64("left_seconds", math.Round(p.Left.Seconds())))
	}
	if len(p.Broken) > 0 {
		attrs = append(attrs, slog.String("broken", strings.Join(p.Broken, ", ")))
	}
	return attrs
}

func tenths(x float64) float64 { return math.Round(x*10) / 10 }

func threeDigits(x float64) string {
	switch {
	case x >= 100:
		return commas(uint64(x + 0.5))
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

func rateText(perSecond float64) string {
	for _, unit := range []string{"B/s", "kB/s", "MB/s"} {
		if perSecond < 999.5 {
			return strconv.FormatFloat(perSecond, 'f', 1, 64) + " " + unit
		}
		perSecond /= 1000
	}
	return strconv.FormatFloat(perSecond, 'f', 1, 64) + " GB/s"
}

func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// The rate is measured over the last window, which is divided into slices, so that a meter stays
// small however many steps per second there are. Both values are guesses: smooth enough to read,
// fast enough to show an outage.
const (
	meterWindow = 5 * time.Second
	meterSlice  = 250 * time.Millisecond
)

// Meter computes Progress from the events of a run. Times are arguments, and must not go back by
// more than a slice. It is not safe for concurrent use.
type Meter struct {
	steps    kintsugi.Step
	workers  int
	newest   kintsugi.StepEvent
	loss     float64
	accuracy float64
	begun    time.Time
	slices   []meterSliceSum // oldest first; all within the window
	broken   []brokenPart    // oldest first
}

type meterSliceSum struct {
	start time.Time
	steps int
	bytes uint64
}

type brokenPart struct {
	part  Part
	how   string
	since time.Time
}

// NewMeter returns a meter of a run that begins at start and has the given numbers of steps (0: no
// end) and of workers.
func NewMeter(start time.Time, steps kintsugi.Step, workers int) *Meter {
	return &Meter{steps: steps, workers: workers, loss: math.NaN(), accuracy: math.NaN(), begun: start}
}

// Step notes a released step.
func (m *Meter) Step(e kintsugi.StepEvent) {
	m.newest = e
	if !math.IsNaN(e.Loss) && !math.IsInf(e.Loss, 0) {
		if math.IsNaN(m.loss) {
			m.loss = e.Loss
		}
		m.loss += 0.1 * (e.Loss - m.loss)
	}
	n := len(m.slices)
	if n == 0 || e.Time.Sub(m.slices[n-1].start) >= meterSlice {
		m.slices = append(m.slices, meterSliceSum{start: e.Time})
		n++
	}
	m.slices[n-1].steps++
	m.slices[n-1].bytes += e.Pushed + e.Pulled
	m.forget(e.Time)
}

func (m *Meter) forget(now time.Time) {
	m.slices = slices.DeleteFunc(m.slices, func(s meterSliceSum) bool { return now.Sub(s.start) > meterWindow })
}

// Evaluated notes the accuracy of an evaluation, in [0, 1].
func (m *Meter) Evaluated(accuracy float64) { m.accuracy = accuracy }

// Process notes an event of a process. Parts that are dead or paused are listed in Progress.Broken.
func (m *Meter) Process(e ProcessEvent) {
	m.broken = slices.DeleteFunc(m.broken, func(b brokenPart) bool { return b.part == e.Part })
	switch e.Kind {
	case ProcessKilled, ProcessDied, ProcessGivenUp:
		since := e.Time
		if !e.KilledAt.IsZero() {
			since = e.KilledAt
		}
		m.broken = append(m.broken, brokenPart{e.Part, "down", since})
	case ProcessPaused:
		m.broken = append(m.broken, brokenPart{e.Part, "paused", e.Time})
	}
}

// At returns the progress at time now.
func (m *Meter) At(now time.Time) Progress {
	m.forget(now)
	p := Progress{Step: m.newest.Step, Steps: m.steps, Loss: m.loss, Accuracy: m.accuracy,
		Alive: int(m.newest.Workers), Workers: m.workers, Staleness: m.newest.Staleness}
	span := min(meterWindow, now.Sub(m.begun))
	if span > 0 {
		steps, bytes := 0, uint64(0)
		for _, s := range m.slices {
			steps += s.steps
			bytes += s.bytes
		}
		p.StepsPerSecond = float64(steps) / span.Seconds()
		p.BytesPerSecond = float64(bytes) / span.Seconds()
	}
	if p.Steps > p.Step && p.StepsPerSecond > 0 {
		left := float64(p.Steps-p.Step) / p.StepsPerSecond
		p.Left = time.Duration(min(left, 1e9) * float64(time.Second)) // a longer time would overflow
	}
	for _, b := range m.broken {
		p.Broken = append(p.Broken, fmt.Sprintf("%s %s %.1fs", b.part, b.how, max(0, now.Sub(b.since).Seconds())))
	}
	return p
}

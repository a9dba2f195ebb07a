package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// ganttRows is the largest number of workers, and of shards, in the picture of one step.
const ganttRows = 16

// part is one part of a worker's round or of a shard's step.
type part struct {
	class, name string
	of          func(record.Round) time.Duration
}

// parts lists the parts of a round, in order.
var parts = []part{
	{"wait", "waiting", func(r record.Round) time.Duration { return r.Wait }},
	{"pull", "pull", func(r record.Round) time.Duration { return r.Pull }},
	{"compute", "compute", func(r record.Round) time.Duration { return r.Compute }},
	{"encode", "encode", func(r record.Round) time.Duration { return r.Encode }},
	{"send", "send", func(r record.Round) time.Duration { return r.Send }},
	{"answers", "heads' answers", func(r record.Round) time.Duration { return r.Answers }},
}

// stepKey is one entry of the legend: a part, and its median time.
type stepKey struct{ Class, Name, Value string }

// oneStep draws the sampled step with the median length, as one strip for each worker and shard.
func (s *story) oneStep() (template.HTML, []stepKey) {
	t, ok := s.typical()
	if !ok {
		return "", nil
	}
	total := (t.WaitSeconds + t.ApplySeconds) * 1e3
	f := &figure{name: "gantt", unit: "ms", x: newScale(0, total, plotLeft, plotRight), bottom: 16}
	f.ticks = f.x.linearTicks(10, func(v float64) string { return digits3(v) + " ms" })
	const pitch = 22.0
	workers, shards := t.Workers[:min(len(t.Workers), ganttRows)], t.Shards[:min(len(t.Shards), ganttRows)]
	p := f.panel(fmt.Sprintf("step %s, from the release before to its own", count(t.Step)), pitch*float64(len(workers)+len(shards)))
	y := p.top
	row := func(name string) {
		p.rect("strip", plotLeft, y+1, plotRight-plotLeft, pitch-3)
		p.text("tick end", plotLeft-8, y+pitch/2+3, name)
	}
	bar := func(class, name string, lo, hi time.Duration, top, height float64) {
		a, b := max(0, ms(lo)), min(total, ms(hi))
		if b > a {
			x := f.x.at(a)
			fmt.Fprintf(p, `<rect class="bar %s" x="%s" y="%s" width="%s" height="%s">%s</rect>`, class, px(x), px(top), px(max(0.6, f.x.at(b)-x)), px(height),
				title(fmt.Sprintf("%s %s ms", name, digits3(ms(hi-lo)))))
		}
	}
	for _, w := range workers {
		row(fmt.Sprintf("worker/%d", w.Slot))
		end := w.Told
		for _, q := range slices.Backward(parts) {
			d := q.of(w)
			bar(q.class, q.name, end-d, end, y+1, pitch-3)
			if q.class == "compute" {
				bar("hidden", "of it encoding and sending", end-w.Hidden, end, y+pitch-8, 6)
			}
			end -= d
		}
		y += pitch
	}
	for _, h := range shards {
		row(fmt.Sprintf("shard %d", h.Shard))
		bar("publish", "publish", 0, h.Publish, y+1, pitch-3)
		bar("ahead", "kernel, on what had landed before the commit", h.Told-h.Kernel-h.Ahead, h.Told-h.Kernel, y+1, pitch-3)
		bar("kernel", "kernel", h.Told-h.Kernel, h.Told, y+1, pitch-3)
		y += pitch
	}
	x := f.x.at(t.WaitSeconds * 1e3)
	f.line("commit", x, p.top, x, p.bottom)
	p.text("mark middle", x, p.top-3, "commit")
	return f.svg("what workers and shards did in one step"), s.stepKeys()
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// typical returns the sampled step with the median length, or false if there is none.
func (s *story) typical() (record.Timeline, bool) {
	all := slices.DeleteFunc(slices.Clone(s.run.Timelines), func(t record.Timeline) bool {
		return len(t.Workers) == 0 || !(t.WaitSeconds+t.ApplySeconds > 0)
	})
	if len(all) == 0 {
		return record.Timeline{}, false
	}
	slices.SortStableFunc(all, func(a, b record.Timeline) int {
		return int(math.Copysign(1, a.WaitSeconds+a.ApplySeconds-b.WaitSeconds-b.ApplySeconds))
	})
	return all[len(all)/2], true
}

// stepKeys returns the median time of each part over all sampled rounds.
func (s *story) stepKeys() []stepKey {
	var keys []stepKey
	add := func(class, name string, times []float64) {
		if len(times) > 0 {
			slices.Sort(times)
			keys = append(keys, stepKey{class, name, digits3(times[len(times)/2]) + " ms"})
		}
	}
	for _, q := range parts {
		var times []float64
		for _, t := range s.run.Timelines {
			for _, w := range t.Workers {
				times = append(times, ms(q.of(w)))
			}
		}
		add(q.class, q.name, times)
	}
	var kernel, ahead, publish, hidden []float64
	for _, t := range s.run.Timelines {
		for _, w := range t.Workers {
			hidden = append(hidden, ms(w.Hidden))
		}
		for _, h := range t.Shards {
			kernel, ahead, publish = append(kernel, ms(h.Kernel)), append(ahead, ms(h.Ahead)), append(publish, ms(h.Publish))
		}
	}
	add("hidden", "of computing: encode and send", hidden)
	add("ahead", "kernel of a shard, before the commit", ahead)
	add("kernel", "kernel of a shard, after it", kernel)
	add("publish", "publish of a shard", publish)
	return keys
}

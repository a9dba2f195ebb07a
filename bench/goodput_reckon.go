package bench

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// What a run came to in a stretch of its time. Everything here is a function of its events alone.

// stretch is a stretch of a run's clock, in seconds. Failures begin in it; what they take back may come after it.
type stretch struct{ from, to float64 }

// newestAt returns the newest step that a run had released at a time and not taken back by then, 0 before the first.
func newestAt(run *record.Run, at float64) (newest uint64) {
	line, restores := uint64(0), run.Summary.Restores
	restore := func(until float64) {
		for len(restores) > 0 && restores[0].Seconds <= until {
			if restores[0].Line > line {
				line, newest = restores[0].Line, restores[0].RestoredStep
			}
			restores = restores[1:]
		}
	}
	for _, s := range run.Steps {
		if s.Seconds > at {
			break
		}
		if restore(s.Seconds); s.Line >= line { // else a straggler of a line that is over
			line, newest = s.Line, s.Step
		}
	}
	restore(at)
	return newest
}

// stayed returns how many steps further the run was at the end of the stretch than at its
// beginning, by steps that were not taken back, then or later. It may be negative: a run can go
// back to before the stretch.
func stayed(run *record.Run, w stretch) float64 {
	end := newestAt(run, w.to)
	for _, r := range run.Summary.Restores {
		if r.Seconds > w.to {
			end = min(end, r.RestoredStep)
		}
	}
	return float64(end) - float64(newestAt(run, w.from))
}

// lostIn returns the steps that were taken back since the stretch began.
func lostIn(run *record.Run, w stretch) (steps uint64) {
	for _, r := range run.Summary.Restores {
		if r.Seconds >= w.from {
			steps += r.LostSteps
		}
	}
	return steps
}

// lag is by how many steps shards that came back alone have thrown a run back.
type lag struct {
	Shards    int     `json:"shards"`    // that came back
	Predicted int     `json:"predicted"` // of how many it was predicted
	Steps     float64 `json:"steps"`     // of all, as predicted; where it was not, as old as what came back together: it cannot cost more
	Measured  float64 `json:"measured"`  // of those that were measured, and its standard error
	Error     float64 `json:"error"`
	Told      int     `json:"told"` // how many were measured
}

// lagIn reckons as the bill of a run does, but for what was not predicted, which is free there. A
// shard that comes back twice before a step follows has come back once, and one of a time before a
// step that all shards go back to costs those steps and nothing else.
func lagIn(run *record.Run, w stretch) (l lag) {
	lives := make(map[uint64]bool) // lines on which a step was released
	for _, s := range run.Steps {
		lives[s.Line] = true
	}
	unknown := make(map[uint64]float64) // by line, the age of the oldest shard that came back without a prediction
	for _, p := range run.Partials {
		over := !lives[p.Line]
		for _, r := range run.Summary.Restores {
			over = over || r.Seconds > p.Seconds && r.RestoredStep < p.AdoptedStep
		}
		if p.Seconds < w.from || over {
			continue
		}
		l.Shards++
		switch {
		case p.ReworkSteps.Known():
			l.Predicted++
			l.Steps += max(0, float64(p.ReworkSteps))
		case p.MeanAge.Known(): // a model that were so old all over would be so many steps behind
			l.Steps += max(0, float64(p.MeanAge)-unknown[p.Line])
			unknown[p.Line] = max(unknown[p.Line], float64(p.MeanAge))
		}
	}
	for _, m := range run.Reworks {
		if m.Seconds >= w.from && m.Measured.Known() {
			l.Told++
			l.Measured += float64(m.Measured)
			if m.Deviation.Known() {
				l.Error = math.Hypot(l.Error, float64(m.Deviation))
			}
		}
	}
	return l
}

// nextSteps returns the seconds from each failure of the stretch to the next step that was
// committed after it; where none was, to the end of the run. Failures that no fault has asked for
// are counted apart.
func nextSteps(run *record.Run, w stretch) (seconds []float64, unplanned int) {
	for _, f := range run.Summary.Failures {
		switch {
		case !f.Injected:
			unplanned++
		case f.Seconds >= w.from && f.RecoverySeconds.Known():
			seconds = append(seconds, float64(f.RecoverySeconds))
		case f.Seconds >= w.from:
			seconds = append(seconds, run.Summary.WallSeconds-f.Seconds)
		}
	}
	return seconds, unplanned
}

// savedIn returns the bytes that were saved in the stretch.
func savedIn(run *record.Run, w stretch) (bytes float64) {
	for _, c := range run.Checkpoints {
		if c.Error == "" && c.Seconds >= w.from && c.Seconds < w.to {
			bytes += float64(c.Bytes)
		}
	}
	return bytes
}

// lossSteps are the steps whose mean loss is that of a moment: one batch is mostly noise.
const lossSteps = 50

// lossAt returns the mean loss of the newest steps that were released up to a time.
func lossAt(run *record.Run, at float64) record.Number {
	var sum float64
	n := 0
	for i := len(run.Steps) - 1; i >= 0 && n < lossSteps; i-- {
		if s := run.Steps[i]; s.Seconds <= at && s.Loss.Known() {
			sum, n = sum+float64(s.Loss), n+1
		}
	}
	if n == 0 {
		return record.Unknown()
	}
	return record.Number(sum / float64(n))
}

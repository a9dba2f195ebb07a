package goodput

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// The results of a run in a stretch of its time. Everything here is a function of its events.

// stretch is a range of a run's time, in seconds. Failures begin in it; their consequences may come
// after it.
type stretch struct{ from, to float64 }

// newestAt returns the newest step that was released and not taken back at the given time, or 0
// before the first.
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
		if restore(s.Seconds); s.Line >= line { // otherwise a late step of a line that is over
			line, newest = s.Line, s.Step
		}
	}
	restore(at)
	return newest
}

// stayed returns how many steps further the run was at the end of the stretch than at its
// beginning, without steps that were taken back then or later. It may be negative, as a run can go
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

// lostIn returns the number of steps taken back since the stretch began.
func lostIn(run *record.Run, w stretch) (steps uint64) {
	for _, r := range run.Summary.Restores {
		if r.Seconds >= w.from {
			steps += r.LostSteps
		}
	}
	return steps
}

// lag is by how many steps shards that came back alone have set a run back.
type lag struct {
	Shards    int     `json:"shards"`    // number that came back
	Predicted int     `json:"predicted"` // number with a prediction
	Steps     float64 `json:"steps"`     // total, as predicted; without a prediction, the age of what came back together, which is an upper bound
	Measured  float64 `json:"measured"`  // total of the measured ones, with its standard error
	Error     float64 `json:"error"`
	Told      int     `json:"told"` // number that was measured
}

// lagIn computes the lag as the bill of a run does, but includes failures without a prediction,
// which the bill leaves out. A shard that comes back twice before the next step counts once. If all
// shards then go back to an earlier step, only those steps count.
func lagIn(run *record.Run, w stretch) (l lag) {
	lives := make(map[uint64]bool) // lines on which a step was released
	for _, s := range run.Steps {
		lives[s.Line] = true
	}
	unknown := make(map[uint64]float64) // by line: the age of the oldest shard that came back without a prediction
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
		case p.MeanAge.Known(): // if the whole model were so old, the run would be so many steps behind
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

// nextSteps returns, for each failure in the stretch, the seconds to the next step that was
// committed after it, or to the end of the run if there was none. Failures that were not injected
// are counted separately.
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

// savedIn returns the number of bytes saved in the stretch.
func savedIn(run *record.Run, w stretch) (bytes float64) {
	for _, c := range run.Checkpoints {
		if c.Error == "" && c.Seconds >= w.from && c.Seconds < w.to {
			bytes += float64(c.Bytes)
		}
	}
	return bytes
}

// lossSteps is the number of steps that a loss is averaged over: one batch is mostly noise.
const lossSteps = 50

// lossAt returns the mean loss of the newest steps released up to a time.
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

package launch

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kintsugi-ml/kintsugi"
)

var full = Progress{
	Step: 1240, Steps: 2000, StepsPerSecond: 41.27, Loss: 0.23142, Accuracy: 0.9312, Alive: 3, Workers: 4, Staleness: 2,
	BytesPerSecond: 12.4e6, Left: 18400 * time.Millisecond, Broken: []string{"server/0 down 2.3s"},
}

func TestTheLineKeepsWhatMattersInTheRoomThereIs(t *testing.T) {
	tests := []struct {
		width int
		want  string
	}{
		{200, "step 1,240/2,000 62%  [server/0 down 2.3s]  41.3 steps/s  loss 0.2314  accuracy 93.1%  3/4 workers  stale 2  12.4 MB/s  18s left"},
		{120, "step 1,240/2,000 62%  [server/0 down 2.3s]  41.3 steps/s  loss 0.2314  accuracy 93.1%  3/4 workers  12.4 MB/s  18s left"},
		{80, "step 1,240/2,000 62%  [server/0 down 2.3s]  41.3 steps/s  loss 0.2314  18s left"},
		{60, "step 1,240/2,000 62%  [server/0 down 2.3s]  loss 0.2314"},
		{45, "step 1,240/2,000 62%  [server/0 down 2.3s]"},
		{20, "step 1,240/2,000 62%"},
		{9, "step 1,24"},
		{0, ""},
	}
	for _, tt := range tests {
		if got := full.Line(tt.width); got != tt.want {
			t.Errorf("width %d:\ngot  %q\nwant %q", tt.width, got, tt.want)
		}
	}
	for width := range 200 {
		if n := utf8.RuneCountInString(full.Line(width)); n > width {
			t.Errorf("width %d: the line has %d columns", width, n)
		}
	}
}

func TestTheLineLeavesOutWhatIsNotKnown(t *testing.T) {
	p := Progress{Loss: math.NaN(), Accuracy: math.NaN(), Workers: 4}
	if got, want := p.Line(100), "step 0  0.00 steps/s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(p.Attrs()), "[step=0 steps_per_second=0 workers=4 staleness_steps=0 bytes_per_second=0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

var runStart = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func TestWhatALossWouldCostIsUnknownAndNotNothing(t *testing.T) {
	for risk, want := range map[float64]string{2.5: "2.50 steps at risk", math.NaN(): "steps at risk unknown", 0: ""} {
		p := Progress{Step: 7, AtRisk: risk}
		line, log := p.Line(300), fmt.Sprint(p.Attrs())
		if !strings.Contains(line, want) || want == "" && strings.Contains(line, "at risk") || strings.Contains(log, "at_risk_steps") != (want != "") {
			t.Errorf("%g: the line is %q, the log %s", risk, line, log)
		}
	}
}

func TestTheMeterCountsOverTheLastSeconds(t *testing.T) {
	m := NewMeter(runStart, 1000, 4)
	now := runStart
	for i := range 100 { // 10 s at 10 steps/s
		now = now.Add(100 * time.Millisecond)
		m.Step(kintsugi.StepEvent{Step: kintsugi.Step(i + 1), Time: now, Loss: 0.5, Workers: 4, Pushed: 100, Pulled: 200})
	}
	p := m.At(now)
	if p.Step != 100 || p.Loss != 0.5 || math.Abs(p.StepsPerSecond-10) > 0.6 || math.Abs(p.BytesPerSecond-3000) > 200 {
		t.Errorf("got %+v, want step 100, loss 0.5, about 10 steps/s and 3 kB/s", p)
	}
	if d := p.Left - 90*time.Second; d.Abs() > 6*time.Second {
		t.Errorf("%v left, want about 90s", p.Left)
	}
	p = m.At(now.Add(6 * time.Second)) // an outage
	if p.StepsPerSecond != 0 || p.Left != 0 {
		t.Errorf("after 6 s without a step: %v steps/s, %v left; want 0 and unknown", p.StepsPerSecond, p.Left)
	}
	if len(m.slices) > int(meterWindow/meterSlice)+2 {
		t.Errorf("the meter keeps %d slices", len(m.slices))
	}
}

func TestTheMeterShowsWhatIsBrokenNow(t *testing.T) {
	m := NewMeter(runStart, 0, 2)
	at := func(s float64) time.Time { return runStart.Add(time.Duration(s * float64(time.Second))) }
	server, worker := Part{Server, 0}, Part{Worker, 1}
	m.Process(ProcessEvent{Time: at(1), Kind: ProcessKilled, Part: server})
	m.Process(ProcessEvent{Time: at(1.1), Kind: ProcessDied, Part: server, KilledAt: at(1)})
	m.Process(ProcessEvent{Time: at(2), Kind: ProcessPaused, Part: worker})
	if got, want := strings.Join(m.At(at(4)).Broken, ", "), "server/0 down 3.0s, worker/1 paused 2.0s"; got != want {
		t.Errorf("broken: %q, want %q", got, want)
	}
	m.Process(ProcessEvent{Time: at(5), Kind: ProcessStarted, Part: server})
	m.Process(ProcessEvent{Time: at(5), Kind: ProcessResumed, Part: worker})
	if got := m.At(at(6)).Broken; len(got) != 0 {
		t.Errorf("broken: %q, want nothing", got)
	}
}

func TestATerminalShowsOneLineThatIsDrawnAtMostFiveTimesASecond(t *testing.T) {
	var screen bytes.Buffer
	d := &Display{w: &screen, width: func() int { return 30 }}
	for ms := range 1000 {
		d.Show(runStart.Add(time.Duration(ms)*time.Millisecond), Progress{Step: kintsugi.Step(ms), Loss: math.NaN(), Accuracy: math.NaN()})
	}
	want := "\r\x1b[Kstep 0  0.00 steps/s\r\x1b[Kstep 200  0.00 steps/s\r\x1b[Kstep 400  0.00 steps/s" +
		"\r\x1b[Kstep 600  0.00 steps/s\r\x1b[Kstep 800  0.00 steps/s"
	if got := screen.String(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestLogsStandAboveTheProgressLine(t *testing.T) {
	var screen bytes.Buffer
	d := &Display{w: &screen, width: func() int { return 30 }}
	p := Progress{Step: 1, Loss: math.NaN(), Accuracy: math.NaN()}
	for _, step := range []func(){
		func() { d.Write([]byte("early\n")) },
		func() { d.Show(runStart, p) },
		func() { d.Write([]byte("server/0 died\n")) },
		func() { d.Close(p) },
		func() { d.Write([]byte("late\n")) },
	} {
		step()
	}
	want := "early\n" + "\r\x1b[Kstep 1  0.00 steps/s" + "\r\x1b[Kserver/0 died\nstep 1  0.00 steps/s" +
		"\r\x1b[Kstep 1  0.00 steps/s\n" + "late\n"
	if got := screen.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestElsewhereALogLineEveryFiveSeconds(t *testing.T) {
	var out bytes.Buffer
	d := &Display{w: &out}
	d.SetLog(slog.New(slog.NewJSONHandler(d, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	for s := range 10 {
		d.Show(runStart.Add(time.Duration(s)*time.Second), full)
	}
	line := `{"level":"INFO","msg":"progress","step":1240,"steps":2000,"steps_per_second":41.3,"loss":0.23142,"accuracy":0.9312,` +
		`"workers_alive":3,"workers":4,"staleness_steps":2,"bytes_per_second":12400000,"left_seconds":18,"broken":"server/0 down 2.3s"}` + "\n"
	if got := out.String(); got != line+line {
		t.Errorf("got\n%s\nwant two lines\n%s", got, line)
	}
}

package goodput

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/launch"
	"github.com/kintsugi-ml/kintsugi/internal/launch/record"
)

// A seed gives the same deaths on every machine, so figures of two machines are about the same
// failures.
func TestDeathsAreDrawnFromTheirSeedAlone(t *testing.T) {
	draw := func() []launch.Fault {
		return deaths(rand.New(rand.NewPCG(1, 0)), 4*time.Second, 10*time.Second, 30*time.Second, time.Second, partsOf(3, 0))
	}
	var got []string
	for _, f := range losing(draw()) {
		got = append(got, f.String())
	}
	want := []string{"lose server/0 at 11.879s for 1s", "lose server/0 at 17.713s for 1s", "lose server/1 at 18.242s for 1s", "lose server/1 at 19.747s for 1s",
		"lose server/0 at 19.852s for 1s", "lose server/0 at 25.971s for 1s", "lose server/2 at 26.675s for 1s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i, f := range draw() {
		if i >= len(want) || f.Kind != launch.Kill || f.String() != strings.Replace(want[i], "lose", "kill", 1) {
			t.Errorf("death %d of processes is %q", i, f)
		}
	}
}

// If some process is always alive, the times between deaths have the mean that was asked for. A
// process that is away does not die, and if all are away, none does.
func TestOnlyTheLivingDie(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	const hour = time.Hour
	many := deaths(rng, time.Second, hour, 6*hour, time.Nanosecond, partsOf(3, 0))
	if n, want := float64(len(many)), 5*3600.0; math.Abs(n-want) > 4*math.Sqrt(want) { // four standard deviations of a Poisson count
		t.Errorf("%v deaths in %v seconds, one a second", n, want)
	}
	back := make(map[launch.Part]time.Duration)
	busy := deaths(rng, time.Second, hour, 2*hour, 2*time.Second, partsOf(2, 1))
	for _, f := range busy {
		if f.At.Elapsed < back[f.Part] || f.At.Elapsed < hour || f.At.Elapsed >= 2*hour {
			t.Fatalf("%s dies at %v, and is away until %v", f.Part, f.At.Elapsed, back[f.Part])
		}
		back[f.Part] = f.At.Elapsed + f.For
	}
	if len(back) != 3 || len(busy) > 3600*3/2 || len(busy) < 1000 {
		t.Errorf("%d deaths of %d parts, each of which is away for two seconds", len(busy), len(back))
	}
	for _, f := range losing(busy) {
		if (f.Kind == launch.Lose) != (f.Part.Role == launch.Server) {
			t.Errorf("%s", f)
		}
		if _, err := launch.ParseFault(f.String()); err != nil {
			t.Error(err)
		}
	}
}

// runOf is a run that is described step by step: steps of a line from one number to another, a
// tenth of a second apart.
func runOf(events ...record.Event) *record.Run {
	return record.NewRun(slices.Concat([]record.Event{&record.Header{Format: record.Format, Servers: 2, Workers: 1}}, events), nil)
}

func stepsBy(at float64, line, from, to uint64) (events []record.Event) {
	for s := from; s <= to; s++ {
		e := &record.Step{Line: line, Step: s, Loss: record.Number(s)}
		e.At.Seconds = at + 0.1*float64(s-from)
		events = append(events, e)
	}
	return events
}

func at(seconds float64) record.At { return record.At{Seconds: seconds} }

// A run's progress at the end of a stretch is what lasts, whatever happened in between. Steps that
// are made twice count once. Steps that are taken back after the stretch, because of a death in it,
// do not count. A run that is thrown back to before the stretch has made less than no progress.
func TestOnlyStepsThatStayCount(t *testing.T) {
	died := func(seconds float64) record.Event {
		return &record.Failure{At: at(seconds), Part: "server/1", Injected: true, SeenSeconds: seconds}
	}
	back := func(seconds float64, line, to uint64) record.Event {
		return &record.View{At: at(seconds), Line: line, RestoredStep: to}
	}
	for _, c := range []struct {
		name   string
		run    *record.Run
		stayed float64
		lost   uint64
		next   []float64
	}{
		{"undisturbed", runOf(stepsBy(0.1, 1, 1, 100)...), 50, 0, nil},
		{"20 steps are done twice", runOf(slices.Concat(stepsBy(0.1, 1, 1, 40), []record.Event{died(4.05), back(5, 2, 20)}, stepsBy(5.5, 2, 21, 65))...), 16, 20, []float64{1.45}},
		{"taken back behind the stretch", runOf(slices.Concat(stepsBy(0.1, 1, 1, 69), []record.Event{died(6.95), back(7.5, 2, 50)}, stepsBy(8, 2, 51, 60))...), 30, 19, []float64{1.05}},
		{"thrown back to before it", runOf(slices.Concat(stepsBy(0.1, 1, 1, 60), []record.Event{died(6.05), back(6.5, 2, 10)}, stepsBy(6.8, 2, 11, 12))...), -8, 50, []float64{0.75}},
		{"nobody comes back", runOf(slices.Concat(stepsBy(0.1, 1, 1, 40), []record.Event{died(4.05), &record.Note{At: at(9.05)}})...), 20, 0, []float64{5}},
		{"a straggler of a line that is over", runOf(slices.Concat(stepsBy(0.1, 1, 1, 40), []record.Event{died(4.05), back(5, 2, 20)}, stepsBy(5.1, 1, 41, 41), stepsBy(5.5, 2, 21, 65))...), 16, 20, []float64{1.45}},
	} {
		w := stretch{2.05, 7.05}
		next, unplanned := nextSteps(c.run, w)
		same := slices.EqualFunc(next, c.next, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 })
		if got := stayed(c.run, w); math.Abs(got-c.stayed) > 1e-9 || lostIn(c.run, w) != c.lost || !same || unplanned != 0 {
			t.Errorf("%s: %v steps stayed, %d lost, next after %v; want %v, %d, %v", c.name, got, lostIn(c.run, w), next, c.stayed, c.lost, c.next)
		}
	}
}

// A shard that came back older costs what was predicted. If nothing was predicted, it costs as much
// as it can: the age of the oldest that came back together. What a restore has taken back since,
// and what came back twice before a step followed, costs nothing more.
func TestShardsThatCameBackAloneCostWhatWasPredicted(t *testing.T) {
	partialOf := func(age, seconds float64, line, step uint64, predicted float64) record.Event {
		return &record.Partial{At: at(seconds), Part: "server/0", Line: line, AdoptedStep: step, Chunks: 3, MeanAge: record.Number(age), ReworkSteps: record.Number(predicted)}
	}
	partial := func(seconds float64, line, step uint64, predicted float64) record.Event {
		return partialOf(12, seconds, line, step, predicted)
	}
	unknown := math.NaN()
	keeps := func(seconds float64, line uint64) record.Event {
		return &record.View{At: at(seconds), Line: line, Keeps: 1}
	}
	measured := &record.Rework{At: at(3.5), Part: "server/0", Measured: 4, Deviation: 3}
	run := runOf(slices.Concat(stepsBy(0.1, 1, 1, 10),
		[]record.Event{keeps(1.1, 2), partial(1.2, 2, 10, 100)}, stepsBy(1.3, 2, 11, 20), // before the stretch
		[]record.Event{keeps(2.3, 3), partial(2.4, 3, 20, 6)}, // reported again, on the next line
		[]record.Event{keeps(2.5, 4), partial(2.6, 4, 20, 5)}, stepsBy(2.7, 4, 21, 30),
		[]record.Event{measured, keeps(3.7, 5), partialOf(9, 3.8, 5, 30, unknown), partial(3.8, 5, 30, unknown), partialOf(7, 3.8, 5, 30, unknown)}, stepsBy(3.9, 5, 31, 40),
		[]record.Event{keeps(5, 6), partial(5.1, 6, 40, -2)}, stepsBy(5.2, 6, 41, 45),
		[]record.Event{keeps(6, 7), partial(6.1, 7, 45, 9)}, stepsBy(6.2, 7, 46, 47),
		[]record.Event{&record.View{At: at(6.5), Line: 8, RestoredStep: 42}}, stepsBy(6.8, 8, 43, 44))...)
	if got, want := lagIn(run, stretch{2, 9}), (lag{Shards: 5, Predicted: 2, Steps: 5 + 12 + 0, Measured: 4, Error: 3, Told: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if loss := lossAt(run, 0.35); loss != 2 {
		t.Errorf("the mean loss of three steps is %v, want 2", loss)
	}
	if loss := lossAt(run, 0); loss.Known() {
		t.Errorf("the loss of no steps is %v", loss)
	}
}

// Rounds are compared with the unprotected run of the same round, and all rows of a way to recover
// have its tax.
func TestGoodputIsTheMedianOfTheRoundsRatios(t *testing.T) {
	trial := func(round int, useful float64, next ...float64) Trial {
		return Trial{Round: round, Useful: useful, Kills: len(next), Next: next, Lost: uint64(10 * len(next)), TrainLoss: 1, TestLoss: record.Unknown(), Accuracy: record.Number(useful / 100)}
	}
	rows := []Row{
		{Recovery: "none", Trials: []Trial{trial(1, 20), trial(2, 40), trial(3, 25)}},
		{Recovery: "chain", Trials: []Trial{trial(1, 19), trial(2, 39), trial(3, 24)}},
		{Recovery: "chain", Loss: "either", MTBF: 4, Trials: []Trial{trial(1, 10, 1, 2), trial(2, 10, 4), trial(3, 20)}},
		{Recovery: "scar", Loss: "either", MTBF: 4, Trials: []Trial{trial(2, 10, 4)}}, // the others have failed
		{Recovery: "gold", Loss: "kill", MTBF: 4},
	}
	fillAll(rows)
	r := rows[2]
	if r.Goodput != 0.5 || r.Min != 0.25 || r.Max != 0.8 || r.Kills != 3 || r.Lost != 30 || r.Next != 2 || r.NextMax != 4 || r.Useful != 10 || math.Abs(float64(r.Tax)-0.04) > 1e-12 ||
		r.Accuracy != 0.1 || r.TestLoss.Known() || r.Rounds != 3 {
		t.Errorf("got %+v", r)
	}
	if rows[0].Goodput != 1 || rows[0].Tax != 0 || rows[3].Goodput != 0.25 || rows[3].Tax.Known() || rows[4].Goodput.Known() || rows[4].Line()[4] != "n/a: no run came to its end" {
		t.Errorf("got %+v", rows)
	}
}

// A way that keeps nothing in the memory of hosts is measured once for both kinds of loss, a run
// without protection only undisturbed, and nothing twice.
func TestGoodputMeasuresEachCellOnce(t *testing.T) {
	cfg := Config{Model: "cnn", Losses: []string{"kill", "lose"}, MTBF: []time.Duration{0, 4 * time.Second}, Seed: 1, Servers: 3, Stretch: time.Minute, WarmUp: time.Second,
		Recoveries: []Recovery{{Name: "none"}, {Name: "chain"}, {Name: "gold", Outside: true}, {Name: "chain"}}}
	var names []string
	rows := cfg.rows()
	for _, r := range rows {
		names = append(names, r.Name)
	}
	want := []string{"goodput/cnn/none", "goodput/cnn/chain", "goodput/cnn/chain/either/every-4s", "goodput/cnn/gold", "goodput/cnn/gold/kill/every-4s", "goodput/cnn/gold/lose/every-4s"}
	if !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	first, other := cfg.faults(&rows[2], 0), cfg.faults(&rows[2], 1)
	if len(cfg.faults(&rows[1], 0)) != 0 || !slices.Equal(first, cfg.faults(&rows[4], 0)) || slices.Equal(first, other) || !slices.Equal(losing(first), cfg.faults(&rows[5], 0)) {
		t.Error("recoveries of a round do not meet the same deaths, or two rounds do")
	}
	for word, flags := range map[string]string{"chain:3": "--recovery chain --replicas 3", "checkpoint:10": "--recovery checkpoint --checkpoint-every 10", "scar:1/4,8": "--recovery scar:1/4,8"} {
		if got := strings.Join(Flags(word), " "); got != flags {
			t.Errorf("%s: %s", word, got)
		}
	}
}

func TestNamesAreMovedApartAsLittleAsPossible(t *testing.T) {
	for _, c := range []struct{ wanted, places []float64 }{
		{nil, []float64{}},
		{[]float64{50, 20}, []float64{50, 20}},
		{[]float64{50, 50}, []float64{45, 55}},
		{[]float64{50, 52, 49}, []float64{151. / 3, 151./3 + 10, 151./3 - 10}},
		{[]float64{2, 4, 30}, []float64{0, 10, 30}},
		{[]float64{99, 98, 88}, []float64{100, 90, 80}},
		{[]float64{20, 30, 31}, []float64{17, 27, 37}},
	} {
		if got := apart(c.wanted, 10, 0, 100); !slices.EqualFunc(got, c.places, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%v become %v, want %v", c.wanted, got, c.places)
		}
	}
}

// The picture is well-formed, names no other file, and has a line for each way to recover in each
// panel, even if runs are missing.
func TestThePictureOfGoodputStandsAlone(t *testing.T) {
	cfg := &Config{Model: "cnn", Losses: []string{"kill", "lose"}, MTBF: []time.Duration{0, 10 * time.Second, 4 * time.Second}, Servers: 3, Workers: 4, Down: time.Second, Stretch: time.Minute,
		Recoveries: []Recovery{{Name: "none"}, {Name: "checkpoint:10"}, {Name: "gold", Outside: true}, {Name: "gold:2"}}}
	rows := cfg.rows()
	for i := range rows {
		rows[i].Goodput, rows[i].Min, rows[i].Max, rows[i].Rounds = record.Number(0.9-0.05*float64(i)), 0.1, 1, 3
	}
	rows[3].Goodput = record.Unknown()
	picture := PictureOf(cfg, rows)
	d := xml.NewDecoder(strings.NewReader(picture))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" && strings.HasSuffix(a.Value, " line") {
					lines++
				}
				if a.Name.Local == "href" {
					t.Errorf("it names %s", a.Value)
				}
			}
		}
	}
	if lines != 6 || strings.Contains(picture, "NaN") || strings.Contains(picture, "url(") {
		t.Errorf("%d lines, want three in each of two panels, and no NaN:\n%s", lines, picture)
	}
	if again := PictureOf(cfg, rows); again != picture {
		t.Error("the same rows make another picture")
	}
}

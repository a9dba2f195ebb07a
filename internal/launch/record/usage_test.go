package record

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi/internal/cost"
)

// header begins a run of two servers and three workers whose steps count two gradients each.
func header(at float64) []Event {
	return []Event{&Header{At: At{at}, Format: Format, Servers: 2, Workers: 3, Replicas: 1, Prices: "server=1,worker=2/0.5"}}
}

func life(part string, began, ended, cpu float64) []Event {
	return []Event{&Life{At: At{ended}, Part: part, BeganSeconds: began, CPUSeconds: cpu, PeakBytes: uint64(1000 * ended)}}
}

func leaves(part string, noticed, gone float64) []Event {
	return []Event{&Failure{At: At{noticed}, SeenSeconds: gone, Part: part, Announced: true}}
}

// The cases say what each event adds to the bill of a run of ten seconds with one step per second.
func TestWhatARunTakesIsAddedUp(t *testing.T) {
	for _, c := range []struct {
		name string
		got  *Account
		want func(*cost.Usage)
	}{
		{"nothing happens", tally(header(0), steps(1, 1, 10, 1)), func(*cost.Usage) {}},
		{"a place is empty for two seconds", tally(header(0), steps(1, 1, 5, 1), life("worker/1", 0, 5, 3), steps(1, 6, 10, 6), life("worker/1", 7, 10, 1)), func(u *cost.Usage) {
			u.Absent.Worker, u.CPUSeconds.Worker = 2, 4
		}},
		{"a server dies, and three steps are done again", tally(header(0), steps(1, 1, 5, 1), fails("server/0", 5, 5, 5), life("server/0", 0, 5, 1),
			[]Event{&View{At: At{5.5}, Line: 2, RestoredStep: 2}}, steps(2, 3, 7, 6)), func(u *cost.Usage) {
			u.Useful, u.CPUSeconds.Server = 14, 1
			u.OutageSeconds, u.ReworkSeconds = 1, 2 // the outage ended with step 3
		}},
		{"a server leaves, and the step around it takes four seconds", tally(header(0), steps(1, 1, 3, 1), leaves("server/0", 3.5, 5.5), steps(1, 4, 7, 7)), func(u *cost.Usage) {
			u.Counted, u.Useful, u.HandingSeconds = 14, 14, 3
		}},
		{"a worker leaves, and nobody waits", tally(header(0), steps(1, 1, 5, 1), leaves("worker/0", 4.2, 5.1), steps(1, 6, 10, 6)), func(*cost.Usage) {}},
		{"steps wait for the checkpoint", tally(header(0), []Event{&Step{At: At{4}, Line: 1, Step: 1, SavingSeconds: 1.5, Counted: []uint32{0}},
			&Step{At: At{10}, Line: 1, Step: 2, SavingSeconds: 0.5, Counted: []uint32{0, 1}, Times: []Took{{Compute: 1500 * time.Millisecond, Transfer: 500 * time.Millisecond}, {Slot: 1, Compute: time.Second}}}}),
			func(u *cost.Usage) {
				u.SavingSeconds, u.BusySeconds, u.Computed, u.Counted, u.Useful = 2, 3, 2, 3, 3
			}},
		{"a run is resumed with one server", tally(header(0), steps(1, 1, 5, 1), life("server/0", 0, 5, 1), []Event{&Header{At: At{5}, Servers: 1, Workers: 3, Replicas: 1, Resumed: true}},
			steps(2, 6, 10, 6), life("server/0", 6, 10, 1)), func(u *cost.Usage) { u.NodeSeconds.Server, u.CPUSeconds.Server = 15, 2 }},
	} {
		s := c.got.Summary()
		got := c.got.usage.of(&s)
		want := cost.Usage{WallSeconds: 10, NodeSeconds: cost.ByRole{Coordinator: 10, Server: 20, Worker: 30}, Counted: 20, Useful: 20, Replicas: 1}
		c.want(&want)
		if !math.IsNaN(got.Accuracy) {
			t.Errorf("%s: accuracy %v; want none", c.name, got.Accuracy)
		}
		got.Accuracy = 0
		for _, x := range []*float64{&got.HandingSeconds, &got.OutageSeconds, &got.ReworkSeconds} {
			*x = math.Round(*x*1e6) / 1e6
		}
		if got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", c.name, got, want)
		}
	}
}

// The gap of an announced departure is the longest step around it, and it is not an outage. A real
// failure beside it is one.
func TestADepartureIsNoOutage(t *testing.T) {
	s := tally(header(0), steps(1, 1, 3, 1), leaves("server/0", 3.5, 5.5), steps(1, 4, 7, 7)).Summary()
	if f := s.Failures[0]; f.RecoverySeconds != 4 || !f.Announced || s.OutageSeconds != 0 {
		t.Errorf("%+v, outage %v s; want the step of 4 s and no outage", f, s.OutageSeconds)
	}
	s = tally(header(0), steps(1, 1, 3, 1), fails("worker/1", 3.2, 3.2, 3), leaves("server/0", 3.5, 5.5), steps(1, 4, 7, 7)).Summary()
	if f := s.Failures[0]; f.RecoverySeconds != 3.8 || s.OutageSeconds != 3.8 {
		t.Errorf("%+v, outage %v s; want 3.8 s of both", f, s.OutageSeconds)
	}
}

// The memory of a run is that of its places, each at its largest.
func TestThePeakOfMemoryIsThatOfThePlaces(t *testing.T) {
	s := tally(header(0), life("worker/1", 0, 5, 1), life("worker/1", 5, 9, 1), life("server/0", 0, 10, 1)).Summary()
	if s.PeakBytes != 19000 {
		t.Errorf("%d bytes; want 19000", s.PeakBytes)
	}
}

// A record may begin at any step, and a damaged digit makes any number. Neither takes memory in
// proportion to the number.
func TestAStepOfAnyNumberIsBooked(t *testing.T) {
	for _, step := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
		s := tally(header(0), []Event{&Step{At: At{1}, Line: 1, Step: step, Counted: []uint32{0, 1}}}).Summary()
		if s.Steps != step || s.UsefulGradients != 2 {
			t.Errorf("%d steps and %d useful gradients; want step %d and 2", s.Steps, s.UsefulGradients, step)
		}
	}
}

// A run whose steps count varying numbers of gradients is booked in bounded memory: recent steps
// exactly, older ones by their mean.
func TestCountsOfLongAgoAreFolded(t *testing.T) {
	u := usage{}
	const steps = 3*keptStretches + 7
	total := uint64(0)
	for i := range uint64(steps) {
		u.step(&Step{Step: i + 1, Counted: make([]uint32, i%3)})
		total += i % 3
	}
	if n := len(u.counted); n > 2*keptStretches {
		t.Fatalf("%d stretches are kept", n)
	}
	u.restore(steps - 5)
	want := uint64(0)
	for i := uint64(steps - 5); i < steps; i++ {
		want += i % 3
	}
	if u.lost != want {
		t.Errorf("five steps had counted %d gradients; %d are booked", want, u.lost)
	}
	u.restore(keptStretches / 2)
	if got, want := float64(u.lost), float64(total)-keptStretches/2; math.Abs(got-want) > 2 {
		t.Errorf("all but %d steps had counted some %v gradients; %v are booked", keptStretches/2, want, got)
	}
	u.restore(0)
	if u.lost != total || len(u.counted) != 0 {
		t.Errorf("all steps had counted %d gradients; %d are booked, and %d stretches are left", total, u.lost, len(u.counted))
	}
}

// The gradients that a restore takes back are those that the steps behind it had counted. A list
// with a number for each step says how many that must be.
func TestWhatIsTakenBackIsWhatWasCounted(t *testing.T) {
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 1))
		u, plain, lost := usage{}, []int{0}, uint64(0)
		for range 60 {
			if draw.IntN(6) == 0 {
				to := draw.IntN(len(plain))
				for ; len(plain) > to+1; plain = plain[:len(plain)-1] {
					lost += uint64(plain[len(plain)-1])
				}
				u.restore(uint64(to))
			}
			n := draw.IntN(3)
			u.step(&Step{Step: uint64(len(plain)), Counted: make([]uint32, n)})
			plain = append(plain, n)
			if u.lost != lost {
				t.Fatalf("seed %d: %d gradients were taken back; want %d", seed, u.lost, lost)
			}
		}
	}
}

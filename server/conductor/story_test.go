package conductor_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/script"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			s := &stage{t: t}
			script.Run(t, path, *update, s.command)
		})
	}
}

// stage plays a story. After each command it delivers everything that can be delivered, oldest
// first, unless the story holds it back.
type stage struct {
	*world
	t     *testing.T
	hands map[kintsugi.Slot]*wire
	told  strings.Builder
}

func (s *stage) command(line string) string {
	s.told.Reset()
	line, at, _ := strings.Cut(line, " at conductor ")
	switch {
	case strings.HasPrefix(line, "run "):
		s.run(line)
	case strings.HasPrefix(line, "quick start: "):
		s.run(line)
		s.quickStart()
		return ""
	case s.conductorCommand(line), s.workerCommand(line, at), s.streamCommand(line, at), s.shardCommand(line):
	default:
		s.t.Fatalf("unknown command %q", line)
	}
	s.settle()
	s.checkCounted()
	return s.told.String()
}

// scan reports whether line has the form of format, and stores its values.
func scan(line, format string, into ...any) bool {
	var rest string
	n, err := fmt.Sscanf(line+" .", format+" %s", append(into, &rest)...)
	return err == nil && n == len(into)+1 && rest == "."
}

// run reads "run shards 2 workers 3 steps 5 async save 2" or "quick start: shards 2 ...". The words
// after steps are optional.
func (s *stage) run(line string) {
	cfg := conductor.Config{
		Line: 1, View: 1, Schedule: conductor.Schedule{Rule: kintsugi.RuleSGD, LearningRate: 0.1},
		StartGrace: 10 * time.Second, LeaveGrace: 5 * time.Second,
	}
	words := strings.Fields(line[strings.Index(line, "shards"):])
	chunks := []int{1}
	next := func() (n int) {
		if _, err := fmt.Sscan(words[1], &n); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		words = words[2:]
		return n
	}
	for len(words) > 0 {
		switch words[0] {
		case "shards":
			chunks = slices.Repeat([]int{1}, next())
		case "workers":
			cfg.Slots = next()
		case "steps":
			cfg.Steps = kintsugi.Step(next())
		case "save":
			cfg.SaveEvery = kintsugi.Step(next())
		case "seconds":
			cfg.SaveAfter = time.Duration(next()) * time.Second
		case "learning":
			cfg.Interval = &teller{stage: s}
			words = words[1:]
		case "quota":
			cfg.Consistency.Quota, cfg.Consistency.Lead = next(), kintsugi.Infinite
		case "consistency":
			var err error
			if cfg.Consistency, err = agg.Preset(words[1]); err != nil {
				s.t.Fatalf("%q: %v", line, err)
			}
			words = words[2:]
		case "async":
			cfg.Consistency, _ = agg.Preset("async")
			cfg.Consistency.Discount = true
			words = words[1:]
		default:
			s.t.Fatalf("%q: %q is not known", line, words[0])
		}
	}
	s.world = newWorld(s.t, cfg, chunks)
	s.hands = make(map[kintsugi.Slot]*wire)
	s.say = func(format string, args ...any) { fmt.Fprintf(&s.told, format+"\n", args...) }
}

// teller is an interval that reports what it is told, and doubles with each save.
type teller struct {
	stage *stage
	saves int
}

func (i *teller) Step(e kintsugi.StepEvent, beside bool) {
	if beside {
		i.stage.say("the interval hears: step %d, beside a save", e.Step)
		return
	}
	i.stage.say("the interval hears: step %d", e.Step)
}

func (i *teller) Saved(e kintsugi.CheckpointEvent) {
	if e.Err != "" {
		i.stage.say("the interval hears: step %d is not durable", e.Step)
		return
	}
	i.saves++
	i.stage.say("the interval hears: step %d is durable; from now on %v", e.Step, i.After())
}

func (i *teller) After() time.Duration { return 10 * time.Second << i.saves }

// quickStart brings conductor 1 and every worker into the run, as in step.txt, without printing it.
func (s *stage) quickStart() {
	c := s.newConductor(1)
	for i := range s.replica {
		s.open(c, i)
	}
	for slot := range kintsugi.Slot(s.cfg.Slots) {
		s.hands[slot] = s.connect(c, slot, 1)
	}
	s.settle()
}

// seat returns the conductor that a command names, or the newest one.
func (s *stage) seat(at string) *seat {
	for _, c := range s.seats {
		if at == fmt.Sprint(c.Fence()) {
			return c
		}
	}
	return s.seats[len(s.seats)-1]
}

func (s *stage) conductorCommand(line string) bool {
	var fence kintsugi.Fence
	var in string
	var late int
	switch {
	case scan(line, "conductor %d comes and does not reach shard %d", &fence, &late):
		c := s.newConductor(fence)
		for i := range s.replica {
			if i != late {
				s.open(c, i)
			}
		}
	case scan(line, "conductor %d comes", &fence):
		c := s.newConductor(fence)
		for i := range s.replica {
			s.open(c, i)
		}
	case scan(line, "after %s", &in):
		d, err := time.ParseDuration(in)
		if err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		s.tick(d)
	case line == "hold":
		c := s.seat("")
		c.Hold(s.now)
		s.perform(c)
	case line == "stop", line == "stop and save":
		c := s.seat("")
		c.Stop(s.now, "stopped by the user", line == "stop and save")
		s.perform(c)
	default:
		return false
	}
	return true
}

func (s *stage) workerCommand(line, at string) bool {
	var slot kintsugi.Slot
	var version kintsugi.Step
	var shard int
	var sequence uint32
	n := kintsugi.Incarnation(1)
	switch {
	case scan(line, "worker %d joins", &slot), scan(line, "worker %d joins as incarnation %d", &slot, &n):
		s.hands[slot] = s.connect(s.seat(at), slot, n)
	case scan(line, "worker %d hangs up", &slot):
		s.hangUp(s.hands[slot])
	case scan(line, "worker %d says good-bye", &slot):
		c := s.seat(at)
		delete(c.clocks.members, slot)
		c.WorkerLeft(s.now, slot, s.hands[slot].incarnation)
		s.perform(c)
	case scan(line, "worker %d computes on version %d", &slot, &version),
		scan(line, "worker %d computes on version %d sequence %d", &slot, &version, &sequence):
		for i := range s.replica {
			s.push(s.id(slot, version, sequence), i)
		}
		s.ticket(s.id(slot, version, sequence), len(s.replica))
	case scan(line, "worker %d pushes version %d to shard %d", &slot, &version, &shard):
		s.push(s.id(slot, version, 0), shard)
	case scan(line, "worker %d sends the ticket of version %d", &slot, &version):
		s.ticket(s.id(slot, version, 0), len(s.replica))
	case scan(line, "worker %d says that every head has version %d", &slot, &version): // which is not true
		s.untrue[s.id(slot, version, 0)] = true
		s.ticket(s.id(slot, version, 0), len(s.replica))
	case scan(line, "worker %d throws version %d away", &slot, &version):
		s.ticket(s.id(slot, version, 0), 0)
	default:
		return false
	}
	return true
}

func (s *stage) id(slot kintsugi.Slot, version kintsugi.Step, sequence uint32) kintsugi.PushID {
	return kintsugi.PushID{Line: 1, Slot: slot, Incarnation: s.hands[slot].incarnation, Version: version, Sequence: sequence}
}

func (s *stage) push(p kintsugi.PushID, i int) {
	if refusal := s.replica[i].push(p); refusal != "" {
		s.say("shard %d to worker/%d: %s is refused: %s", i, p.Slot, gradient(p), refusal)
		return
	}
	s.say("shard %d: holds %v", i, p)
}

func (s *stage) ticket(p kintsugi.PushID, shards int) {
	x := s.hands[p.Slot]
	x.up = append(x.up, kintsugi.Ticket{
		Push: p, Views: slices.Repeat([]kintsugi.ViewNumber{1}, shards), Loss: 1, Examples: 8, SquaredNorm: 1,
	})
}

func (s *stage) streamCommand(line, at string) bool {
	var i int
	switch {
	case scan(line, "stream to shard %d breaks", &i):
		s.cut(s.seat(at), i)
	case scan(line, "stream to shard %d opens and its answers wait", &i):
		s.open(s.seat(at), i)
		s.seat(at).links[i].upWaits = true
	case scan(line, "answers of shard %d flow", &i):
		s.seat(at).links[i].upWaits = false
	case scan(line, "stream to shard %d opens", &i):
		s.open(s.seat(at), i)
	case scan(line, "orders to shard %d wait", &i):
		s.seat(at).links[i].downWaits = true
	case scan(line, "answers of shard %d wait", &i):
		s.seat(at).links[i].upWaits = true
	default:
		return false
	}
	return true
}

func (s *stage) shardCommand(line string) bool {
	var i int
	switch {
	case scan(line, "shard %d applies slowly", &i):
		s.replica[i].slow = true
	case scan(line, "shard %d has applied", &i):
		s.replica[i].slow = false
	case scan(line, "shard %d saves slowly", &i):
		s.replica[i].slowSave = true
	case scan(line, "shard %d has saved", &i):
		s.replica[i].slowSave = false
	case scan(line, "shard %d cannot save", &i):
		s.replica[i].save("disk full")
	default:
		return false
	}
	return true
}

// settle delivers messages until none is left.
func (s *stage) settle() {
	for s.round() {
	}
}

// round delivers the oldest message of every queue once, and completes kernels, saves and
// publications.
func (s *stage) round() bool {
	moved := false
	when := func(ready bool, do func()) {
		if ready {
			do()
			moved = true
		}
	}
	for _, x := range s.wires {
		when(len(x.up) > 0, func() { s.fromWorker(x) })
	}
	for _, c := range s.seats {
		for _, l := range c.links {
			when(l != nil && len(l.down) > 0 && !l.downWaits, func() { s.toShard(l) })
		}
	}
	for _, r := range s.replica {
		when(r.applying != nil && !r.slow, r.apply)
		when(len(r.saving) > 0 && !r.slowSave, func() { r.save("") })
	}
	for _, c := range s.seats {
		for _, l := range c.links {
			when(l != nil && len(l.up) > 0 && !l.upWaits, func() { s.fromShard(l) })
		}
		when(len(c.publishing) > 0, func() { s.publish(c, "") })
	}
	for _, x := range s.wires {
		when(len(x.down) > 0, func() { s.toWorker(x) })
	}
	return moved
}

package choose

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kintsugi-ml/kintsugi/internal/words"
)

// Conditions are what is known of a run. Times are in seconds, sizes in bytes.
type Conditions struct {
	Servers, Workers int
	Hosts            int // on which the servers run; 1: all on one, where the loss of the host takes all replicas

	Model float64 // the parameters, as a step sends them to a replica
	State float64 // the parameters and the optimizer's state, as they are saved and restored

	Step float64 // duration of a step without any protection

	ProcessEvery float64 // between two deaths of a server's process, of all servers together; +Inf: never
	HostEvery    float64 // the same for hosts with servers

	Network float64 // bytes per second between two servers
	Memory  float64 // bytes per second that a core copies
	Store   float64 // bytes per second between the store and one server, in either direction

	Together float64 // share of the deaths, of processes and of hosts, that take all replicas of a shard: a rack, a wave of preemptions

	Restart  float64 // from the death of a process until its next life serves
	Failover float64 // until steps go on with other replicas
	Rework   float64 // steps that it costs to restore one shard from the running checkpoint; negative: not known

	Outside bool // servers can keep their shards outside their processes
	Most    int  // largest number of replicas that may be chosen, at least 1

	ServerHour, WorkerHour float64 // price of a machine for an hour; all prices 0: only time counts
	PerByte                float64 // price of a byte between two servers
}

// Option is a way to survive failures.
type Option struct {
	Replicas int
	Outside  bool // state outside the process
	Running  bool // the running checkpoint, from which lost shards alone are restored
}

// Name returns the value of --recovery that stands for the option.
func (o Option) Name() string {
	switch {
	case o.Running && (o.Outside || o.Replicas > 1):
		return "gold"
	case o.Running:
		return "scar"
	case o.Outside:
		return "stateless"
	case o.Replicas > 1:
		return "chain"
	}
	return "checkpoint"
}

// Cost is the cost of an option.
type Cost struct {
	Option
	Tax     float64 // share of the time while nothing fails
	Failing float64 // share of the time that failures take
	PerHour float64 // in the unit of the prices; without prices, Tax + Failing
}

// Choice is the result of Choose.
type Choice struct {
	Cost
	Every int    // steps between two full checkpoints
	Why   string // a sentence
	All   []Cost // ascending by cost
}

// Options lists the options that the conditions allow.
func (c *Conditions) Options() []Option {
	var list []Option
	for replicas := 1; replicas <= max(1, min(c.Most, c.Servers)); replicas++ {
		for _, running := range []bool{false, true} {
			list = append(list, Option{Replicas: replicas, Running: running})
			if c.Outside && replicas == 1 {
				list = append(list, Option{Replicas: 1, Outside: true, Running: running})
			}
		}
	}
	return list
}

// Choose returns the option of list that costs least; of equal ones, the first. stay, if not nil,
// is the present option of the run: another one must be cheaper by at least a tenth of its cost, so
// that the choice does not swing with each measurement. An empty list means all options that the
// conditions allow.
func Choose(c Conditions, list []Option, stay *Option) Choice {
	if len(list) == 0 {
		list = c.Options()
	}
	var all []Cost
	for _, o := range list {
		all = append(all, c.Cost(o))
	}
	slices.SortStableFunc(all, func(a, b Cost) int {
		return cmp(a.PerHour, b.PerHour)
	})
	best := all[0]
	if stay != nil {
		if at := slices.IndexFunc(all, func(x Cost) bool { return x.Option == *stay }); at >= 0 && best.PerHour > 0.9*all[at].PerHour {
			best = all[at]
		}
	}
	every := c.every(best.Option)
	return Choice{Cost: best, Every: every, Why: c.why(best, all), All: all}
}

func cmp(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// longest is the largest number of steps between two full checkpoints, for runs whose failures are
// too rare to decide it.
const longest = 4096

// every returns the steps between two full checkpoints: Young's formula, with the time that a save
// takes from steps and the rate of the failures that need a full checkpoint.
func (c *Conditions) every(o Option) int {
	save, back := c.saving(), c.backEvery(o)
	least := max(1, math.Ceil(save/c.Step))
	every := max(least, min(longest, math.Floor(math.Sqrt(2*save*back)/c.Step)))
	cost := func(n float64) float64 { return save/(n*c.Step) + n*c.Step/2/back }
	if cost(every+1) < cost(every) && every < longest {
		every++
	}
	return int(every)
}

// saving returns the seconds that a full checkpoint takes from steps. It is written beside them,
// and takes a share of a core and of the store.
func (c *Conditions) saving() float64 { return beside * c.State / float64(c.Servers) / c.Store }

// beside is the part of a save's duration by which steps become longer. It is a guess.
const beside = 0.1

// backEvery returns the seconds between two failures that take all shards back to a full
// checkpoint.
func (c *Conditions) backEvery(o Option) float64 {
	rate := 0.0
	for _, f := range c.failures(o) {
		if f.back {
			rate += 1 / f.every
		}
	}
	if rate == 0 {
		return math.Inf(1)
	}
	return 1 / rate
}

// BackEvery returns the seconds between two failures that only a full checkpoint can repair. With a
// running checkpoint, lost shards are restored alone; then only the failures that take all servers
// remain.
func (c *Conditions) BackEvery(o Option) float64 {
	every := c.backEvery(o)
	if !math.IsInf(every, 1) {
		return every
	}
	if c.Hosts > 1 {
		return c.HostEvery / c.Together
	}
	return c.HostEvery
}

// failure is what one kind of failure does under an option.
type failure struct {
	every float64 // seconds between two
	lost  float64 // seconds lost at one, besides the steps that a full checkpoint takes back
	back  bool    // all shards go back to a full checkpoint
}

// failures lists the kinds of failures under an option.
func (c *Conditions) failures(o Option) []failure {
	shard := c.State / float64(c.Servers)
	load := c.Restart + shard/c.Store
	rework := max(c.Rework, 0) * c.Step
	comes := func(every float64) failure { // the failure in which nobody has a shard any more
		if o.Running && c.Servers > 1 {
			return failure{every: every, lost: load + rework}
		}
		return failure{every: every, lost: load, back: true}
	}
	if o.Replicas > 1 {
		// What remains is that the other replicas die before one is whole again.
		window := c.Restart + float64(o.Replicas)*shard/c.Network
		again := math.Pow(window*float64(o.Replicas-1)/float64(c.Servers), float64(o.Replicas-1))
		outlived := func(every float64) []failure {
			return []failure{{every: every, lost: c.Failover}, comes(math.Pow(every, float64(o.Replicas)) / again), comes(every / c.Together)}
		}
		if c.Hosts > 1 {
			return append(outlived(c.ProcessEvery), outlived(c.HostEvery)...)
		}
		return append(outlived(c.ProcessEvery), comes(c.HostEvery))
	}
	list := []failure{comes(c.HostEvery)}
	if o.Outside {
		return append(list, failure{every: c.ProcessEvery, lost: c.Restart})
	}
	return append(list, comes(c.ProcessEvery))
}

// Cost returns the cost of an option.
func (c *Conditions) Cost(o Option) Cost {
	x := Cost{Option: o}
	shard := 1 / float64(c.Servers)
	sent := float64(o.Replicas-1) * c.Model * shard // by each server, in a step
	seconds := sent / c.Network
	seconds += float64(o.Replicas-1) * c.State * shard / c.Memory // each server applies the steps of several shards
	if o.Outside {
		seconds += c.State * shard / c.Memory
	}
	if o.Running {
		seconds += (c.Model + c.State*beside/running) * shard / c.Memory
	}
	x.Tax = seconds / c.Step
	every := float64(c.every(o))
	x.Tax += c.saving() / (every * c.Step)
	for _, f := range c.failures(o) {
		lost := f.lost
		if f.back {
			lost += every / 2 * c.Step
		}
		x.Failing += lost / f.every
	}
	hour := float64(c.Servers)*c.ServerHour + float64(c.Workers)*c.WorkerHour
	if x.PerHour = x.Tax + x.Failing; hour > 0 || c.PerByte > 0 {
		x.PerHour = hour*(x.Tax+x.Failing) + 3600/c.Step*float64(c.Servers)*sent*c.PerByte
	}
	return x
}

// running is approximately the period of the running checkpoint, in steps.
const running = 16

// why says in words what decided.
func (c *Conditions) why(best Cost, all []Cost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s costs %s while nothing fails and %s for failures", describe(best.Option), percent(best.Tax), percent(best.Failing))
	for _, x := range all {
		if x.Option != best.Option {
			fmt.Fprintf(&b, "; %s would cost %s and %s", describe(x.Option), percent(x.Tax), percent(x.Failing))
			break
		}
	}
	fmt.Fprintf(&b, "; a process of a server dies %s, a host %s", span(c.ProcessEvery), span(c.HostEvery))
	if c.Hosts == 1 && c.Most > 1 {
		b.WriteString("; all servers are on one host, where a replica outlives no more than memory outside the process")
	}
	return b.String()
}

func describe(o Option) string {
	if o.Replicas > 1 {
		return fmt.Sprintf("%s with %d replicas", o.Name(), o.Replicas)
	}
	return o.Name()
}

func percent(x float64) string { return words.Digits(100*x, 2) + " %" }

// span says in words how often something happens.
func span(s float64) string {
	switch {
	case math.IsInf(s, 1):
		return "never"
	case s >= 2*86400:
		return "every " + words.Digits(s/86400, 3) + " days"
	case s >= 2*3600:
		return "every " + words.Digits(s/3600, 3) + " hours"
	case s >= 2*60:
		return "every " + words.Digits(s/60, 3) + " minutes"
	}
	return "every " + words.Digits(s, 3) + " seconds"
}

// Rate returns the seconds between two failures, estimated from so many failures in so many
// seconds, where expected seconds were assumed before any observation. It is the mean of a gamma
// distribution that gives the assumption the weight of a tenth of a failure: how often unobserved
// machines fail is not known within a factor of ten. With the weight of a whole failure, an
// assumption of a day and observed intervals of ten minutes would still give 1.3 hours after twenty
// failures.
func Rate(failures int, seconds, expected float64) float64 {
	return (seconds + believed*expected) / (float64(failures) + believed)
}

// believed is the weight of the assumption, in failures.
const believed = 1.0 / 10

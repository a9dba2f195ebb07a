package drawn

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/launch"
)

// Training is a run whose settings and faults are drawn.
type Training struct {
	Settings  []string // flags of train
	Faults    []string
	Program   []string      // arguments of the program whose model is trained; empty: a built-in one is
	Interrupt time.Duration // after which the whole run is killed with SIGKILL, and then resumed; 0: it is not
	Resumed   []string      // flags of train with which it is resumed: settings that change

	servers, workers, steps int
	synchronous             bool // each step counts a gradient of every worker that is there
	late                    bool // gradients count however late they are, or a few steps late
	paths                   bool // the steps of servers are gradients times a rate, so that a worker's path may be kept
	recovery                string
	replicas                int  // 0: as many as the recovery has by itself
	lossy                   bool // gradients are sent with errors, which workers add to the next ones
	loses                   bool // a fault also takes what is outside the process
	partial                 bool // a shard may come back older than the others
	other                   bool // when the run is resumed, something changes that its parameters depend on
	exact                   bool // only what leaves the parameters as they are is drawn
}

// Space is what settings and faults are drawn from.
type Space struct {
	Seed uint64

	// Exact leaves out what the parameters depend on other than by the settings: each step counts
	// one gradient of every worker, gradients are sent as they are, and a shard never comes back
	// older than the others. Such a run must end with the parameters of the undisturbed one, unless
	// a worker is away for so long that steps do without it.
	Exact bool

	Program []string // arguments of the program whose model is trained; empty: models are drawn too
}

// Draw draws run number n. The result depends on nothing else.
func (s Space) Draw(n int) *Training {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	d := &Training{Program: s.Program, exact: s.Exact, servers: oneOf(rng, 1, 2, 2, 3, 4), workers: oneOf(rng, 1, 2, 3, 4, 6)}
	model := oneOf(rng, "mlr", "mlp", "mlp", "lenet", "charlm", "mf")
	d.steps = oneOf(rng, 80, 150, 300)
	if model == "charlm" {
		d.steps = oneOf(rng, 30, 60)
	}
	if len(d.Program) > 0 {
		model = ""
	} else {
		d.set("model", model)
	}
	d.set("servers", strconv.Itoa(d.servers))
	d.set("workers", strconv.Itoa(d.workers))
	d.set("steps", strconv.Itoa(d.steps))
	d.set("seed", strconv.Itoa(1+rng.IntN(99)))
	d.set("checkpoint-every", oneOf(rng, "10", "37", "50", "auto"))
	d.drawSteps(rng, model)
	d.drawRecovery(rng)
	for range rng.IntN(4) {
		d.drawFault(rng)
	}
	if rng.IntN(4) == 0 {
		d.Interrupt = time.Duration(500+rng.IntN(3000)) * time.Millisecond
		d.set("gradient-time", "10ms") // so that it is not over by then
	}
	if rng.IntN(4) == 0 { // last, so that the rest is what it was before there were any
		d.set("local-steps", oneOf(rng, "2", "4"))
		if outer := oneOf(rng, "", "sgd:0.8", "nesterov:0.7,0.5"); outer != "" {
			d.set("outer", outer)
		}
	}
	if rng.IntN(3) == 0 { // after that, for the same reason
		d.drawMore(rng)
	}
	d.partial = restoresPart(d.recovery)
	if d.Interrupt > 0 && rng.IntN(2) == 0 {
		d.drawResumed(rng, model)
	}
	return d
}

// restoresPart reports whether a shard comes back older than the others if it is lost.
func restoresPart(recovery string) bool {
	return strings.HasPrefix(recovery, "scar") || strings.HasPrefix(recovery, "chain:paper")
}

// hasChain reports whether there are enough servers for the chains of a recovery, if it has any.
func hasChain(recovery string, servers int) bool {
	return servers > 2 || recovery != "chain:next" && (servers > 1 || !strings.HasPrefix(recovery, "chain"))
}

// drawResumed draws servers and recovery anew, for the part of a run that comes after it was killed
// as a whole, and sometimes workers and what travels.
func (d *Training) drawResumed(rng *rand.Rand, model string) {
	set := func(name, value string) { d.Resumed = append(d.Resumed, "--"+name, value) }
	servers, workers := oneOf(rng, 1, 2, 2, 3, 4), d.workers
	recovery := oneOf(rng, "gold", "gold", "auto", "chain", "chain:next", "chain:paper,20", "checkpoint", "scar", "scar:adaptive", "stateless")
	if !hasChain(recovery, servers) || d.exact && restoresPart(recovery) {
		recovery = "gold"
	}
	set("servers", strconv.Itoa(servers))
	set("recovery", recovery)
	set("replicas", "0") // as many as that has by itself
	set("wire", oneOf(rng, "auto", "grpc"))
	set("checkpoint-every", oneOf(rng, "10", "37", "50", "auto"))
	d.partial = d.partial || restoresPart(recovery)
	codec, pull := oneOf(rng, "fp32", "bf16", "int8", "topk:0.05", "powersgd:2"), oneOf(rng, "fp32", "bf16", "delta")
	if more := oneOf(rng, 2, 3, 5); rng.IntN(3) == 0 && !d.exact {
		d.other, workers = true, more
		set("workers", strconv.Itoa(workers))
		if set("pull", pull); model != "mf" {
			set("codec", codec)
		}
	}
	if servers < d.servers || workers < d.workers {
		set("fault", "none") // those that are left may be of parts that are no longer there
	}
}

// drawMore makes a run less usual: servers die together, shards have three replicas, or the running
// checkpoint has a form of its own.
func (d *Training) drawMore(rng *rand.Rand) {
	at := "step " + strconv.Itoa(1+rng.IntN(d.steps-1))
	die := oneOf(rng, 2, 2, 3, d.servers)
	form := oneOf(rng, "adaptive", "1/4,20", "1/8,16,threshold", "1/2,8,roundrobin", "1/8,16,recentlyused",
		"1/8,16,half", "1/4,16,shadow:sign", "1/8,16,shadow:int8", "1/8,16,coasting:int8", "1/8,16,coasting:int4")
	switch rng.IntN(4) {
	case 0, 1:
		for i := range min(die, d.servers) {
			d.Faults = append(d.Faults, "kill server/"+strconv.Itoa((i+d.steps)%d.servers)+" at "+at)
		}
	case 2:
		if d.recovery == "gold" && d.replicas == 0 && d.servers > 2 {
			d.replicas = 3
			d.set("replicas", "3")
		}
	default:
		if d.replicas == 0 && !d.exact { // it restores shards that are lost with their one replica
			i := slices.Index(d.Settings, "--recovery")
			d.recovery, d.Settings[i+1] = "scar", "scar:"+form
		}
	}
}

func oneOf[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

// set adds a flag.
func (d *Training) set(name, value string) { d.Settings = append(d.Settings, "--"+name, value) }

// drawSteps draws which gradients count, how they travel, and what is done with them.
func (d *Training) drawSteps(rng *rand.Rand, model string) {
	consistency := oneOf(rng, "bsp", "bsp", "bsp", "bsp", "backup:1", "async", "ssp:2", "rennala:2", "dbw", "bdbw", "adasync")
	if consistency == "backup:1" && d.workers == 1 { // nobody would be left to wait for
		consistency = "bsp"
	}
	if d.exact {
		consistency = "bsp"
	}
	d.paths = model != "" && model != "mf" && model != "charlm" // these have rules of their own, and so may a program
	d.synchronous, d.late = consistency == "bsp", consistency == "async" || consistency == "ssp:2"
	d.set("consistency", consistency)
	codec := oneOf(rng, "fp32", "fp32", "fp32", "fp32+auto", "bf16", "fp16", "int8", "int8:stochastic", "int8+s2", "sign", "topk:0.05", "powersgd:2")
	if d.exact && codec != "fp32+auto" {
		codec = "fp32"
	}
	if model != "mf" { // its gradients are a few rows, and have a codec of their own
		d.lossy = codec != "fp32" && codec != "fp32+auto"
		if model == "" && codec == "fp32+auto" {
			codec = "sparse" // the gradients of a program may be a few rows
		}
		d.set("codec", codec)
		if rng.IntN(2) == 0 {
			optimizer := oneOf(rng, "sgd", "momentum", "nesterov", "adam", "adamw", "adagrad", "lazyadam")
			d.paths = !strings.Contains(optimizer, "ada")
			d.set("optimizer", optimizer)
		}
		if rng.IntN(5) == 0 {
			d.set("clip-norm", "1")
		}
	}
	d.set("pull", oneOf(rng, "fp32", "fp32", "fp32", "bf16", "delta"))
	d.set("wire", oneOf(rng, "auto", "auto", "grpc"))
	if rng.IntN(5) == 0 {
		d.set("threads", "2")
	}
}

func (d *Training) drawRecovery(rng *rand.Rand) {
	d.recovery = oneOf(rng, "gold", "gold", "gold", "auto", "chain", "chain:next", "chain:paper,20", "checkpoint", "scar", "stateless")
	if !hasChain(d.recovery, d.servers) || d.exact && restoresPart(d.recovery) {
		d.recovery = "gold"
	}
	d.set("recovery", d.recovery)
	if d.recovery == "gold" && d.servers > 1 && rng.IntN(3) == 0 {
		d.replicas = 2
		d.set("replicas", "2")
	}
	if rng.IntN(3) == 0 {
		d.set("move-after", oneOf(rng, "1s", "3s", "never"))
	}
	switch outage := oneOf(rng, "", "wait", "continue"); {
	case !d.late || outage == "": // without late gradients, workers wait
	case outage == "continue":
		d.set("outage", outage)
		kept := oneOf(rng, "local", "decay", "average", "sum")
		if kept == "local" && !d.paths {
			kept = "decay"
		}
		d.set("kept", kept)
	default:
		d.set("outage", outage)
	}
}

// drawFault adds a fault.
func (d *Training) drawFault(rng *rand.Rand) {
	f := launch.Fault{Kind: oneOf(rng, launch.Kill, launch.Kill, launch.Kill, launch.Lose, launch.Notice, launch.Pause, launch.Slow)}
	f.Part.Role = oneOf(rng, launch.Server, launch.Server, launch.Server, launch.Worker, launch.Coordinator)
	switch {
	case f.Kind == launch.Lose:
		f.Part.Role, d.loses = launch.Server, true
	case f.Kind == launch.Slow:
		f.Part.Role, f.Factor = launch.Worker, 3
	case f.Kind == launch.Notice && f.Part.Role == launch.Coordinator:
		f.Kind = launch.Kill
	}
	f.At.Step = kintsugi.Step(1 + rng.IntN(d.steps-1))
	states, most := []string(nil), 0
	switch f.Part.Role {
	case launch.Server:
		f.Part.Index, states, most = rng.IntN(d.servers), launch.ServerStates(), 6
	case launch.Worker:
		f.Part.Index, states, most = rng.IntN(d.workers), launch.WorkerStates(), 30
	}
	switch f.Kind {
	case launch.Kill:
		if states != nil && rng.IntN(2) == 0 {
			f.At = launch.Moment{State: oneOf(rng, states...), Times: 1 + rng.IntN(most)}
			break
		}
		f.For = oneOf(rng, 0, 0, time.Second, 2*time.Second, 4*time.Second)
	case launch.Lose:
		f.For = oneOf(rng, 0, time.Second, 2*time.Second)
	case launch.Pause:
		f.For = oneOf(rng, 300*time.Millisecond, 2*time.Second, 6*time.Second)
	}
	d.Faults = append(d.Faults, f.String())
}

// Args returns the arguments of train.
func (d *Training) Args() []string {
	args := slices.Clone(d.Settings)
	for _, f := range d.Faults {
		args = append(args, "--fault", f)
	}
	if len(d.Program) > 0 {
		args = append(append(args, "--"), d.Program...)
	}
	return args
}

// String returns the settings and faults as a command line of train has them.
func (d *Training) String() string {
	words := d.Args()
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \"'$`\\") {
			words[i] = strconv.Quote(w)
		}
	}
	if len(d.Resumed) > 0 {
		words = append(append(words, "then", "--resume", "with"), d.Resumed...)
	}
	return strings.Join(words, " ")
}

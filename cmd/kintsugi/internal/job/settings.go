package job

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cmd/kintsugi/internal/cli"
	"github.com/kintsugi-ml/kintsugi/internal/notice"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/recovery/ckpt"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/server/conductor"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/timeout"
)

// Settings are all settings that determine what a run computes and how. Each is a flag, a key of
// the configuration file, and a key of config.yaml in the run directory, with the same name.
type Settings struct {
	Model     string
	Data      string
	DataDir   string
	Program   []string // the program that computes the model, and its arguments
	Described string   // file with the program's description

	Input string // channels x height x width x classes, or positions x tokens; empty: determined from the data

	Workers  int
	Servers  int
	Replicas int

	Consistency  string
	Optimizer    string
	LearningRate float64
	Rates        []string // PATTERN=FACTOR
	Warmup       int
	Decay        string
	Momentum     float64
	Betas        string
	Epsilon      float64
	WeightDecay  float64
	Decayed      string
	ClipNorm     float64
	LocalSteps   int
	Outer        string
	Batch        int
	Steps        uint64
	Seed         uint64

	Recovery        string
	MoveAfter       waiting
	HangAfter       hanging
	Outage          string
	Kept            string
	CheckpointEvery Pace
	CheckpointKeep  retention
	StoreLimit      string
	GradientTime    time.Duration
	Codec           string
	Wire            string
	Window          string
	Pull            string

	Device       string
	ServerDevice string
	Kernels      string
	Engine       string
	BLAS         string
	BLASThreads  int
	Threads      int

	Warning  time.Duration
	LogLevel string

	// What processes on other hosts compute: a file of settings is for all roles, and this host may
	// not have their GPUs.
	Elsewhere struct{ Gradients, Steps bool }

	// Place is the number of this process in its role, or if it may take any place, among those of its
	// host. By it the process takes a GPU. It is no setting of a run.
	Place int
}

// Register adds a flag for every setting.
func (s *Settings) Register(f *pflag.FlagSet) {
	f.StringVar(&s.Model, "model", "lenet", "model to train: mlr, mlp, lenet, cnn, cnn:relu-logits, charlm, mf, mf:als, lda or qp")
	f.StringVar(&s.Data, "data", "", "data set. Images: digits (generated), mnist, fashion, cifar10, cifar10-jpeg or idx (any folder of IDX files). Vectors: cover (generated) or covtype. For charlm: text (generated) or shakespeare. For mf: ratings (generated), movielens or jester. For lda: topics (generated), 20news or reuters (default: a generated one)")
	f.StringVar(&s.DataDir, "data-dir", "", "folder that holds the data set (default $KINTSUGI_DATA)")
	f.StringArrayVar(&s.Program, "program", nil, "program that computes the gradients of your own model; repeat the flag for each of its arguments, or give all of them after --, as in train -- python3 train.py")
	f.StringVar(&s.Described, "described", "", "file that describes what the program trains, as train and program describe write it, for processes that need not run the program (default: the program is asked)")
	f.StringVar(&s.Input, "input", "", "image shape and classes as CxHxWxK, or length and alphabet of a sequence as TxK (default: taken from the data)")
	f.IntVar(&s.Workers, "workers", 4, "workers that compute gradients")
	f.IntVar(&s.Servers, "servers", 2, "servers, each with one shard of the parameters")
	f.IntVar(&s.Replicas, "replicas", 0, "replicas of each shard, on consecutive servers (default: 2 with --recovery chain; 3 with chain:next, and with chain:paper if there are as many servers; 2 with gold if servers are not started by train; else 1)")
	f.StringVar(&s.Consistency, "consistency", "bsp", "which gradients a step counts: "+strings.Join(agg.Presets(), ", ")+"; options after a colon or a comma, such as async:discount")
	f.StringVar(&s.Optimizer, "optimizer", "", "sgd, momentum, nesterov, adam, adamw, adagrad or lazyadam, which is adam for what has a gradient, and leaves the rest alone, for models whose batches touch some rows of large tables (default: as the model suggests)")
	f.Float64Var(&s.LearningRate, "learning-rate", 0, "learning rate (default: as the model suggests)")
	f.StringArrayVar(&s.Rates, "rate", nil, "learning rate of some tensors, as PATTERN=FACTOR: \"head.*=10\" gives those whose names fit the pattern ten times the learning rate; may be repeated, and the first pattern that fits a name counts (default: as the program suggests, else 1)")
	f.IntVar(&s.Warmup, "warmup", Suggested, "number of steps in which the learning rate rises to its value, in equal parts (default: as the model suggests, mostly 0)")
	f.StringVar(&s.Decay, "decay", "", "how the learning rate falls in the steps that follow: constant, or linear or cosine to 0 at the end of the run; cosine:0.1 falls to a tenth; linear,last=0.2 falls in the last fifth of the steps; drop:0.1@300,600 falls to a tenth after step 300, and again after step 600 (default: as the model suggests, mostly cosine)")
	f.Float64Var(&s.Momentum, "momentum", Suggested, "momentum (default: as the model suggests)")
	f.StringVar(&s.Betas, "betas", "", "decay rates of the two means that the Adams keep, of gradients and of their squares, such as 0.9,0.95 (default: as the model suggests, mostly 0.9,0.999)")
	f.Float64Var(&s.Epsilon, "epsilon", 0, "what the Adams and Adagrad add to the root that they divide by (default: as the model suggests, mostly 1e-8)")
	f.Float64Var(&s.WeightDecay, "weight-decay", Suggested, "weight decay (default: as the model suggests, mostly 0)")
	f.StringVar(&s.Decayed, "weight-decay-for", "", "which tensors decay: all, or matrices, which are those with two or more dimensions, without biases and the scales of norms (default: as the model suggests, mostly all)")
	f.Float64Var(&s.ClipNorm, "clip-norm", Suggested, "longest norm that the gradient of a worker counts with: a longer one is scaled down to it, before the mean; 0 bounds nothing (default: as the model suggests, mostly 0)")
	for _, name := range []string{"warmup", "momentum", "weight-decay", "clip-norm"} {
		f.Lookup(name).DefValue = "0" // so that help prints no default; 0 itself is a valid value
	}
	f.IntVar(&s.LocalSteps, "local-steps", 1, "steps that each worker takes by itself before it exchanges what it has learnt: with 16, gradients and parameters travel once for 16 batches of each worker. --optimizer, --learning-rate and the like are then those of local steps, and --steps, --warmup and --decay count exchanges")
	f.StringVar(&s.Outer, "outer", "", "with --local-steps: how servers apply the mean of what workers have learnt: "+conductor.OuterSyntax+". sgd takes the mean of their models. RATE is a part of the learning rate, 0.7 with momentum and nesterov where nothing is said; MOMENTUM is 0.9. auto is sgd or, if local steps have momentum and no late gradients count, as much momentum as these lack because they begin anew (default: auto)")
	f.IntVar(&s.Batch, "batch", 0, "examples of one gradient (default: as the model suggests)")
	f.Uint64Var(&s.Steps, "steps", 0, "steps of the run (default: as the model suggests)")
	f.Uint64Var(&s.Seed, "seed", 1, "seed of everything random")
	f.StringVar(&s.Recovery, "recovery", "gold", "how a lost shard comes back: gold (from its other replicas or from memory outside its process; else that shard alone goes back, to what was saved last), auto (as gold, with the number of replicas that costs least by what the run measures), chain (from its other replicas; nothing is lost), chain:next (the same with three replicas, where a step is done when two have it), chain:paper[,STEPS] (from the copy that the next replica gets every STEPS steps, 100 by default; what came since is lost), checkpoint (all shards go back to the newest full checkpoint), scar or scar:OPTIONS, such as scar:1/8,16 and scar:adaptive (that shard alone goes back, each chunk to what was saved last), "+statelessForms+" (the restarted server finds it in memory outside the process) or none (all shards start again)")
	s.MoveAfter = moveAfter
	f.Var(&s.MoveAfter, "move-after", "how long the others wait for a server that is away before they take over its shards until it is back: a time such as 30s, or never; it counts from when the server's lease has lapsed")
	s.HangAfter = hanging(timeout.Learned)
	f.Var(&s.HangAfter, "hang-after", "how long a program may take for a gradient, the local steps of one exchange or an evaluation, before it counts as hung: it is ended then, and its worker is started again. A time such as 10m, never, or auto, which is 20 times as long as the longest of its newest answers took, but at least 2m; 30m for the first. The GPU of a built-in model, or of a server, may take as long for what it is given at once (auto: 2m), before its process ends")
	f.StringVar(&s.Outage, "outage", "", "what workers do while servers are away: wait, or continue on the parameters that they have and keep the gradients (default: continue with --recovery gold, auto or stateless if the consistency counts late gradients; else wait)")
	f.StringVar(&s.Kept, "kept", "", "what workers keep in an outage, and how it is applied: local (each trains on by itself, and the mean of their changes counts), decay (some gradients one after the other, weighted by staleness), average (the mean of each worker's gradients) or sum (their sum, with a tenth of the learning rate) (default: decay with adam, adamw, lazyadam and adagrad, sum with stateless:paper, else local)")
	s.CheckpointEvery = Pace{Steps: 50}
	s.CheckpointKeep.Newest = ckpt.DefaultKeep
	f.Var(&s.CheckpointKeep, "checkpoint-keep", "which full checkpoints are kept: a number of the newest; 2,every=1000 also keeps the first of each 1000 steps")
	f.Var(&s.CheckpointEvery, "checkpoint-every", "how often a full checkpoint is taken: a number of steps, a time such as 10m, or auto, which weighs what saves and failures cost")
	f.StringVar(&s.StoreLimit, "store-limit", "", "how much all servers together may write to the checkpoint, such as 50MB/s, to try a slow store (default: no limit)")
	f.DurationVar(&s.GradientTime, "gradient-time", 0, "least time that a gradient takes, such as 80ms, to imitate slower machines (default: no least time)")
	f.StringVar(&s.Wire, "wire", "auto", "how processes exchange gradients and parameters: shm (memory shared by processes of one host), grpc, or auto (shm where possible)")
	f.StringVar(&s.Window, "window", WindowDefault, "how many bytes may be in flight to a process on each of its gRPC streams, or auto, which adapts it. A stream carries that much per round trip, so hosts that are tens of milliseconds apart need more, such as 16MiB; less stays in the caches")
	f.StringVar(&s.Pull, "pull", "fp32", "how parameters travel: fp32, bf16 (half the bytes; gradients are computed on rounded parameters) or delta (exact, but only what has changed: for models whose steps touch few rows)")
	f.StringVar(&s.Codec, "codec", "", "how gradients travel: "+codecForms()+" (default: as the model suggests, mostly fp32)")
	f.StringVar(&s.Device, "device", "auto", "what computes gradients: "+deviceForms)
	f.StringVar(&s.ServerDevice, "server-device", "cpu", "what keeps the parameters and takes the steps: "+serverDeviceForms+"; the result does not depend on it")
	f.StringVar(&s.Kernels, "kernels", "auto", "instructions of the server's kernels: auto, "+strings.Join(kernelNames(), ", ")+"; the result does not depend on it")
	f.StringVar(&s.Engine, "engine", "native", "what runs the model in workers and evaluations: native or gorgonia")
	f.StringVar(&s.BLAS, "blas", "auto", "matrix library of the workers: auto (the first of mkl, openblas and builtin that is there and knows the processor), mkl, openblas, builtin, gonum (the reference)")
	f.IntVar(&s.BLASThreads, "blas-threads", 0, "threads of the native engine, or of gorgonia's matrix library, in each worker (default: the cores of its machine, or with train a share of them, up to 8; gorgonia: 1); the native engine's result does not depend on it")
	f.IntVar(&s.Threads, "threads", 0, "threads of each server's kernels (default: the cores of its machine, or with train a share of them); the result does not depend on it")
	f.DurationVar(&s.Warning, "warning", notice.DefaultWarning, "how long a process may live after a notice that does not say how long")
	f.StringVar(&s.LogLevel, "log-level", "info", "debug, info, warn or error")
}

func kernelNames() []string {
	var names []string
	for _, d := range kernels.Devices() {
		names = append(names, d.Name())
	}
	return names
}

// Load sets the flags that the command line does not set: from the file, if there is one, and
// otherwise from the environment. Other flags keep their defaults.
func Load(f *pflag.FlagSet, file string) error {
	if file != "" {
		if err := LoadFile(f, file); err != nil {
			return err
		}
	}
	var all []string
	f.VisitAll(func(flag *pflag.Flag) { all = append(all, flag.Name) })
	return FromEnvironment(f, all...)
}

// FromEnvironment sets the given flags from the environment, unless they are set already.
func FromEnvironment(f *pflag.FlagSet, flags ...string) error {
	var errs []error
	for _, flag := range flags {
		name := Environment(flag)
		value := os.Getenv(name)
		if f.Changed(flag) || name == "" || value == "" {
			continue
		}
		if err := f.Set(flag, value); err != nil {
			errs = append(errs, cli.BadFlag(err, "$"+name))
		}
	}
	return errors.Join(errs...)
}

// Environment returns the environment variable with the default of a flag, or "". KINTSUGI_DATA is
// the folder of the data, so it cannot also be the data set.
func Environment(flag string) string {
	switch flag {
	case "data":
		return ""
	case "data-dir":
		return "KINTSUGI_DATA"
	}
	return "KINTSUGI_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// LoadFile sets flags from a YAML file of flag names. Unknown names are errors that name the line.
func LoadFile(f *pflag.FlagSet, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w: --config: %w", kintsugi.ErrUsage, err)
	}
	return LoadText(f, file, text)
}

// LoadText is LoadFile for the text of a file.
func LoadText(f *pflag.FlagSet, file string, text []byte) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%w: --config %s: %w", kintsugi.ErrUsage, file, err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("%w: --config %s: it must list settings as \"name: value\"", kintsugi.ErrUsage, file)
	}
	lines := make(map[string]int)
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if first, twice := lines[key.Value]; twice {
			return fmt.Errorf("%w: --config %s, line %d: %q is set in line %d already; keep one of them", kintsugi.ErrUsage, file, key.Line, key.Value, first)
		}
		lines[key.Value] = key.Line
		flag := f.Lookup(key.Value)
		if flag == nil && OfTrain(key.Value) {
			continue // the file of a run is for all its processes, and this one does not have this setting
		}
		if flag == nil || flag.Name == "config" || flag.Name == "help" {
			return fmt.Errorf("%w: --config %s, line %d: there is no setting %q", kintsugi.ErrUsage, file, key.Line, key.Value)
		}
		if flag.Changed {
			continue // the command line takes precedence
		}
		values := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			values = value.Content
		}
		var texts []string
		for _, v := range values {
			if v.Kind != yaml.ScalarNode {
				return fmt.Errorf("%w: --config %s, line %d: %q takes a value, or a list of values for a flag that may be repeated", kintsugi.ErrUsage, file, v.Line, key.Value)
			}
			texts = append(texts, v.Value)
		}
		if _, list := flag.Value.(pflag.SliceValue); !list && value.Kind == yaml.SequenceNode {
			texts = []string{strings.Join(texts, ",")} // betas: [0.9, 0.95] is what it looks like, and model: [mlr, mlp] is not mlp
		}
		for _, t := range texts {
			if err := f.Set(flag.Name, t); err != nil {
				return fmt.Errorf("--config %s, line %d: %w", file, value.Line, cli.BadFlag(err, key.Value))
			}
		}
	}
	return nil
}

// OfTrain reports whether train has a setting.
func OfTrain(name string) bool {
	f := NewFlagSet("train")
	(&Settings{}).Register(f)
	return f.Lookup(name) != nil || slices.Contains(TrainFlags, name)
}

// TrainFlags are the flags of train that are no settings of a run.
var TrainFlags = []string{
	"config", "etcd", "eval-every", "fault", "keep-best", "metrics", "notice", "notice-endpoint", "out", "patience", "price", "resume", "store", "tensorboard", "tls", "until",
}

// Dump writes the current value of every flag, except those in skip, as YAML that LoadFile reads.
func Dump(f *pflag.FlagSet, skip ...string) []byte {
	var b strings.Builder
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" || flag.Name == "config" || slices.Contains(skip, flag.Name) {
			return
		}
		node := yaml.Node{Kind: yaml.ScalarNode, Value: flag.Value.String()}
		if s, ok := flag.Value.(pflag.SliceValue); ok {
			node = yaml.Node{Kind: yaml.SequenceNode}
			for _, v := range s.GetSlice() {
				node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: v})
			}
		}
		text, err := yaml.Marshal(map[string]*yaml.Node{flag.Name: &node})
		if err != nil {
			panic(fmt.Sprintf("kintsugi: dump %s: %v", flag.Name, err)) // scalars and lists of scalars can always be encoded
		}
		b.Write(text)
	})
	return []byte(b.String())
}

// Check returns a usage error for settings that no run can have.
func (s *Settings) Check() error {
	protects, err := s.Protection()
	if err != nil {
		return err
	}
	type rule struct {
		bad    bool
		reason string
	}
	rules := []rule{
		{s.Workers < 1, fmt.Sprintf("--workers %d: a run needs at least one", s.Workers)},
		{s.Workers > 4096, fmt.Sprintf("--workers %d: at most 4096", s.Workers)},
		{s.Servers < 1, fmt.Sprintf("--servers %d: a run needs at least one", s.Servers)},
		{s.Servers > 1024, fmt.Sprintf("--servers %d: at most 1024", s.Servers)},
		{s.Replicas < 0, fmt.Sprintf("--replicas %d: a shard needs at least one", s.Replicas)},
		{protects.Replicas > s.Servers, fmt.Sprintf("%d replicas of each shard on %d servers: use at least as many servers (--servers, --replicas)", protects.Replicas, s.Servers)},
		{s.GradientTime < 0, fmt.Sprintf("--gradient-time %v must not be negative", s.GradientTime)},
		{s.Batch < 0, fmt.Sprintf("--batch %d must be positive", s.Batch)},
		{s.Batch > 1<<20, fmt.Sprintf("--batch %d: at most %d", s.Batch, 1<<20)},
		{!(s.LearningRate >= 0) || math.IsInf(s.LearningRate, 0), fmt.Sprintf("--learning-rate %v must be positive, and a number", s.LearningRate)},
		{!(s.Epsilon == 0 || float32(s.Epsilon) > 0 && float32(s.Epsilon) <= math.MaxFloat32), fmt.Sprintf("--epsilon %v must be positive, and a number that float32 has", s.Epsilon)},
		{!(s.WeightDecay >= 0 || s.WeightDecay == Suggested) || math.IsInf(s.WeightDecay, 0), fmt.Sprintf("--weight-decay %v must be a number that is not negative", s.WeightDecay)},
		{!(s.ClipNorm >= 0 || s.ClipNorm == Suggested) || math.IsInf(s.ClipNorm, 0), fmt.Sprintf("--clip-norm %v must be a number that is not negative", s.ClipNorm)},
		{s.Warmup < 0 && s.Warmup != Suggested, fmt.Sprintf("--warmup %d must not be negative", s.Warmup)},
		{!(s.Momentum >= 0 && s.Momentum < 1 || s.Momentum == Suggested), fmt.Sprintf("--momentum %v must be at least 0, and below 1", s.Momentum)},
		{protects.checkpoints && s.CheckpointEvery == Pace{}, "--checkpoint-every 0: use --recovery none to keep no checkpoints but the last"},
		{s.Engine != "native" && s.Engine != "gorgonia", fmt.Sprintf("--engine %q is unknown; use native or gorgonia", s.Engine)},
		{s.Warning <= 0, fmt.Sprintf("--warning %v must be positive", s.Warning)},
		{s.LocalSteps < 1 || s.LocalSteps > mostLocalSteps, fmt.Sprintf("--local-steps %d: use 1, which is none, to %d", s.LocalSteps, mostLocalSteps)},
		{s.LocalSteps == 1 && s.Outer != "", fmt.Sprintf("--outer %s says how servers apply what workers have learnt in local steps, and there are none: use --local-steps too", s.Outer)},
		{s.Threads < 0 || s.BLASThreads < 0, "--threads and --blas-threads must be positive"},
		{s.Threads > 4096 || s.BLASThreads > 4096, fmt.Sprintf("--threads %d, --blas-threads %d: at most 4096", s.Threads, s.BLASThreads)},
	}
	for _, r := range rules {
		if r.bad {
			return fmt.Errorf("%w: %s", kintsugi.ErrUsage, r.reason)
		}
	}
	if err := s.checkProgram(); err != nil {
		return err
	}
	if err := s.checkDevice(); err != nil {
		return err
	}
	if _, err := worker.ParseWire(s.Wire); err != nil {
		return err
	}
	if _, err := worker.ParsePull(s.Pull); err != nil {
		return err
	}
	if _, err := ParseWindow(s.Window); err != nil {
		return err
	}
	if _, err := ParseLimit(s.StoreLimit); err != nil {
		return err
	}
	if _, err := compress.Parse(s.Codec); err != nil && s.Codec != "" {
		return err
	}
	if _, err := (conductor.Schedule{}).Outer(s.Outer, s.LocalSteps); err != nil {
		return err
	}
	consistency, err := s.consistency()
	if err == nil {
		err = consistency.Check(s.Workers)
	}
	if err != nil {
		return err
	}
	_, err = s.KernelDevice()
	return err
}

// codecForms lists the forms of a codec.
func codecForms() string {
	return strings.Join(compress.Specs(), ", ") + "; then -nofeedback, to forget what a lossy one leaves out; then +s2, +huff0 or +auto, to pack it without loss"
}

// KernelDevice returns the device for the server's kernels and the worker's norms.
func (s *Settings) KernelDevice() (kernels.Device, error) {
	if s.Kernels == "auto" {
		return kernels.Best(), nil
	}
	d, err := kernels.ByName(s.Kernels)
	if err != nil {
		return nil, fmt.Errorf("%w: --kernels: %w", kintsugi.ErrUsage, err)
	}
	return d, nil
}

// Cores returns how many cores this process may use at once. Unlike runtime.NumCPU, it follows the
// limits of a container: whoever runs more threads than those allow is stopped for a part of each
// tenth of a second.
func Cores() int { return runtime.GOMAXPROCS(0) }

// KernelThreads returns the number of threads for the kernels of a server, if so many servers share
// this machine.
func (s *Settings) KernelThreads(servers int) int {
	if s.Threads > 0 {
		return s.Threads
	}
	return max(1, Cores()/servers)
}

// mostEngineThreads is the largest default: a convolution of 64 images has as many parts. More have
// not been measured.
const mostEngineThreads = 8

// EngineThreads returns the number of threads of a worker's engine, if so many workers share this
// machine.
func (s *Settings) EngineThreads(workers int) int {
	switch {
	case s.BLASThreads > 0:
		return s.BLASThreads
	case s.Engine == "gorgonia": // its result depends on the number
		return 1
	}
	return max(1, min(mostEngineThreads, Cores()/workers))
}

// Schedule returns the optimizer settings of every step that servers take. The settings are
// resolved.
func (s *Settings) Schedule() (conductor.Schedule, error) {
	inner, err := s.schedule()
	if err != nil || !s.local() {
		return inner, err
	}
	outer, err := s.outer()
	if err != nil {
		return conductor.Schedule{}, err
	}
	return inner.Outer(outer, s.LocalSteps)
}

// schedule returns the optimizer settings of the model's steps: those of servers, or the local ones
// of workers.
func (s *Settings) schedule() (conductor.Schedule, error) {
	rule, err := kintsugi.ParseRule(s.Optimizer)
	if err != nil {
		return conductor.Schedule{}, err
	}
	beta1, beta2, err := conductor.ParseBetas(s.Betas)
	if err != nil {
		return conductor.Schedule{}, err
	}
	decay, err := conductor.ParseDecay(s.Decay)
	if err == nil && s.Decayed != decayAll && s.Decayed != decayMatrices {
		err = fmt.Errorf("%w: --weight-decay-for %q is unknown; use %s or %s", kintsugi.ErrUsage, s.Decayed, decayAll, decayMatrices)
	}
	return conductor.Schedule{
		Rule: rule, LearningRate: s.LearningRate, Momentum: s.Momentum, Beta1: beta1, Beta2: beta2, Epsilon: s.Epsilon, WeightDecay: s.WeightDecay, DecayMatrices: s.Decayed == decayMatrices,
		Warmup: kintsugi.Step(s.Warmup), Decay: decay, Steps: kintsugi.Step(s.Steps),
	}, err
}

// Suggested stands for a number that is left to the model.
const Suggested = -1

// The tensors that weight decay may apply to.
const (
	decayAll      = "all"
	decayMatrices = "matrices"
)

// Saves returns how often a full checkpoint is saved; zero means only the last one.
func (s *Settings) Saves() Pace {
	if !s.Protects().checkpoints {
		return Pace{}
	}
	return s.CheckpointEvery
}

// NewFlagSet returns an empty set of flags that returns errors instead of ending the process.
func NewFlagSet(name string) *pflag.FlagSet { return pflag.NewFlagSet(name, pflag.ContinueOnError) }

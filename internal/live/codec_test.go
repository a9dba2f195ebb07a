package live

import (
	"context"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/internal/race"
	"github.com/kintsugi-ml/kintsugi/internal/transport"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/server"
	"github.com/kintsugi-ml/kintsugi/server/agg"
	"github.com/kintsugi-ml/kintsugi/worker"
)

// specs are codecs that cover every encoding and every lossless stage.
var specs = []string{"fp32+s2", "bf16+huff0", "fp16+auto", "int8", "int8:stochastic", "sign+s2", "topk:0.05", "topk:0.02:fp32+auto", "powersgd:2", "sparse"}

func parse(t testing.TB, spec string) compress.Codec {
	t.Helper()
	c, err := compress.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withCodecs assigns codecs to the slots of a run in turn.
func withCodecs(t testing.TB, cfg Config, specs ...string) Config {
	cfg.Seed, cfg.Device = 7, kernels.Best()
	cfg.Codec = func(s kintsugi.Slot) compress.Codec { return parse(t, specs[int(s)%len(specs)]) }
	return cfg
}

// loop trains as cfg says on one goroutine. It decodes what every worker would send, and makes
// steps in float32.
func loop(t *testing.T, cfg Config) []float32 {
	t.Helper()
	l := cfg.Layout
	params, state := make([]float32, l.Values), [2][]float32{make([]float32, l.Values), make([]float32, l.Values)}
	grads := make([]float32, l.Values)
	feedback := make([]*compress.Feedback, cfg.Workers)
	for w := range feedback {
		feedback[w] = compress.NewFeedback(cfg.Codec(kintsugi.Slot(w)), l, cfg.Seed)
	}
	for v := range cfg.Steps {
		step := kernels.Step{Scale: 1 / float32(32*cfg.Workers), Params: params, Next: params, State: state, NextState: state}
		for w, f := range feedback {
			id := kintsugi.PushID{Line: 1, Slot: kintsugi.Slot(w), Version: v}
			if _, _, err := cfg.Gradient(t.Context(), params, grads, id); err != nil {
				t.Fatal(err)
			}
			decoded, norm := make([]float32, l.Values), 0.0
			for i, c := range l.Chunks {
				payload := f.Encode(nil, id, kintsugi.ChunkID(i), grads[c.Lo:c.Hi])
				if err := kernels.Host.Decode(decoded[c.Lo:c.Hi], f.Codec().Encoding(), payload); err != nil {
					t.Fatal(err)
				}
				square, err := kernels.Host.SquaredNorm(decoded[c.Lo:c.Hi])
				if err != nil {
					t.Fatal(err)
				}
				norm += square
			}
			f.Counted(id)
			step.Operands = append(step.Operands, kernels.Operand{Weight: float32(32 * cfg.Consistency.Clipped(norm)), Values: decoded})
		}
		o := cfg.Schedule.At(v + 1)
		step.Rule = kernels.Rule(o.Rule)
		step.Scalars = server.Scalars(o, kintsugi.Tensor{})
		if _, err := kernels.Host.Step(&step); err != nil {
			t.Fatal(err)
		}
	}
	return params
}

// A cluster whose workers encode ends with the bits of a loop that first decodes everything to
// float32, for any number of servers and threads and on any device, with a different codec for each
// worker.
func TestEncodedGradientsGiveTheModelOfDecodedOnes(t *testing.T) {
	race.Skip(t)
	runs := [][]string{{"int8", "sign+s2", "topk:0.05", "bf16+huff0"}}
	if !testing.Short() {
		for _, s := range specs {
			runs = append(runs, []string{s})
		}
	}
	for i, codecs := range runs {
		cfg := withCodecs(t, base(t), codecs...)
		cfg.Steps, cfg.Servers, cfg.Threads = 30, 1+i%3, 1+i%2
		devices := kernels.Devices()
		cfg.Device = devices[i%len(devices)]
		want := loop(t, cfg)
		if got := run(t, cfg, nil); !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s on %d servers ends with another model than a loop", strings.Join(codecs, ", "), cfg.Servers)
		}
	}
}

// Clipped gradients give the model of a loop that scales each gradient down, however they travel.
// The bound cuts about half of them.
func TestClippedGradientsGiveTheModelOfALoopThatClips(t *testing.T) {
	race.Skip(t)
	for _, codec := range []string{"fp32", "int8"} {
		cfg := withCodecs(t, base(t), codec)
		cfg.Steps, cfg.Servers, cfg.Consistency.ClipNorm = 30, 2, 125
		want, whole := loop(t, cfg), cfg
		whole.Consistency.ClipNorm = 0
		if slices.EqualFunc(want, loop(t, whole), sameBits) {
			t.Fatal("no gradient is clipped")
		}
		var clipped uint32
		got := run(t, cfg, func(l *Cluster) {
			_ = l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
				if s, ok := e.(kintsugi.StepEvent); ok {
					clipped += s.Clipped
				}
				_, done := e.(kintsugi.Done)
				return !done
			})
		})
		if !slices.EqualFunc(got, want, sameBits) {
			t.Errorf("%s: another model than a loop's", codec)
		}
		if clipped == 0 || clipped == uint32(30*cfg.Workers) {
			t.Errorf("%s: %d of %d gradients are clipped", codec, clipped, 30*cfg.Workers)
		}
	}
}

// Most of a sparse gradient is never sent, and the events report the bytes that are.
func TestEventsCountTheBytesOnTheWire(t *testing.T) {
	pushed := func(spec string) (bytes uint64) {
		cfg := withCodecs(t, base(t), spec)
		cfg.Steps = 20
		run(t, cfg, func(l *Cluster) {
			_ = l.Watch(t.Context(), func(e kintsugi.RunEvent) bool {
				if s, ok := e.(kintsugi.StepEvent); ok {
					bytes += s.Pushed
				}
				_, done := e.(kintsugi.Done)
				return !done
			})
		})
		return bytes
	}
	cfg := base(t)
	frames := len(transport.Frames(cfg.Layout, cfg.Layout.Split(1)[0]))
	if got, want := pushed("fp32"), uint64(20*cfg.Workers*(4*cfg.Layout.Values+frames*transport.HeaderBytes)); got != want {
		t.Errorf("fp32: %d bytes, want %d", got, want)
	}
	if got, most := pushed("topk:0.01"), uint64(20*cfg.Workers*4*cfg.Layout.Values/25); got > most {
		t.Errorf("topk:0.01: %d bytes, want at most %d", got, most)
	}
}

// With a codec without feedback, a gradient depends only on its id: after a rollback, the same
// gradients are computed.
func TestServerCrashDoesNotChangeTheModelOfACodecWithoutFeedback(t *testing.T) {
	race.Skip(t)
	base := withCodecs(t, base(t), "int8:stochastic-nofeedback", "topk:0.3-nofeedback+s2")
	base.Servers = 2
	want := run(t, base, nil)
	got := run(t, base, func(l *Cluster) {
		until(t, l, 33)
		l.KillServer(1)
		if err := l.StartServer(1); err != nil {
			t.Fatal(err)
		}
		l.NewView("a server came back")
	})
	if !slices.EqualFunc(got, want, sameBits) {
		t.Error("killing a server changed the model")
	}
}

// With feedback, a rollback loses the residuals and nothing else: the run ends, and the model is as
// good.
func TestRunsWithFeedbackOutliveCrashes(t *testing.T) {
	cfg := withCodecs(t, base(t), "topk:0.05", "sign", "int8")
	cfg.Servers, cfg.Steps, cfg.LeaveGrace = 2, 250, soon
	cfg.Schedule.LearningRate = 0.03
	params := run(t, cfg, func(l *Cluster) {
		until(t, l, 50)
		l.KillServer(0)
		if err := l.StartServer(0); err != nil {
			t.Fatal(err)
		}
		l.NewView("a server came back")
		until(t, l, 120)
		l.KillWorker(1)
		until(t, l, 140)
		l.StartWorker(1)
	})
	if off := distance(params); off > 0.1 {
		t.Errorf("the mean parameter is %v away from the optimum", off)
	}
}

// distance returns how far the mean of the parameters is from the optimum of noisy, which is 1.
func distance(params []float32) float64 {
	sum := 0.0
	for _, p := range params {
		sum += float64(p)
	}
	return math.Abs(sum/float64(len(params)) - 1)
}

// A worker may have several open pushes, and they may be dropped and counted in any order.
func TestAsyncConvergesWithFeedback(t *testing.T) {
	race.Skip(t)
	presets := []string{"rennala:4", "async", "backup:1"}
	if testing.Short() {
		presets = presets[:1]
	}
	for _, preset := range presets {
		cfg := withCodecs(t, base(t), "topk:0.1", "int8")
		cfg.Servers, cfg.Steps = 2, 100
		cfg.Schedule.Rule, cfg.Schedule.LearningRate = kintsugi.RuleSGD, 0.08
		var err error
		if cfg.Consistency, err = agg.Preset(preset); err != nil {
			t.Fatal(err)
		}
		if off := distance(run(t, cfg, nil)); off > 0.1 {
			t.Errorf("%s: the mean parameter is %v away from the optimum", preset, off)
		}
	}
}

// proxy forwards connections, and can cut them.
type proxy struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
	cuts int
}

func newProxy(t *testing.T, to string) *proxy {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: lis, open: make(map[net.Conn]bool)}
	t.Cleanup(func() { _ = lis.Close(); p.cut() })
	go func() {
		for {
			a, err := lis.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				continue
			}
			p.mu.Lock()
			p.open[a], p.open[b] = true, true
			p.mu.Unlock()
			go pass(a, b)
			go pass(b, a)
		}
	}()
	return p
}

func pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
		delete(p.open, c)
		p.cuts++
	}
}

// Connections that are cut at any moment do not change the model: what was sent is sent again,
// workers learn what was counted meanwhile, and each residual is adopted once.
func TestCutConnectionsDoNotChangeAModelWithFeedback(t *testing.T) {
	cutConnections(t, withCodecs(t, base(t), "topk:0.05", "sign+s2", "int8:stochastic"))
}

// The same holds for gradients in shared memory. A worker that connects again takes new memory, so
// that no segment is written while a server reads it.
func TestCutConnectionsDoNotChangeAModelInSharedMemory(t *testing.T) {
	base := base(t)
	base.Wire = worker.WireShared
	cutConnections(t, base)
}

func cutConnections(t *testing.T, base Config) {
	base.Servers = 2
	want := run(t, base, nil)
	cfg, cuts := cutting(t, base)
	got := run(t, cfg, nil)
	if cuts() == 0 {
		t.Fatal("no connection was cut")
	}
	if !slices.EqualFunc(got, want, sameBits) {
		t.Errorf("%d cuts changed the model", cuts())
	}
}

// If a worker is away for so long that it is no longer a member, the heads drop the pushes whose
// tickets it has sent. It must send them again, or a step that counts one could never be made.
func TestWorkersThatComeBackAsNewMembersSendAgainWhatHeadsHaveDropped(t *testing.T) {
	base := withCodecs(t, base(t), "topk:0.05", "sign+s2", "int8:stochastic")
	base.LeaveGrace = time.Nanosecond
	cfg, cuts := cutting(t, base)
	run(t, cfg, nil)
	if cuts() == 0 {
		t.Fatal("no connection was cut")
	}
}

// cutting returns cfg with connections that can all be cut, at moments when some workers have
// pushed and others have not.
func cutting(t *testing.T, cfg Config) (_ Config, cuts func() int) {
	var mu sync.Mutex
	proxies := make(map[string]*proxy)
	var gradients atomic.Int64
	cfg.Through = func(address string) string {
		mu.Lock()
		defer mu.Unlock()
		if proxies[address] == nil {
			proxies[address] = newProxy(t, address)
		}
		return proxies[address].Addr().String()
	}
	gradient := cfg.Gradient
	cfg.Gradient = func(ctx context.Context, params, grads []float32, id kintsugi.PushID) (float64, int, error) {
		if gradients.Add(1)%37 == 0 {
			mu.Lock()
			for _, p := range proxies {
				p.cut()
			}
			mu.Unlock()
		}
		return gradient(ctx, params, grads, id)
	}
	return cfg, func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range proxies {
			n += p.cuts
		}
		return n
	}
}

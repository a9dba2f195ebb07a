package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	gpuengine "github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/compress"
	"github.com/kintsugi-ml/kintsugi/worker"
	"github.com/kintsugi-ml/kintsugi/worker/local"
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

const (
	serverDeviceForms = "auto, cpu or cuda, of which each process takes the next GPU; cuda:1 is the second GPU for all"
	deviceForms       = serverDeviceForms + ", cuda,ptx multiplies matrices without cuBLAS, cuda,cublas never without it, and cuda,tf32 and cuda,bf16 have products with factors of 11 and of 8 bits"
)

// GPU is a parsed --device.
type GPU struct {
	Wanted    bool
	Ordinal   int  // number of the GPU among those that this process sees
	unnamed   bool // each process takes the next one that can be used: see of. Not wanted and unnamed: auto
	products  gpuengine.Products
	precision cuda.Precision
}

// ParseDevice parses --device. It looks for no GPU: that begins with loading a driver, which takes
// time that a server which comes back does not have.
func ParseDevice(s string) (GPU, error) {
	unknown := fmt.Errorf("%w: --device %q is unknown; use %s", kintsugi.ErrUsage, s, deviceForms)
	switch s {
	case "auto":
		return GPU{unnamed: true, products: gpuengine.Fastest}, nil
	case "cpu":
		return GPU{}, nil
	}
	name, options, more := strings.Cut(s, ",")
	ordinal, ok := ParseGPU(name)
	if !ok {
		return GPU{}, unknown
	}
	g := GPU{Wanted: true, Ordinal: ordinal, unnamed: name == "cuda", products: gpuengine.Fastest}
	for more {
		var option string
		option, options, more = strings.Cut(options, ",")
		switch {
		case option == "tf32" && g.precision == cuda.FP32:
			g.precision = cuda.TF32
		case option == "bf16" && g.precision == cuda.FP32:
			g.precision = cuda.BF16
		case option == "cublas" && g.products == gpuengine.Fastest:
			g.products = gpuengine.CuBLAS
		case option == "ptx" && g.products == gpuengine.Fastest:
			g.products = gpuengine.Own
		default:
			return GPU{}, unknown
		}
	}
	return g, nil
}

// of returns the GPU of process number index of its role: the one that is named, or the next of those
// that can be used. If there is none, auto wants none, and cuda the first, so that whoever opens it
// says why it cannot be used.
func (g GPU) of(index int) GPU {
	if !g.unnamed {
		return g
	}
	if usable, err := cuda.List(""); err == nil {
		g.Wanted, g.Ordinal = true, usable[index%len(usable)]
	}
	return g
}

// ParseGPU parses cuda, which is the first GPU, cuda:1 and so on.
func ParseGPU(s string) (ordinal int, ok bool) {
	if s == "cuda" {
		return 0, true
	}
	number, ok := strings.CutPrefix(s, "cuda:")
	n, err := strconv.ParseUint(number, 10, 8)
	return int(n), ok && err == nil
}

// ParseServerDevice parses --server-device.
func ParseServerDevice(s string) (GPU, error) {
	g, err := ParseDevice(s)
	if err != nil || strings.Contains(s, ",") {
		return GPU{}, fmt.Errorf("%w: --server-device %q is unknown; use %s", kintsugi.ErrUsage, s, serverDeviceForms)
	}
	return g, nil
}

// checkDevice reports early, in the process that the user started, why a GPU cannot be used.
func (s *Settings) checkDevice() error {
	g, err := ParseDevice(s.Device)
	if err != nil {
		return err
	}
	if s.Engine != "native" && g.Wanted {
		return fmt.Errorf("%w: --engine %s computes on the cpu only; leave it out, or --device %s", kintsugi.ErrUsage, s.Engine, s.Device)
	}
	if !s.Elsewhere.Gradients {
		if err := g.Check("--device", s.Device); err != nil {
			return err
		}
	}
	if g, err = ParseServerDevice(s.ServerDevice); err != nil {
		return err
	}
	if k := s.Protects().Running; k != nil && k.onHost() && g.of(s.Place).Wanted {
		return fmt.Errorf("%w: --recovery %s: increments, half and counts of accesses are for servers on the host; leave out --server-device %s, or use a plain scar", kintsugi.ErrUsage, s.Recovery, s.ServerDevice)
	}
	if s.Elsewhere.Steps {
		return nil
	}
	return g.Check("--server-device", s.ServerDevice)
}

// Check returns a usage error if a GPU was named and cannot be used.
func (g GPU) Check(flag, value string) error {
	if !g.Wanted {
		return nil
	}
	err := cuda.Usable("", g.of(0).Ordinal)
	if err == nil && g.products == gpuengine.CuBLAS {
		_, err = cuda.FindBLAS("")
	}
	if err != nil {
		return fmt.Errorf("%w: %s %s: %w", kintsugi.ErrUsage, flag, value, err)
	}
	return nil
}

// ServerDevices returns the devices of a server, and a name for them. accelerator makes the steps;
// if it is nil, device does. The accelerator is never closed: a stream may be sending from its
// memory until the process ends.
func (s *Settings) ServerDevices() (device kernels.Device, accelerator kernels.Accelerator, name string, err error) {
	if device, err = s.KernelDevice(); err != nil {
		return nil, nil, "", err
	}
	g, err := ParseServerDevice(s.ServerDevice)
	if g = g.of(s.Place); err != nil || !g.Wanted {
		return device, nil, device.Name(), err
	}
	gpu, err := cuda.Open("", g.Ordinal)
	if err != nil {
		return nil, nil, "", err
	}
	return device, gpu, gpu.String(), nil
}

// GPUModel is an engine and the GPU that it has for itself.
type GPUModel struct {
	*gpuengine.Engine
	device *cuda.Device
}

// Close closes both.
func (m GPUModel) Close() error { return errors.Join(m.Engine.Close(), m.device.Close()) }

// openGPU returns an engine that executes d on the GPU.
func openGPU(d *model.Description, g GPU) (model.Model, error) {
	device, err := cuda.Open("", g.Ordinal)
	if err != nil {
		return nil, err
	}
	e, err := gpuengine.New(d, device, gpuengine.Options{Products: g.products, Precision: g.precision})
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return GPUModel{e, device}, nil
}

// WatchGPU calls hangs, once, if device, a GPUModel or an accelerator, has a GPU that does not finish what it is given
// within --hang-after: no call to it returns then, so hangs should end the process.
func (s *Settings) WatchGPU(device any, hangs func(error)) {
	if m, ok := device.(GPUModel); ok {
		device = m.device
	}
	if gpu, ok := device.(*cuda.Device); ok && s.HangAfter != 0 {
		gpu.Watch(s.HangAfter.ofGPU(), hangs)
	}
}

// Computes says what computes gradients: the GPU of m, or the CPU. If --device auto has chosen the
// CPU although the program supports GPUs, it also says why.
func (s *Settings) Computes(m io.Closer) string {
	switch m := m.(type) {
	case GPUModel:
		return m.device.String()
	case *program.Program:
		return "as it likes: " + m.String()
	}
	return "cpu" + s.WhyNoGPU()
}

// ThreadsOf returns the number of threads of this process that compute a gradient in m; 0: none, or
// not for it to say.
func (s *Settings) ThreadsOf(m io.Closer) int {
	switch m.(type) {
	case GPUModel, *program.Program, nothing:
		return 0
	}
	return s.EngineThreads(1)
}

// WhyNoGPU returns the reason why auto means the CPU, in brackets, or "".
func (s *Settings) WhyNoGPU() string {
	if s.Device != "auto" {
		return ""
	}
	if _, err := cuda.List(""); err != nil && !errors.Is(err, cuda.ErrBuild) {
		return fmt.Sprintf(" (%v)", err)
	}
	return ""
}

// Multiplies says what computes matrix products in m: the GPU, or the library of the settings.
func Multiplies(m io.Closer, library fmt.Stringer) string {
	if g, ok := m.(GPUModel); ok {
		return g.Products()
	}
	return library.String()
}

// describeGPU describes the first GPU that can be used, what computes matrix products on it, and how
// to select it with --device, and says how many there are; or it says why there is none.
func describeGPU() string {
	usable, err := cuda.List("")
	if err != nil {
		return "none: " + err.Error()
	}
	device, err := cuda.Open("", usable[0])
	if err != nil {
		return "none: " + err.Error()
	}
	defer device.Close()
	products, err := gpuengine.DescribeProducts(device)
	if err != nil {
		return fmt.Sprintf("%v; %v", device, err)
	}
	text := fmt.Sprintf("%v; products by %s, in FP32, TF32 or BF16", device, products)
	if n := len(usable); n > 1 {
		text += fmt.Sprintf("; %d GPUs can be used", n)
	}
	return text
}

// localTrainer takes the local steps of a plan on a GPU.
type localTrainer struct {
	*gpuengine.Local
	plan local.Plan
}

// fetched is a worker.Gradient: it takes local steps and fetches what they have come to.
func (t *localTrainer) fetched(ctx context.Context, params, grads []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	if loss, examples, err = t.plan.Take(ctx, t, params, id); err == nil {
		err = t.Fetch(grads)
	}
	return loss, examples, err
}

// encodedGradients computes gradients and encodes them on a GPU.
type encodedGradients struct {
	*gpuengine.Compressed
	batch func(id kintsugi.PushID) model.Batch
}

// Gradient implements worker.Encoded.
func (e encodedGradients) Gradient(ctx context.Context, params []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	b := e.batch(id)
	loss, err = e.Compressed.Gradient(ctx, params, id, b)
	return loss, b.N, err
}

// encodedSteps takes local steps on a GPU and encodes there what they have come to.
type encodedSteps struct {
	*gpuengine.Compressed
	trainer *localTrainer
}

// Gradient implements worker.Encoded.
func (e encodedSteps) Gradient(ctx context.Context, params []float32, id kintsugi.PushID) (loss float64, examples int, err error) {
	err = e.Local(id, func() (err error) {
		loss, examples, err = e.trainer.plan.Take(ctx, e.trainer, params, id)
		return err
	})
	return loss, examples, err
}

// Encode returns a worker.Encoded on the GPU of m, if that supports the codec. nil means that the
// worker encodes the gradients of m itself.
func (p *Problem) Encode(m io.Closer, codec compress.Codec, pace kintsugi.Pace, seed uint64) (worker.Encoded, error) {
	g, ok := m.(GPUModel)
	if !ok || !gpuengine.CanCompress(codec) || pace.Along || pace.Continue {
		return nil, nil
	}
	c, err := gpuengine.NewCompressed(g.Engine, p.Layout, codec, seed)
	if err != nil {
		return nil, err
	}
	if p.trainer != nil {
		return encodedSteps{c, p.trainer}, nil
	}
	return encodedGradients{c, p.batch}, nil
}

// DeviceName names, for the records, what computes the gradients and the steps.
func (s *Settings) DeviceName() string {
	name := func(g GPU, err error) string {
		if g = g.of(0); err != nil || !g.Wanted {
			return "cpu"
		}
		if usable, _ := cuda.List(""); g.unnamed && len(usable) > 1 {
			return fmt.Sprintf("cuda, %d GPUs", len(usable))
		}
		return fmt.Sprintf("cuda:%d", g.Ordinal)
	}
	worker, server := name(ParseDevice(s.Device)), name(ParseServerDevice(s.ServerDevice))
	if worker != server {
		worker += ", servers on " + server
	}
	return fmt.Sprintf("%s (%s/%s, %d cores)", worker, runtime.GOOS, runtime.GOARCH, Cores())
}

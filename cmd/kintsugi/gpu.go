package main

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
	"github.com/kintsugi-ml/kintsugi/worker/model"
	"github.com/kintsugi-ml/kintsugi/worker/program"
)

const (
	serverDeviceForms = "auto, cpu or cuda; cuda:1 is the second GPU"
	deviceForms       = serverDeviceForms + ", cuda,ptx multiplies matrices without cuBLAS, cuda,cublas never without it, and cuda,tf32 and cuda,bf16 have products with factors of 11 and of 8 bits"
)

// gpu is what --device asks for.
type gpu struct {
	wanted    bool
	ordinal   int
	products  gpuengine.Products
	precision cuda.Precision
}

// parseDevice reads --device. auto is a GPU where the program was built for them and one can be used.
func parseDevice(s string) (gpu, error) {
	unknown := fmt.Errorf("%w: --device %q is unknown; use %s", kintsugi.ErrUsage, s, deviceForms)
	switch s {
	case "auto":
		return gpu{wanted: cuda.Usable("", 0) == nil, products: gpuengine.Fastest}, nil
	case "cpu":
		return gpu{}, nil
	}
	name, options, more := strings.Cut(s, ",")
	ordinal, ok := parseGPU(name)
	if !ok {
		return gpu{}, unknown
	}
	g := gpu{wanted: true, ordinal: ordinal, products: gpuengine.Fastest}
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
			return gpu{}, unknown
		}
	}
	return g, nil
}

// parseGPU reads cuda, which is the first GPU, cuda:1 and so on.
func parseGPU(s string) (ordinal int, ok bool) {
	if s == "cuda" {
		return 0, true
	}
	number, ok := strings.CutPrefix(s, "cuda:")
	n, err := strconv.ParseUint(number, 10, 8)
	return int(n), ok && err == nil
}

// parseServerDevice reads --server-device.
func parseServerDevice(s string) (gpu, error) {
	g, err := parseDevice(s)
	if err != nil || strings.Contains(s, ",") {
		return gpu{}, fmt.Errorf("%w: --server-device %q is unknown; use %s", kintsugi.ErrUsage, s, serverDeviceForms)
	}
	return g, nil
}

// checkDevice says early, in the process that the user started, what a GPU lacks.
func (s *settings) checkDevice() error {
	g, err := parseDevice(s.Device)
	if err != nil {
		return err
	}
	if s.Engine != "native" && g.wanted && s.Device != "auto" {
		return fmt.Errorf("%w: --engine %s computes on the cpu only; leave it out, or --device %s", kintsugi.ErrUsage, s.Engine, s.Device)
	}
	if !s.elsewhere.gradients {
		if err := g.check("--device", s.Device); err != nil {
			return err
		}
	}
	if g, err = parseServerDevice(s.ServerDevice); err != nil {
		return err
	}
	if k := s.protects().running; g.wanted && k != nil && k.onHost() {
		return fmt.Errorf("%w: --recovery %s: increments, half and counts of accesses are for servers on the host; leave out --server-device %s, or use a plain scar", kintsugi.ErrUsage, s.Recovery, s.ServerDevice)
	}
	if s.elsewhere.steps {
		return nil
	}
	return g.check("--server-device", s.ServerDevice)
}

// check returns a usage error that says what a GPU lacks which was asked for by name.
func (g gpu) check(flag, value string) error {
	if !g.wanted || value == "auto" {
		return nil
	}
	err := cuda.Usable("", g.ordinal)
	if err == nil && g.products == gpuengine.CuBLAS {
		_, err = cuda.FindBLAS("")
	}
	if err != nil {
		return fmt.Errorf("%w: %s %s: %w", kintsugi.ErrUsage, flag, value, err)
	}
	return nil
}

// serverDevices returns what computes in a server, and its name. accelerator does the steps; nil:
// device does. It is never closed: a stream may be sending from its memory to the end of the
// process.
func (s *settings) serverDevices() (device kernels.Device, accelerator kernels.Accelerator, name string, err error) {
	if device, err = s.kernelDevice(); err != nil {
		return nil, nil, "", err
	}
	g, err := parseServerDevice(s.ServerDevice)
	if err != nil || !g.wanted {
		return device, nil, device.Name(), err
	}
	gpu, err := cuda.Open("", g.ordinal)
	if err != nil {
		return nil, nil, "", err
	}
	return device, gpu, gpu.String(), nil
}

// gpuModel is an engine and the GPU that it alone uses.
type gpuModel struct {
	*gpuengine.Engine
	device *cuda.Device
}

// Close frees both.
func (m gpuModel) Close() error { return errors.Join(m.Engine.Close(), m.device.Close()) }

// openGPU returns what executes d on the GPU.
func openGPU(d *model.Description, g gpu) (model.Model, error) {
	device, err := cuda.Open("", g.ordinal)
	if err != nil {
		return nil, err
	}
	e, err := gpuengine.New(d, device, gpuengine.Options{Products: g.products, Precision: g.precision})
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return gpuModel{e, device}, nil
}

// computes says what computes gradients: the GPU of m, or else the cpu, and why --device auto took
// that in a program that can use GPUs.
func (s *settings) computes(m io.Closer) string {
	switch m := m.(type) {
	case gpuModel:
		return m.device.String()
	case *program.Program:
		return "as it likes: " + m.String()
	}
	return "cpu" + s.whyNoGPU()
}

// whyNoGPU is the reason why auto is the cpu, in brackets, where there is something to say.
func (s *settings) whyNoGPU() string {
	if s.Device != "auto" {
		return ""
	}
	if err := cuda.Usable("", 0); err != nil && !errors.Is(err, cuda.ErrBuild) {
		return fmt.Sprintf(" (%v)", err)
	}
	return ""
}

// multiplies says what multiplies matrices in m: the GPU's, or otherwise the library of the settings.
func multiplies(m io.Closer, library fmt.Stringer) string {
	if g, ok := m.(gpuModel); ok {
		return g.Products()
	}
	return library.String()
}

// describeGPU says what GPU there is, and what multiplies matrices on it and how --device may have
// it; or why there is none.
func describeGPU() string {
	device, err := cuda.Open("", 0)
	if err != nil {
		return "none: " + err.Error()
	}
	defer device.Close()
	products, err := gpuengine.DescribeProducts(device)
	if err != nil {
		return fmt.Sprintf("%v; %v", device, err)
	}
	return fmt.Sprintf("%v; products by %s, in FP32, TF32 or BF16", device, products)
}

// encodedGradients are gradients that are encoded on a GPU.
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

// encode returns what computes and encodes gradients, where the GPU that m is on can; nil: a worker
// encodes what m computes.
func (p *problem) encode(m io.Closer, codec compress.Codec, pace kintsugi.Pace, seed uint64) (worker.Encoded, error) {
	g, ok := m.(gpuModel)
	if !ok || !gpuengine.CanCompress(codec) || pace.Along || pace.Continue {
		return nil, nil
	}
	c, err := gpuengine.NewCompressed(g.Engine, p.layout, codec, seed)
	if err != nil {
		return nil, err
	}
	return encodedGradients{c, p.batch}, nil
}

// deviceName says for the records what computes the gradients, and the steps.
func (s *settings) deviceName() string {
	name := func(g gpu, err error) string {
		if err != nil || !g.wanted {
			return "cpu"
		}
		return fmt.Sprintf("cuda:%d", g.ordinal)
	}
	worker, server := name(parseDevice(s.Device)), name(parseServerDevice(s.ServerDevice))
	if worker != server {
		worker += ", servers on " + server
	}
	return fmt.Sprintf("%s (%s/%s, %d cores)", worker, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

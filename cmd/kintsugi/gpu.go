package main

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	kintsugi "github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/cuda"
	gpuengine "github.com/kintsugi-ml/kintsugi/cuda/engine"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

const deviceForms = "auto, cpu or cuda; cuda:1 is the second GPU, and cuda,tf32 has products with factors of 11 bits"

// gpu is what --device asks for.
type gpu struct {
	wanted  bool
	ordinal int
	tf32    bool
}

// parseDevice reads --device. auto is a GPU where the program was built for them and one can be used.
func parseDevice(s string) (gpu, error) {
	unknown := fmt.Errorf("%w: --device %q is unknown; use %s", kintsugi.ErrUsage, s, deviceForms)
	name, option, more := strings.Cut(s, ",")
	g := gpu{wanted: true, tf32: more}
	switch {
	case more && (option != "tf32" || !strings.HasPrefix(name, "cuda")):
		return gpu{}, unknown
	case s == "auto":
		n, err := cuda.Count("")
		return gpu{wanted: err == nil && n > 0}, nil
	case s == "cpu":
		return gpu{}, nil
	case name == "cuda":
		return g, nil
	}
	number, ok := strings.CutPrefix(name, "cuda:")
	n, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil {
		return gpu{}, unknown
	}
	g.ordinal = int(n)
	return g, nil
}

// checkDevice says early, in the process that the user started, what a GPU lacks.
func (s *settings) checkDevice() error {
	g, err := parseDevice(s.Device)
	if err != nil || !g.wanted || s.Device == "auto" {
		return err
	}
	if s.Engine != "native" {
		return fmt.Errorf("%w: --engine %s computes on the cpu only; leave it out, or --device %s", kintsugi.ErrUsage, s.Engine, s.Device)
	}
	n, err := cuda.Count("")
	if err == nil && g.ordinal >= n {
		err = fmt.Errorf("this machine has %d", n)
	}
	if err != nil {
		return fmt.Errorf("%w: --device %s: %w", kintsugi.ErrUsage, s.Device, err)
	}
	return nil
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
	e, err := gpuengine.New(d, device, gpuengine.Options{TF32: g.tf32})
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return gpuModel{e, device}, nil
}

// deviceName says for the records what computes the gradients.
func (s *settings) deviceName() string {
	name := "cpu"
	if g, err := parseDevice(s.Device); err == nil && g.wanted {
		name = fmt.Sprintf("cuda:%d and cpu", g.ordinal)
	}
	return fmt.Sprintf("%s (%s/%s, %d cores)", name, runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
}

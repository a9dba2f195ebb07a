//go:build gpu && cgo && linux

package cuda

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kintsugi-ml/kintsugi/cuda/emulate"
	"github.com/kintsugi-ml/kintsugi/kernels"
	"github.com/kintsugi-ml/kintsugi/kernels/kernelstest"
)

// held is a device that is never closed. A GPU's context is made for the first open device and
// destroyed after the last. Programs do that once, but tests would do it a hundred times.
var held = sync.OnceValues(func() (*Device, error) { return Open("", 0) })

// openTest opens the GPU, or an emulation of it.
func openTest(t testing.TB, edits ...emulate.Edit) *Device {
	t.Helper()
	if emulate.OnGPU() {
		_, _ = held() // the next call returns the error
	}
	d, err := Open(emulate.Library(t, edits...), 0)
	if err != nil {
		t.Fatal(err)
	}
	apart := emulate.Sanitized || emulate.OnPTX()
	d.in.apart, d.out.apart, d.scratch.apart = apart, apart, apart
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestTheDeviceKeepsTheContract(t *testing.T) {
	kernelstest.Run(t, openTest(t))
}

// Under schedule 1 work is done as soon as it is queued, otherwise as late as possible. One of the
// two shows a stream that does not wait for another.
func TestArraysOnTheDeviceKeepTheContract(t *testing.T) {
	d := openTest(t)
	for _, schedule := range []string{"1", "3"} {
		t.Run(schedule, func(t *testing.T) {
			t.Setenv(emulate.Schedule, schedule)
			kernelstest.RunArrays(t, d)
		})
	}
}

// These orders of threads make mistakes visible: the first warp as far as it gets, the last warp,
// and in turns.
func TestTheDeviceKeepsTheContractUnderEverySchedule(t *testing.T) {
	if testing.Short() {
		t.Skip("each schedule takes many seconds; run it without -short")
	}
	d := openTest(t)
	for _, schedule := range []string{"0", "1", "2", "4"} {
		t.Run(schedule, func(t *testing.T) {
			t.Setenv(emulate.Schedule, schedule)
			kernelstest.Run(t, d)
		})
	}
}

// There are more tiles than run at the same time.
func TestASelectionOfManyTiles(t *testing.T) {
	if testing.Short() && !emulate.OnGPU() {
		t.Skip("a million values take long on the emulation; run it without -short, or on a GPU")
	}
	if err := selectionDiffers(openTest(t), draw(rand.New(rand.NewPCG(3, 4)), 300*selectTile+5)); err != nil {
		t.Error(err)
	}
}

func TestAFaultLosesTheDevice(t *testing.T) {
	d, err := Open(emulate.Fresh(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	x := []float32{3, 4}
	if n, err := d.SquaredNorm(x); err != nil || n != 25 {
		t.Fatalf("norm before the fault: %v, %v", n, err)
	}
	t.Setenv(emulate.Fail, "700")
	if _, err = d.SquaredNorm(x); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Fatalf("norm in the fault: error %v; want ErrLost with the driver's reason", err)
	}
	t.Setenv(emulate.Fail, "")
	if _, err := d.Step(&kernels.Step{Rule: kernels.SGD, Params: x, Next: x}); !errors.Is(err, ErrLost) {
		t.Fatalf("step after the fault: error %v; want ErrLost", err)
	}
	if err := d.Close(); err != nil {
		t.Fatalf("close after the fault: %v", err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	library := emulate.Library(t)
	if library == "" {
		t.Skip("it asks for drivers other than this machine's, which only the emulation has; run it without -real")
	}
	for _, c := range []struct{ library, name, value, want string }{
		{"/no/such/libcuda.so.1", "", "", "no CUDA driver"},
		{"libdl.so.2", "", "", "the driver is too old"},
		{library, emulate.Devices, "0", "CUDA_ERROR"},
		{library, emulate.Version, "12030", "the driver is of CUDA 12.3; 12.4 or newer is needed"},
		{library, emulate.Exclusive, "1", "is another process's: its compute mode is exclusive"},
		{library, emulate.Major, "7", "compute capability 7.0; 8.0 or newer is needed"},
	} {
		t.Run(c.want, func(t *testing.T) {
			if c.name != "" {
				t.Setenv(c.name, c.value)
			}
			_, err := Open(c.library, 0)
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want ErrUnavailable with %q", err, c.want)
			}
			// Usable has the same answer, unless another process interferes.
			switch err := Usable(c.library, 0); {
			case c.name == emulate.Exclusive && err != nil:
				t.Errorf("before: error %v", err)
			case c.name != emulate.Exclusive && (!errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("before: error %v; want ErrUnavailable with %q", err, c.want)
			}
			// And so has the list of those that can be used.
			if usable, err := List(c.library); c.name != emulate.Exclusive && (usable != nil || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("usable are %v, error %v; want ErrUnavailable with %q", usable, err, c.want)
			}
		})
	}
	if err := Usable(library, 0); err != nil {
		t.Errorf("a device that is there: error %v", err)
	}
	_, err := Open(library, 1)
	for _, err := range []error{err, Usable(library, 1)} {
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no device 1: the driver has 1") {
			t.Errorf("second device of one: error %v", err)
		}
	}
	t.Setenv(emulate.Devices, "3")
	for old, want := range map[string][]int{"": {0, 1, 2}, "0": {1, 2}, "1": {0, 2}} {
		t.Setenv(emulate.Old, old)
		if usable, err := List(library); err != nil || !slices.Equal(usable, want) {
			t.Errorf("device %q is too old, and %v are usable, error %v; want %v", old, usable, err, want)
		}
	}
}

func TestAClosedDeviceSaysSo(t *testing.T) {
	d, err := Open(emulate.Library(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.SquaredNorm([]float32{1}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("norm on a closed device: error %v", err)
	}
}

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/cuda/kernel"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

var (
	// ErrUnavailable means that there is no GPU to open. The error that wraps it says what is missing.
	ErrUnavailable = errors.New("no GPU can be used")

	// ErrBuild is wrapped by an ErrUnavailable of a program that can use no GPU anywhere.
	ErrBuild = driver.ErrBuild

	// ErrLost means that the GPU failed and holds nothing any more. Restart the process; nothing else helps.
	ErrLost = errors.New("the GPU is lost")
)

// Device is one GPU. It implements kernels.Device, and is safe for concurrent use: calls run one after the other.
type Device struct {
	c       driver.Context
	name    string
	ordinal int

	mu        sync.Mutex
	stream    driver.Stream
	arrivals  driver.Stream // of gradients
	modules   map[string]driver.Module
	functions map[string]driver.Function
	in, out   segment // staged arrays, and their twins in pinned memory
	scratch   segment
	lost      error
	closed    bool

	held     sync.Mutex
	holdings map[*holding]struct{} // memory of arrays and landings
}

var _ kernels.Device = (*Device)(nil)

// Open opens GPU number ordinal, from 0, of the driver in the library; "" means libcuda.so.1, where
// the system finds it. Close it when it is no longer needed. Errors wrap ErrUnavailable and say
// what is missing: the build, the driver, the device, or its age.
func Open(library string, ordinal int) (*Device, error) {
	c, err := driver.Open(library, ordinal)
	if err != nil {
		return nil, fmt.Errorf("open GPU %d: %w: %w", ordinal, ErrUnavailable, err)
	}
	d := &Device{c: c, ordinal: ordinal, name: "cuda", modules: map[string]driver.Module{}, functions: map[string]driver.Function{}}
	if ordinal > 0 {
		d.name = fmt.Sprintf("cuda:%d", ordinal)
	}
	d.in, d.out, d.scratch = segment{pinned: true}, segment{pinned: true}, segment{}
	for _, s := range []*driver.Stream{&d.stream, &d.arrivals} {
		if *s, err = c.NewStream(); err != nil {
			return nil, errors.Join(fmt.Errorf("open GPU %d: %w: %w", ordinal, ErrUnavailable, err), c.Close())
		}
	}
	return d, nil
}

// Usable returns nil if there is such a GPU and Open could use it, but for what other processes do
// with it. Errors are those of Open. It takes no memory of the GPU.
func Usable(library string, ordinal int) error {
	if err := driver.Usable(library, ordinal); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Name returns "cuda", or "cuda:1" and so on for a GPU that is not the first.
func (d *Device) Name() string { return d.name }

// String describes the GPU, such as "cuda, NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GiB".
func (d *Device) String() string {
	major, minor := d.c.Capability()
	return fmt.Sprintf("%s, %s, compute capability %d.%d, %d multiprocessors, %d GiB", d.name, d.c.Name(), major, minor, d.c.Multiprocessors(), d.c.Memory()>>30)
}

// Close frees all memory. The device must not be used afterwards.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	if d.lost != nil {
		return nil // the driver refuses everything
	}
	err := errors.Join(
		d.c.Synchronize(d.arrivals), d.freeAll(), d.in.free(d.c), d.out.free(d.c), d.scratch.free(d.c), d.unload(),
		d.c.CloseStream(d.stream), d.c.CloseStream(d.arrivals), d.c.Close(),
	)
	if err != nil {
		return fmt.Errorf("close GPU %d: %w", d.ordinal, err)
	}
	return nil
}

// unload gives the kernels back. They would stay with the GPU's context for as long as another device of this process,
// or a library, has it too.
func (d *Device) unload() (err error) {
	for _, m := range d.modules {
		err = errors.Join(err, d.c.Unload(m))
	}
	return err
}

// do runs f, which stages and launches, waits until the GPU is done and fetches what f asked for.
func (d *Device) do(what string, f func(o *op)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("%s on GPU %d: the device is closed", what, d.ordinal)
	}
	if d.lost != nil {
		return fmt.Errorf("%s on GPU %d: %w: %w", what, d.ordinal, ErrLost, d.lost)
	}
	o := &op{d: d}
	defer o.reset()
	f(o)
	o.finish()
	return d.judge(what, o.err)
}

// judge remembers an error after which the GPU is of no use.
func (d *Device) judge(what string, err error) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*driver.Error](err); ok && refusal.Fatal() {
		d.lost = err
		return fmt.Errorf("%s on GPU %d: %w: %w", what, d.ordinal, ErrLost, err)
	}
	return fmt.Errorf("%s on GPU %d: %w", what, d.ordinal, err)
}

// function returns a kernel, and loads its module when it is the first of it.
func (d *Device) function(module, name string) (driver.Function, error) {
	if f, ok := d.functions[name]; ok {
		return f, nil
	}
	m, ok := d.modules[module]
	if !ok {
		image, err := kernel.Image(module)
		if err != nil {
			return 0, err
		}
		if m, err = d.c.Load(image); err != nil {
			return 0, fmt.Errorf("load the kernels of %s: %w", module, err)
		}
		d.modules[module] = m
	}
	f, err := d.c.Function(m, name)
	if err != nil {
		return 0, err
	}
	d.functions[name] = f
	return f, nil
}

// launch queues a kernel on a grid of blocks. args is its parameter, with the layout of the struct in its source.
func launch[T any](o *op, module, name string, blocks [3]int, threads int, args *T) {
	if o.err != nil {
		return
	}
	f, err := o.d.function(module, name)
	if err == nil {
		o.flush()
		if o.err != nil {
			return
		}
		err = o.d.c.Launch(f, blocks, threads, o.d.stream, unsafe.Pointer(args), unsafe.Sizeof(*args))
	}
	o.fail(err)
}

// resident returns how many blocks of a kernel run at once.
func (o *op) resident(module, name string, threads int) int {
	if o.err != nil {
		return 0
	}
	f, err := o.d.function(module, name)
	n := 0
	if err == nil {
		n, err = o.d.c.Resident(f, threads)
	}
	o.fail(err)
	return n
}

// line is a grid of blocks in a row.
func line(blocks int) [3]int { return [3]int{blocks, 1, 1} }

// ceil returns how many parts of the given size n values make.
func ceil(n, size int) int { return (n + size - 1) / size }

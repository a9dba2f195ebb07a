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
	// ErrUnavailable means that there is no GPU to open. The error that wraps it says what is
	// missing.
	ErrUnavailable = errors.New("no GPU can be used")

	// ErrBuild is wrapped, beside ErrUnavailable, if this program was built without support for
	// GPUs.
	ErrBuild = driver.ErrBuild

	// ErrLost means that the GPU has failed and has lost its memory. Restart the process; nothing
	// else helps.
	ErrLost = errors.New("the GPU is lost")
)

// Device is one GPU. It implements kernels.Device and is safe for concurrent use: calls run one
// after another.
type Device struct {
	c       driver.Context
	waits   *waits // of c
	name    string
	ordinal int

	mu        sync.Mutex
	stream    driver.Stream
	arrivals  driver.Stream // on which gradients arrive
	modules   map[string]driver.Module
	functions map[string]driver.Function
	in, out   segment // staged and fetched arrays, each with a twin in pinned memory
	scratch   segment
	lost      error
	closed    bool

	held     sync.Mutex
	holdings map[*holding]struct{} // the memory of arrays and landings
}

var _ kernels.Device = (*Device)(nil)

// Open opens GPU number ordinal, counted from 0. library is the path of the driver; "" means
// libcuda.so.1 where the system finds it. Close the device when it is no longer needed. Errors wrap
// ErrUnavailable and say what is missing: support in the build, the driver, the device, or a newer
// version of one of them.
func Open(library string, ordinal int) (*Device, error) {
	c, err := driver.Open(library, ordinal)
	if err != nil {
		return nil, fmt.Errorf("open GPU %d: %w: %w", ordinal, ErrUnavailable, err)
	}
	w := newWaits(c)
	d := &Device{c: w, waits: w, ordinal: ordinal, name: "cuda", modules: map[string]driver.Module{}, functions: map[string]driver.Function{}}
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

// Usable returns nil if there is such a GPU and Open could use it, unless other processes prevent
// that. Its errors are those of Open. It takes no memory of the GPU.
func Usable(library string, ordinal int) error {
	if err := driver.Usable(library, ordinal); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// List returns the numbers of the GPUs that Open could use, in order. If there are none, its error is
// that of Usable for the first.
func List(library string) ([]int, error) {
	usable, err := driver.List(library)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return usable, nil
}

// Name returns "cuda" for the first GPU, and "cuda:1" and so on for the others.
func (d *Device) Name() string { return d.name }

// String describes the GPU, such as "cuda, NVIDIA H200, compute capability 9.0, 132
// multiprocessors, 139 GiB".
func (d *Device) String() string {
	major, minor := d.c.Capability()
	return fmt.Sprintf("%s, %s, compute capability %d.%d, %d multiprocessors, %d GiB", d.name, d.c.Name(), major, minor, d.c.Multiprocessors(), d.c.Memory()>>30)
}

// Close waits for arriving gradients and frees all memory of the device. The device must not be
// used afterwards.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	defer close(d.waits.over) // last: to close a GPU that hangs hangs, too
	if d.lost != nil {
		return nil // the driver refuses every call
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

// unload unloads the kernels. Otherwise they would stay in the GPU's context for as long as another
// device of this process, or a library, uses that context.
func (d *Device) unload() (err error) {
	for _, m := range d.modules {
		err = errors.Join(err, d.c.Unload(m))
	}
	return err
}

// do runs f, which stages and launches. Then it waits until the GPU is done and fetches the results
// that f asked for.
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

// judge describes err. It records that the device is lost if the GPU cannot be used after err.
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

// function returns a kernel. It loads the kernel's module if no kernel of that module was used
// before.
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

// launch queues a kernel on a grid of blocks. args is the kernel's parameter; it has the layout of
// the struct in the kernel's source.
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

// resident returns how many blocks of a kernel the GPU runs at once.
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

// line returns a one-dimensional grid of blocks.
func line(blocks int) [3]int { return [3]int{blocks, 1, 1} }

// ceil returns ⌈n/size⌉.
func ceil(n, size int) int { return (n + size - 1) / size }

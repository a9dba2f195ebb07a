package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/kintsugi-ml/kintsugi"
	"github.com/kintsugi-ml/kintsugi/bench"
	"github.com/kintsugi-ml/kintsugi/internal/mtls"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// Question: what fraction of the machine's rates is left when gradients are sent? Workers push
// gradients to servers, which store them as operands of the kernel, after checking the checksum and
// that values are finite. gRPC is compared with plain TCP between the same goroutines, with the
// same frames and the same checksums at both ends; shared memory is compared with a copy; and TLS
// with the same without TLS. The claims that could be false are the goals of docs/performance.md.

// WireConfig configures Wire.
type WireConfig struct {
	Workers, Servers int
	Sizes            []int // bytes of one worker's gradient
	Frame            int   // bytes of a frame's payload
	Rounds           int
	TLS              bool // measure mutual TLS too
	Window           int  // in bytes, as in kintsugi train; 0: gRPC's own
	Progress         io.Writer
}

// Check returns a usage error if the configuration is empty or too large.
func (c *WireConfig) Check() error {
	bad := len(c.Sizes) == 0 || c.Rounds < 1 || c.Workers < 1 || c.Workers > 256 || c.Servers < 1 || c.Servers > 256
	bad = bad || c.Frame < 4<<10 || c.Frame > 1<<20 || c.Frame%wireAlign != 0
	for _, size := range c.Sizes {
		bad = bad || size < 1<<20 || size > 1<<36
	}
	if bad {
		return fmt.Errorf("%w: bench wire takes gradients from 1 MiB to 64 GiB, frames from 4 KiB to 1 MiB, 1 to 256 workers and servers, and a round at least", kintsugi.ErrUsage)
	}
	return nil
}

// WireRow is one way to send gradients.
type WireRow struct {
	bench.Row // Bytes is for all gradients, K the number of workers, Threads that of simultaneous connections
	Cost
	Frame  int `json:"frame_bytes"`
	Window int `json:"window_bytes"` // 0: gRPC's own
}

// wireAlign is the alignment of parts and frames, in bytes.
const wireAlign = 64

// Wire measures all ways, interleaved.
func Wire(ctx context.Context, cfg WireConfig) ([]WireRow, error) {
	var rows []WireRow
	for _, size := range cfg.Sizes {
		fmt.Fprintf(cfg.Progress, "wire, %d workers with %d bytes each to %d servers\n", cfg.Workers, size, cfg.Servers)
		got, err := wireOf(ctx, &cfg, size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
		runtime.GC() // free the memory of one size before that of the next is allocated
	}
	return rows, nil
}

// wire is the state shared by the ways of one size.
type wire struct {
	ctx       context.Context
	cfg       *WireConfig
	part      int      // bytes of a gradient for one server
	gradients [][]byte // by worker
	landed    [][]byte // by worker: where servers store them
	links     []*link  // of the ways so far
	timed     []*bench.Timed
	costs     []*costs

	mu  sync.Mutex
	err error // the first error; the rows are then worthless
}

// link is a way to send the parts of gradients.
type link struct {
	push  func(worker, server int) error // returns when the server has confirmed the part
	close func()
}

func wireOf(ctx context.Context, cfg *WireConfig, size int) ([]WireRow, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWire(ctx, cfg, size)
	defer w.close()
	if err := w.ways(); err != nil {
		return nil, err
	}
	got, err := bench.Interleave(ctx, cfg.Rounds, 0, w.timed)
	if err == nil {
		err = w.err
	}
	if err != nil {
		return nil, err
	}
	rows := make([]WireRow, len(got))
	for i, r := range got {
		rows[i] = WireRow{Row: r, Cost: w.costs[i].cost(r.Bytes, w.frames()), Frame: cfg.Frame, Window: cfg.Window}
	}
	return rows, nil
}

func newWire(ctx context.Context, cfg *WireConfig, size int) *wire {
	w := &wire{ctx: ctx, cfg: cfg, part: size / cfg.Servers / wireAlign * wireAlign}
	for i := range cfg.Workers {
		x := values(w.part*cfg.Servers/4, uint64(i))
		w.gradients = append(w.gradients, kernels.Bytes(x))
		w.landed = append(w.landed, kernels.Bytes(make([]float32, len(x))))
	}
	return w
}

// frames returns the number of frames for all gradients.
func (w *wire) frames() int {
	return w.cfg.Workers * w.cfg.Servers * ((w.part + w.cfg.Frame - 1) / w.cfg.Frame)
}

// of returns the part of a worker's array for a server.
func (w *wire) of(all [][]byte, worker, server int) []byte {
	return all[worker][server*w.part:][:w.part:w.part]
}

// each calls f for the frames of a part of n bytes.
func (w *wire) each(n int, f func(lo, hi int) error) error {
	for lo := 0; lo < n; lo += w.cfg.Frame {
		if err := f(lo, min(lo+w.cfg.Frame, n)); err != nil {
			return err
		}
	}
	return nil
}

// ways opens all ways, the bounds first.
func (w *wire) ways() error {
	copied := w.add("copy", "memory", "alone", w.copies(false), nil)
	copiedChecked := w.add("copy", "memory", "summed at both ends", w.copies(true), nil)
	summed := w.add("sum", "memory", "at both ends", w.sums(), nil)
	tcp, err := w.sockets("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	rawTCP := w.add("push", "tcp", "bare", tcp, nil)
	unix, err := w.sockets("unix", "")
	if err != nil {
		return err
	}
	w.add("push", "unix", "bare", unix, nil)
	for _, v := range []struct {
		device, variant string
		how             streamed
		bound           *bench.Timed
	}{
		{"grpc", "landed", streamed{checked: true, unscanned: true}, rawTCP},
		{"grpc", "landed and scanned", streamed{checked: true}, rawTCP},
		{"grpc", "read in place", streamed{checked: true, inPlace: true}, rawTCP},
		{"shm", "copied there", streamed{checked: true, shared: true, copied: true}, copiedChecked},
		{"shm", "written there", streamed{checked: true, shared: true}, summed},
		{"shm", "copied there, without checksums", streamed{shared: true, copied: true}, copied},
		{"shm", "written there, without checksums", streamed{shared: true}, copied},
	} {
		l, err := w.streams(v.how)
		if err != nil {
			return err
		}
		if l == nil {
			fmt.Fprintf(w.cfg.Progress, "%s, %s: this system shares no memory\n", v.device, v.variant)
			continue
		}
		timed := w.add("push", v.device, v.variant, l, v.bound)
		if w.cfg.TLS && v.device == "grpc" { // its cost is measured relative to the same without TLS
			if v.how.tls, err = w.credentials(); err != nil {
				return err
			}
			if l, err = w.streams(v.how); err != nil {
				return err
			}
			w.add("push", "grpc+tls", v.variant, l, timed)
		}
	}
	return nil
}

// credentials returns the credentials of a server and a worker on this host.
func (w *wire) credentials() (*wireCredentials, error) {
	dir, err := os.MkdirTemp("", "kintsugi-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // Open has read the files
	names := []mtls.Name{{Domain: "bench", Role: mtls.Server, Index: mtls.Any}, {Domain: "bench", Role: mtls.Worker, Index: mtls.Any}}
	if _, err := mtls.Make(dir, mtls.Order{Names: names, Now: time.Now(), Life: 24 * time.Hour}); err != nil {
		return nil, err
	}
	c := &wireCredentials{}
	if c.server, err = mtls.Open(dir, mtls.Server, mtls.Any, nil); err != nil {
		return nil, err
	}
	c.worker, err = mtls.Open(dir, mtls.Worker, mtls.Any, nil)
	return c, err
}

// add adds the operation that pushes all gradients over a link, all parts at once.
func (w *wire) add(name, device, variant string, l *link, bound *bench.Timed) *bench.Timed {
	w.links = append(w.links, l)
	bytes := int64(w.cfg.Workers * w.cfg.Servers * w.part)
	c := &costs{}
	t := &bench.Timed{
		Row: bench.Row{
			Name: name, Device: device, Variant: variant, K: w.cfg.Workers, DType: "fp32", Threads: w.cfg.Workers * w.cfg.Servers,
			Elements: w.part * w.cfg.Servers / 4, Bytes: bytes,
		},
		Before: func() { w.fail(w.pushAll(l)) }, // in a run, one push follows another, so buffers exist and are in the caches
		Run: func(times int) {
			c.run(times, func() {
				for range times {
					w.fail(w.pushAll(l))
				}
			})
		},
	}
	if bound != nil {
		t.Bound = bench.Fastest(bytes, bound)
	}
	w.timed, w.costs = append(w.timed, t), append(w.costs, c)
	return t
}

func (w *wire) pushAll(l *link) error {
	var all sync.WaitGroup
	for worker := range w.cfg.Workers {
		for server := range w.cfg.Servers {
			all.Go(func() { w.fail(l.push(worker, server)) })
		}
	}
	all.Wait()
	return w.ctx.Err()
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *wire) close() {
	for _, l := range w.links {
		if l.close != nil {
			l.close()
		}
	}
}

// copies returns a link that copies gradients to where servers store them.
func (w *wire) copies(summed bool) *link {
	return &link{push: func(worker, server int) error {
		src, dst := w.of(w.gradients, worker, server), w.of(w.landed, worker, server)
		return w.each(len(src), func(lo, hi int) error {
			if !summed {
				copy(dst[lo:hi], src[lo:hi])
				return nil
			}
			return equalSums(kernels.CopyCRC32C(0, dst[lo:hi], src[lo:hi]), kernels.CRC32C(0, dst[lo:hi]))
		})
	}}
}

// sums returns a link that moves nothing: it reads the data twice, as sender and receiver with
// shared memory do.
func (w *wire) sums() *link {
	return &link{push: func(worker, server int) error {
		b := w.of(w.landed, worker, server)
		return w.each(len(b), func(lo, hi int) error {
			return equalSums(kernels.CRC32C(0, b[lo:hi]), kernels.CRC32C(0, b[lo:hi]))
		})
	}}
}

func equalSums(sent, received uint32) error {
	if sent != received {
		return fmt.Errorf("%w: CRC32C %08x, want %08x", kintsugi.ErrCorrupt, received, sent)
	}
	return nil
}

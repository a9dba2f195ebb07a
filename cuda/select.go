package cuda

import (
	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// threshold is Threshold of kernel/select.cu.
type threshold struct {
	least, known uint32
	k            uint64
}

// selectArgs is SelectArgs of kernel/select.cu.
type selectArgs struct {
	x, carry, y, residual driver.Ptr
	n                     uint64
	threshold, histogram  driver.Ptr
	above, ties           driver.Ptr
	index, value          driver.Ptr
	tiles                 uint64
}

const (
	selectThreads = 256
	selectTile    = 16 * selectThreads
	selectBins    = 2048
)

// Select implements kernels.Encoder.
func (d *Device) Select(index []int32, value, x, carry, residual []float32) error {
	kernels.CheckSelect(index, value, x, carry, residual)
	return d.do("select", func(o *op) {
		args := selectArgs{x: o.floats(x), carry: o.floats(carry), n: uint64(len(x)), residual: o.resultFloats(residual)}
		switch {
		case residual != nil:
			args.y = args.residual
		case carry != nil:
			args.y = o.room(4 * len(x))
		}
		args.index, args.value = resultOf(o, index), o.resultFloats(value)
		args.threshold = table(o, []threshold{{least: 0, known: 31, k: uint64(len(index))}})
		o.selectLargest(&args)
	})
}

// selectLargest queues a selection, with memory for what it counts.
func (o *op) selectLargest(args *selectArgs) {
	tiles := ceil(int(args.n), selectTile)
	args.tiles = uint64(tiles)
	args.histogram = o.zeros(4 * selectBins)
	args.above, args.ties = o.room(4*tiles), o.room(4*tiles)
	o.selectPasses(args)
}

// selectPasses queues the kernels: one pass makes y, two count the second and third digit of the threshold, two write.
// The histogram is zero before and after.
func (o *op) selectPasses(args *selectArgs) {
	tiles := int(args.tiles)
	persistent := min(tiles, 6*o.d.c.Multiprocessors())
	run := func(kernel string, blocks int) {
		launch(o, "select", kernel, line(blocks), selectThreads, args)
	}
	run("select_feed", persistent)
	run("select_digit", 1)
	for range 2 {
		run("select_count", persistent)
		run("select_digit", 1)
	}
	run("select_tiles", tiles)
	run("select_scan", 1)
	run("select_write", tiles)
}

package cuda

import (
	"math"

	"github.com/kintsugi-ml/kintsugi/cuda/internal/driver"
	"github.com/kintsugi-ml/kintsugi/kernels"
)

// selectArgs mirrors SelectArgs of kernel/select.cu.
type selectArgs struct {
	x, carry, y, residual driver.Ptr
	n, k, likely          uint64
	threshold, histogram  driver.Ptr
	listed, list, place   driver.Ptr
	found, above, ties    driver.Ptr
	index, value          driver.Ptr
	tiles, counted        uint64
}

const (
	selectThreads = 256
	selectTile    = 16 * selectThreads
	selectRoom    = selectTile / 4 // entries in the list of a tile
	selectBins    = 2048
	selectWarps   = selectThreads / 32

	thresholdBytes = 16 // size of a Threshold of kernel/select.cu
)

// The passes that count, as in Counted of kernel/select.cu.
const (
	countSampled = iota
	countSieved
	countAgain
	countSecond
	countThird
	counts
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
		args.k = uint64(len(index))
		o.selectLargest(&args)
	})
}

// selectLargest queues a selection, including memory for its counts and lists.
func (o *op) selectLargest(args *selectArgs) {
	o.selectMemory(args)
	o.selectPasses(args)
}

// selectMemory allocates memory for the counts and lists of a selection. The lists take 6 bytes for
// each of a quarter of the values.
func (o *op) selectMemory(args *selectArgs) {
	tiles := ceil(int(args.n), selectTile)
	args.tiles = uint64(tiles)
	args.threshold, args.histogram = o.room(counts*thresholdBytes), o.room(counts*4*selectBins)
	args.listed, args.list, args.place = o.room(4*tiles), o.room(4*selectRoom*tiles), o.room(2*selectRoom*tiles)
	args.found = o.room(4 * tiles)
	args.above, args.ties = o.room(4*ceil(tiles, selectWarps)), o.room(4*ceil(tiles, selectWarps))
}

// likely returns the rank, in a sample of every 128th value, of a threshold that should keep the k
// largest values. It is the expected rank plus eight standard deviations for random values, plus 8
// for small k. A threshold that is too high costs two more passes; one that is too low makes the
// lists longer.
func likely(k int) uint64 {
	expected := float64(k) / 128
	return uint64(expected+8*math.Sqrt(expected)) + 8
}

// selectPasses queues the kernels of a selection: a sample; the pass that computes y and lists
// values that may be among the largest; two passes that do nothing unless the sample was
// misleading; two that count the second and the third digit of the threshold in the lists; and two
// that write the result from the lists, with a scan between them.
func (o *op) selectPasses(args *selectArgs) {
	blocks := ceil(int(args.tiles), selectWarps)
	run := func(kernel string, args *selectArgs, counted uint64, blocks int) {
		args.counted = counted
		launch(o, "select", kernel, line(blocks), selectThreads, args)
	}
	together := func(kernel string, args *selectArgs, counted uint64) { // no more blocks than run at once: a later one would do its whole share alone
		run(kernel, args, counted, min(blocks, o.resident("select", kernel, selectThreads)))
	}
	args.likely = likely(int(args.k))
	if o.err == nil {
		o.fail(o.d.c.Fill(args.histogram, 0, counts*4*selectBins, o.d.stream))
	}
	together("select_sample", args, countSampled)
	together("select_sieve", args, countSieved)
	together("select_recount", args, countAgain)
	again := *args // y has been computed and is what is read
	if args.y != 0 {
		again.x, again.carry, again.y = args.y, 0, 0
	}
	together("select_sieve", &again, countAgain)
	together("select_count", args, countSecond)
	together("select_count", args, countThird)
	together("select_tiles", args, 0)
	run("select_scan", args, 0, 1)
	run("select_write", args, 0, blocks)
}

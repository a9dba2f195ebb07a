package engine

import (
	"encoding/binary"

	"github.com/kintsugi-ml/kintsugi/cuda"
	"github.com/kintsugi-ml/kintsugi/worker/model"
)

// eachArgs mirrors EachArgs of cuda/kernel/layer.cu.
type eachArgs struct {
	z, x, y cuda.Ptr
	n       uint64
}

// each queues an operation on n values. z may be x or y.
func (p *pass) each(kernel string, z, x, y cuda.Ptr, n int) {
	cuda.Launch(p.q, "layer", kernel, line(n), threads, &eachArgs{z, x, y, uint64(n)})
}

// convArgs mirrors ConvArgs of cuda/kernel/layer.cu.
type convArgs struct {
	from, to                                                          cuda.Ptr
	images, channels, height, width, kernel, pad, outHeight, outWidth uint64
}

// conv is a Conv2D and the ReLU after it, if there is one. The windows of an image form a matrix;
// the result is the product of that matrix and the weights.
type conv struct {
	w, b         tensor
	shape        convArgs
	filters      int
	window       int // values of one window
	places       int // values of one plane of the result
	relu, needed bool

	y, windows                                     cuda.Ptr
	yRoom, windowRoom, planeRoom, gradRoom, dxRoom room
}

func newConv(w, b tensor, in model.Shape, l model.Conv2D, relu, needed bool) *conv {
	height, width := in.Height+2*l.Pad-l.Kernel+1, in.Width+2*l.Pad-l.Kernel+1
	return &conv{
		w: w, b: b, filters: l.Filters, window: in.Channels * l.Kernel * l.Kernel, places: height * width, relu: relu, needed: needed,
		shape: convArgs{
			channels: uint64(in.Channels), height: uint64(in.Height), width: uint64(in.Width), kernel: uint64(l.Kernel), pad: uint64(l.Pad),
			outHeight: uint64(height), outWidth: uint64(width),
		},
	}
}

func (l *conv) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	l.y, l.windows = p.grow(&l.yRoom, 4*p.n*l.filters*l.places), p.grow(&l.windowRoom, 4*p.n*l.window*l.places)
	a := l.shape
	a.from, a.to, a.images = x, l.windows, uint64(p.n)
	cuda.Launch(p.q, "layer", "windows", line(p.n*int(a.channels)*l.places), threads, &a)
	g := product{
		a: l.w.of(p.params), b: l.windows, bias: l.b.of(p.params), c: l.y, flags: biasOfRows,
		m: uint64(l.filters), n: uint64(l.places), k: uint64(l.window), lda: uint64(l.window), ldb: uint64(l.places), ldc: uint64(l.places),
		bOuter: uint64(l.window * l.places), cOuter: uint64(l.filters * l.places),
	}
	if l.relu {
		g.flags |= withReLU
	}
	p.multiply(g, p.n)
	return l.y
}

func (l *conv) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	filters, places, window := uint64(l.filters), uint64(l.places), uint64(l.window)
	if l.relu {
		p.each("relu_gradient", dy, l.y, dy, p.n*l.filters*l.places)
	}
	p.beside(func() {
		planes := p.grow(&l.planeRoom, 4*p.n*l.filters)
		p.rowSums(planes, dy, p.n*l.filters, l.places)
		p.columnSums(l.b.of(p.grads), planes, 0, 0, p.n, l.filters)
		p.multiplySum(product{ // summed over images
			a: dy, b: l.windows, c: l.w.of(p.grads), flags: bTransposed | p.keep(),
			m: filters, n: window, k: places, lda: places, ldb: places, ldc: window,
			aOuter: filters * places, bOuter: window * places,
		}, p.n)
	})
	if !l.needed {
		return 0
	}
	d := p.grow(&l.gradRoom, 4*p.n*l.window*l.places)
	p.multiply(product{
		a: l.w.of(p.params), b: dy, c: d, flags: aTransposed,
		m: window, n: places, k: filters, lda: window, ldb: places, ldc: places,
		bOuter: filters * places, cOuter: window * places,
	}, p.n)
	a := l.shape
	values := p.n * int(a.channels*a.height*a.width)
	a.from, a.to, a.images = d, p.grow(&l.dxRoom, 4*values), uint64(p.n)
	cuda.Launch(p.q, "layer", "windows_gradient", line(values), threads, &a)
	return a.to
}

// poolArgs mirrors PoolArgs of cuda/kernel/layer.cu.
type poolArgs struct {
	from, to, at                cuda.Ptr
	planes, height, width, size uint64
}

// pooling is a MaxPool.
type pooling struct {
	in     model.Shape
	size   int
	needed bool

	at                    cuda.Ptr
	yRoom, atRoom, dxRoom room
}

func (l *pooling) args(p *pass) poolArgs {
	return poolArgs{at: l.at, planes: uint64(p.n * l.in.Channels), height: uint64(l.in.Height), width: uint64(l.in.Width), size: uint64(l.size)}
}

func (l *pooling) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	n := p.n * l.in.Channels * (l.in.Height / l.size) * (l.in.Width / l.size)
	l.at = p.grow(&l.atRoom, n)
	a := l.args(p)
	a.from, a.to = x, p.grow(&l.yRoom, 4*n)
	cuda.Launch(p.q, "layer", "pool", line(n), threads, &a)
	return a.to
}

func (l *pooling) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	if !l.needed {
		return 0
	}
	n := p.n * l.in.Values()
	a := l.args(p)
	a.from, a.to = dy, p.grow(&l.dxRoom, 4*n)
	cuda.Launch(p.q, "layer", "pool_gradient", line(p.n*l.in.Channels*ceil(l.in.Height, l.size)*ceil(l.in.Width, l.size)), threads, &a)
	return a.to
}

// relu is a ReLU that follows neither a Dense nor a Conv2D.
type relu struct {
	values int
	needed bool

	y    cuda.Ptr
	room room
}

func (l *relu) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	l.y = p.grow(&l.room, 4*p.n*l.values)
	p.each("relu", l.y, x, 0, p.n*l.values)
	return l.y
}

func (l *relu) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	if !l.needed {
		return 0
	}
	p.each("relu_gradient", dy, l.y, dy, p.n*l.values)
	return dy
}

// dropoutArgs mirrors DropoutArgs of cuda/kernel/layer.cu.
type dropoutArgs struct {
	z, x, key    cuda.Ptr
	n, threshold uint64
	keep         float32
	_            uint32
}

// dropout multiplies by the factors of model.DropoutMask, forward and again backward.
type dropout struct {
	layer  int // index in the description
	rate   float32
	values int
	needed bool

	pinned         pinned // the key and the number of the first value, which differ from piece to piece
	key            cuda.Ptr
	yRoom, keyRoom room
}

func (l *dropout) prepare(p *pass) {
	if !p.train {
		return
	}
	key, _, _ := model.DropoutKey(p.seed, l.layer, l.rate)
	b := p.pin(&l.pinned, 16)
	binary.LittleEndian.PutUint64(b, key)
	binary.LittleEndian.PutUint64(b[8:], uint64(p.first)*uint64(l.values))
	l.key = p.grow(&l.keyRoom, 16)
	p.q.In(l.key, b) // beside the examples: queued among the layers, it would make the layers behind this one wait
}

func (l *dropout) multiply(p *pass, z, x cuda.Ptr) {
	_, threshold, keep := model.DropoutKey(0, l.layer, l.rate)
	n := p.n * l.values
	cuda.Launch(p.q, "layer", "dropout", line(n), threads, &dropoutArgs{z: z, x: x, key: l.key, n: uint64(n), threshold: threshold, keep: keep})
}

func (l *dropout) forward(p *pass, x cuda.Ptr) cuda.Ptr {
	if !p.train {
		return x
	}
	y := p.grow(&l.yRoom, 4*p.n*l.values)
	l.multiply(p, y, x)
	return y
}

func (l *dropout) backward(p *pass, dy cuda.Ptr) cuda.Ptr {
	if !l.needed {
		return 0
	}
	l.multiply(p, dy, dy)
	return dy
}

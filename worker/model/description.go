package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Input says what a model is trained on: images, each of one of Classes classes; or, if Sequence is set,
// sequences of Width tokens below Classes, each position of which is labelled with the token that follows.
// A sequence has one channel and height 1. Models without layers are trained on ratings of Items by Users, or on
// documents of Tokens out of Words; all else is 0 then.
type Input struct {
	Channels, Height, Width int
	Classes                 int
	Sequence                bool

	Users, Items  int
	Words, Tokens int
}

// Features returns the number of values of one example.
func (in Input) Features() int { return in.Channels * in.Height * in.Width }

// Labels returns the number of labels of one example: one, or one for each position of a sequence.
func (in Input) Labels() int {
	if in.Sequence {
		return in.Width
	}
	return 1
}

// kind names the examples.
func (in Input) kind() string {
	switch {
	case in.Sequence:
		return "sequences"
	case in.Users > 0:
		return "ratings"
	case in.Words > 0:
		return "documents"
	}
	return "images"
}

// Shape is what flows between layers, for one example: channels × height × width, row-major. A vector
// has height and width 1.
type Shape struct{ Channels, Height, Width int }

// Values returns the number of values.
func (s Shape) Values() int { return s.Channels * s.Height * s.Width }

// String returns the shape as C×H×W.
func (s Shape) String() string { return fmt.Sprintf("%d×%d×%d", s.Channels, s.Height, s.Width) }

// Layer is one of Dense, Conv2D, MaxPool, ReLU, Dropout and Flatten, or one of those for sequences: Embedding,
// Linear, LayerNorm, Attention, GELU, Fork and Join. An engine switches over these.
type Layer interface{ layer() }

// Dense computes y = x·w + b of all values of its input. Its tensors are w [inputs, Out] and b [Out].
type Dense struct {
	Name string
	Out  int
}

// Conv2D correlates its input with Filters square kernels at stride 1, around Pad zeros on each side.
// Its tensors are w [Filters, channels, Kernel, Kernel] and b [Filters].
type Conv2D struct {
	Name        string
	Filters     int
	Kernel, Pad int
}

// MaxPool takes the largest of each Size×Size window; windows do not overlap, and rows and columns that
// do not fill one are left out. Of equal values the first, in row-major order, gets the gradient.
type MaxPool struct{ Size int }

// ReLU replaces negative values by 0. Its derivative at 0 is 0.
type ReLU struct{}

// Dropout multiplies by the mask that DropoutMask draws while a gradient is computed, and does nothing
// in an evaluation.
type Dropout struct{ Rate float32 }

// Flatten makes a vector of an image. It moves nothing: channels, rows and columns keep their order.
type Flatten struct{}

func (Dense) layer()   {}
func (Conv2D) layer()  {}
func (MaxPool) layer() {}
func (ReLU) layer()    {}
func (Dropout) layer() {}
func (Flatten) layer() {}

// Defaults are settings that train a model to the accuracy one expects of it, for the mean of about
// four workers' gradients. They are where a run starts, not a claim to be optimal.
type Defaults struct {
	Batch        int // examples per gradient
	Steps        int
	LearningRate float32
	Momentum     float32
	Optimizer    string // by its name; "" means momentum, or sgd where Momentum is 0
	Codec        string // how gradients travel; "" means fp32

	Warmup      int    // steps in which the learning rate rises
	Decay       string // how it goes down; "" means cosine
	WeightDecay float32
	Decayed     string  // what the weight decay is for; "" means all
	ClipNorm    float32 // longest norm that a gradient counts with; 0: any
}

// Description says what a model is, apart from what executes it. It is immutable and safe for
// concurrent use.
type Description struct {
	Name     string
	Input    Input
	Layers   []Layer
	Shapes   []Shape // Shapes[i] enters layer i; the last one leaves the last layer
	Defaults Defaults

	// Quadratic is set for "qp", which has no layers and no data.
	Quadratic *Quadratic

	// Factors is set for "mf", Topics for "lda", which have no layers either.
	Factors *Factors
	Topics  *Topics

	tensors []kintsugi.Tensor
	first   []int      // by layer: its first tensor, and the end
	initial []interval // by tensor
	values  int
}

// interval is what a tensor's initial values are drawn from, uniformly: centre ± limit.
type interval struct{ limit, centre float64 }

// Describe checks that the layers fit the input and one another and end in one value per class, for
// a sequence in a row of them for each position: the logits, whose softmax cross-entropy is the
// loss. An image that is too small, or a layer without sense, is a kintsugi.ErrUsage.
func Describe(name string, in Input, defaults Defaults, layers ...Layer) (*Description, error) {
	if in.Channels <= 0 || in.Height <= 0 || in.Width <= 0 {
		return nil, fmt.Errorf("%w: model %s: an input of %d×%d×%d; channels, height and width must be positive",
			kintsugi.ErrUsage, name, in.Channels, in.Height, in.Width)
	}
	if in.Classes < 2 {
		return nil, fmt.Errorf("%w: model %s: %d classes; a classifier needs at least two", kintsugi.ErrUsage, name, in.Classes)
	}
	if in.Sequence && (in.Channels != 1 || in.Height != 1) {
		return nil, fmt.Errorf("%w: model %s: a sequence of %d×%d×%d; it has one channel and height 1",
			kintsugi.ErrUsage, name, in.Channels, in.Height, in.Width)
	}
	d := &Description{Name: name, Input: in, Layers: layers, Defaults: defaults}
	shape := Shape{in.Channels, in.Height, in.Width}
	d.Shapes = append(d.Shapes, shape)
	for i, l := range layers {
		d.first = append(d.first, len(d.tensors))
		out, err := d.add(l, shape)
		if err != nil {
			return nil, fmt.Errorf("%w: model %s on %s of %v: layer %d: %w", kintsugi.ErrUsage, name, in.kind(), d.Shapes[0], i+1, err)
		}
		shape = out
		d.Shapes = append(d.Shapes, shape)
	}
	d.first = append(d.first, len(d.tensors))
	if want := (Shape{1, in.Width, in.Classes}); in.Sequence && shape != want {
		return nil, fmt.Errorf("%w: model %s ends in %v values; a sequence of %d tokens of %d kinds needs %v", kintsugi.ErrUsage, name, shape, in.Width, in.Classes, want)
	}
	if !in.Sequence && shape.Values() != in.Classes {
		return nil, fmt.Errorf("%w: model %s ends in %v values; %d classes need %d", kintsugi.ErrUsage, name, shape, in.Classes, in.Classes)
	}
	if err := d.checkBlocks(); err != nil {
		return nil, err
	}
	if _, err := kintsugi.NewLayout(d.tensors); err != nil {
		return nil, fmt.Errorf("%w: model %s: %w", kintsugi.ErrUsage, name, err)
	}
	d.chooseInitial()
	return d, nil
}

// add appends a layer's tensors and returns its output's shape.
func (d *Description) add(l Layer, in Shape) (Shape, error) {
	if _, first := l.(Embedding); d.Input.Sequence && len(d.Shapes) == 1 && !first {
		return Shape{}, fmt.Errorf("%T computes with the numbers of tokens; the first layer for sequences is an embedding", l)
	}
	switch l := l.(type) {
	case Dense:
		if l.Out <= 0 {
			return Shape{}, fmt.Errorf("dense %s has %d outputs", l.Name, l.Out)
		}
		d.addTensors(l.Name, l.Out, in.Values(), l.Out)
		return Shape{l.Out, 1, 1}, nil
	case Conv2D:
		if l.Filters <= 0 || l.Kernel <= 0 || l.Pad < 0 {
			return Shape{}, fmt.Errorf("convolution %s has %d filters of %d×%d with padding %d", l.Name, l.Filters, l.Kernel, l.Kernel, l.Pad)
		}
		out := Shape{l.Filters, in.Height + 2*l.Pad - l.Kernel + 1, in.Width + 2*l.Pad - l.Kernel + 1}
		if out.Height <= 0 || out.Width <= 0 {
			return Shape{}, fmt.Errorf("convolution %s of %d×%d with padding %d does not fit its input of %v; the image is too small for this model",
				l.Name, l.Kernel, l.Kernel, l.Pad, in)
		}
		d.addTensors(l.Name, l.Filters, l.Filters, in.Channels, l.Kernel, l.Kernel)
		return out, nil
	case MaxPool:
		if l.Size <= 0 || l.Size > 15 { // engines keep the place of the largest value in a byte
			return Shape{}, fmt.Errorf("pooling over windows of %d×%d; 1 to 15 is possible", l.Size, l.Size)
		}
		out := Shape{in.Channels, in.Height / l.Size, in.Width / l.Size}
		if out.Height == 0 || out.Width == 0 {
			return Shape{}, fmt.Errorf("pooling over windows of %d×%d does not fit its input of %v; the image is too small for this model", l.Size, l.Size, in)
		}
		return out, nil
	case ReLU:
		return in, nil
	case Dropout:
		if !(l.Rate >= 0 && l.Rate < 1) {
			return Shape{}, fmt.Errorf("dropout of rate %g; it must be in [0, 1)", l.Rate)
		}
		return in, nil
	case Flatten:
		return Shape{in.Values(), 1, 1}, nil
	case Embedding, Linear, LayerNorm, Attention, GELU, Fork, Join:
		return d.addSequence(l, in)
	default:
		return Shape{}, fmt.Errorf("no such layer: %T", l)
	}
}

// addTensors adds a weight of the given shape and its bias.
func (d *Description) addTensors(name string, bias int, shape ...int) {
	d.addTensor(name+"/w", shape...)
	d.addTensor(name+"/b", bias)
}

func (d *Description) addTensor(name string, shape ...int) {
	t := kintsugi.Tensor{Name: name, Shape: shape}
	d.tensors = append(d.tensors, t)
	d.values += t.Values()
}

// Tensors lists the parameters in the order of the flat vector: for each layer that has any two tensors,
// its weight and its bias or its two tables. The caller must not change it.
func (d *Description) Tensors() []kintsugi.Tensor { return d.tensors }

// Values returns the number of parameters.
func (d *Description) Values() int { return d.values }

package model

import (
	"fmt"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// Input describes the training data of a model: images, each of one of Classes classes. If Sequence
// is set, it is sequences of Width tokens below Classes instead, and the label of each position is
// the token that follows. A sequence has one channel and height 1. Models without layers are
// trained on ratings of Items by Users, or on documents of Tokens tokens out of Words words; all
// other fields are then 0.
type Input struct {
	Channels, Height, Width int
	Classes                 int
	Sequence                bool

	Users, Items  int
	Words, Tokens int
}

// Features returns the number of values of one example.
func (in Input) Features() int { return in.Channels * in.Height * in.Width }

// Labels returns the number of labels of one example: one, or for a sequence one for each position.
func (in Input) Labels() int {
	if in.Sequence {
		return in.Width
	}
	return 1
}

// kind returns what an example is called.
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

// Shape is the shape of the values between two layers, for one example: channels × height × width,
// row-major. A vector has height and width 1.
type Shape struct{ Channels, Height, Width int }

// Values returns the number of values.
func (s Shape) Values() int { return s.Channels * s.Height * s.Width }

// String returns the shape as C×H×W.
func (s Shape) String() string { return fmt.Sprintf("%d×%d×%d", s.Channels, s.Height, s.Width) }

// Layer is one of Dense, Conv2D, MaxPool, ReLU, Dropout and Flatten, or one of the layers for
// sequences: Embedding, Linear, LayerNorm, Attention, GELU, Fork and Join. Engines switch over the
// type.
type Layer interface{ layer() }

// Dense computes y = x·w + b from all values of its input. Its tensors are w [inputs, Out] and b
// [Out].
type Dense struct {
	Name string
	Out  int
}

// Conv2D correlates its input with Filters square kernels at stride 1, with Pad zeros on each side.
// Its tensors are w [Filters, channels, Kernel, Kernel] and b [Filters].
type Conv2D struct {
	Name        string
	Filters     int
	Kernel, Pad int
}

// MaxPool returns the largest value of each Size×Size window. Windows do not overlap; rows and
// columns that do not fill a window are left out. Among equal values, the first in row-major order
// gets the gradient.
type MaxPool struct{ Size int }

// ReLU replaces negative values by 0. Its derivative at 0 is 0.
type ReLU struct{}

// Dropout multiplies its input by the mask of DropoutMask while a gradient is computed. In an
// evaluation it does nothing.
type Dropout struct{ Rate float32 }

// Flatten turns an image into a vector. No value moves: channels, rows and columns keep their
// order.
type Flatten struct{}

func (Dense) layer()   {}
func (Conv2D) layer()  {}
func (MaxPool) layer() {}
func (ReLU) layer()    {}
func (Dropout) layer() {}
func (Flatten) layer() {}

// Defaults are settings with which a model reaches the accuracy that is expected of it, with the
// mean of about four workers' gradients. They are a starting point and not optimal.
type Defaults struct {
	Batch        int // examples per gradient
	Steps        int
	LearningRate float32
	Momentum     float32
	Optimizer    string // name of the optimizer; "" means momentum, or sgd if Momentum is 0
	Codec        string // encoding of gradients; "" means fp32

	Warmup      int    // number of steps in which the learning rate rises
	Decay       string // how the learning rate falls; "" means cosine
	Betas       string // β₁ and β₂ of Adam, such as 0.9,0.95; "" means the usual ones
	Epsilon     float32
	WeightDecay float32
	Decayed     string  // which tensors the weight decay applies to; "" means all
	ClipNorm    float32 // limit on the norm of a worker's gradient, longer ones are scaled down; 0: no limit
}

// Description says what a model is, independently of the engine that executes it. It is immutable
// and safe for concurrent use.
type Description struct {
	Name     string
	Input    Input
	Layers   []Layer
	Shapes   []Shape // Shapes[i] is the input of layer i; the last element is the output of the last layer
	Defaults Defaults

	// Quadratic is set for "qp", which has no layers and no data.
	Quadratic *Quadratic

	// Factors is set for "mf", Topics for "lda". These have no layers either.
	Factors *Factors
	Topics  *Topics

	tensors []kintsugi.Tensor
	first   []int      // by layer: index of its first tensor, with an end element
	initial []interval // by tensor
	values  int
}

// interval is the interval centre ± limit that a tensor's initial values are drawn from, uniformly.
type interval struct{ limit, centre float64 }

// Describe returns the description of a model with layers. It checks that the layers fit the input
// and one another. The output of the last layer must be one value for each class, for a sequence at
// each position: the logits. The loss is their softmax cross-entropy. An image that is too small,
// or an invalid layer, is a kintsugi.ErrUsage.
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

// add appends a layer's tensors and returns the shape of the layer's output.
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
		if l.Size <= 0 || l.Size > 15 { // engines store the position of the largest value in a byte
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

// addTensors adds a weight of the given shape, and its bias.
func (d *Description) addTensors(name string, bias int, shape ...int) {
	d.addTensor(name+"/w", shape...)
	d.addTensor(name+"/b", bias)
}

func (d *Description) addTensor(name string, shape ...int) {
	t := kintsugi.Tensor{Name: name, Shape: shape}
	d.tensors = append(d.tensors, t)
	d.values += t.Values()
}

// Tensors lists the parameters in the order of the flat vector. Each layer with parameters has two
// tensors: weight and bias, or two tables. The caller must not change the list.
func (d *Description) Tensors() []kintsugi.Tensor { return d.tensors }

// Values returns the number of parameters.
func (d *Description) Values() int { return d.values }

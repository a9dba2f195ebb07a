package model

import (
	"fmt"
	"strings"

	kintsugi "github.com/kintsugi-ml/kintsugi"
)

// builtin is a built-in model.
type builtin struct {
	name     string
	defaults Defaults
	layers   func(classes int) []Layer
}

// The defaults were tuned by hand for the mean of four workers' gradients, on 28×28 images or
// Shakespeare. `kintsugi bench accuracy` measures what they reach. The convolutional models have
// the smaller learning rate, because with 0.05 one seed in a few ends with dead units and never
// learns.
var builtins = []builtin{
	{"mlr", Defaults{Batch: 32, Steps: 1000, LearningRate: 0.05, Momentum: 0.9}, mlr},
	{"mlp", Defaults{Batch: 32, Steps: 1000, LearningRate: 0.05, Momentum: 0.9}, mlp},
	{"lenet", Defaults{Batch: 32, Steps: 1000, LearningRate: 0.02, Momentum: 0.9}, lenet},
	{"cnn", Defaults{Batch: 32, Steps: 3000, LearningRate: 0.02, Momentum: 0.9}, cnn},
	{"cnn:relu-logits", Defaults{Batch: 32, Steps: 3000, LearningRate: 0.02, Momentum: 0.9}, cnnReLULogits},
	{"charlm", Defaults{Batch: 8, Steps: 1000, LearningRate: 0.003, Momentum: 0.9, Optimizer: "adam"}, charlm},
}

func mlr(classes int) []Layer { return []Layer{Flatten{}, Dense{"fc1", classes}} }

func mlp(classes int) []Layer {
	return []Layer{Flatten{}, Dense{"fc1", 256}, ReLU{}, Dense{"fc2", 128}, ReLU{}, Dense{"fc3", classes}}
}

func lenet(classes int) []Layer {
	return []Layer{
		Conv2D{Name: "conv1", Filters: 6, Kernel: 5, Pad: 2}, ReLU{}, MaxPool{2},
		Conv2D{Name: "conv2", Filters: 16, Kernel: 5}, ReLU{}, MaxPool{2},
		Flatten{}, Dense{"fc1", 120}, ReLU{}, Dense{"fc2", 84}, ReLU{}, Dense{"fc3", classes},
	}
}

func cnn(classes int) []Layer {
	return []Layer{
		Conv2D{Name: "conv1", Filters: 16, Kernel: 3, Pad: 1}, ReLU{}, MaxPool{2},
		Conv2D{Name: "conv2", Filters: 32, Kernel: 3, Pad: 1}, ReLU{}, MaxPool{2},
		Flatten{}, Dense{"fc1", 512}, ReLU{}, Dropout{0.25}, Dense{"fc2", classes},
	}
}

func charlm(classes int) []Layer {
	const width, heads, blocks = 128, 4, 2
	layers := []Layer{Embedding{"embedding", width}}
	for i := range blocks {
		name := fmt.Sprintf("block%d/", i+1)
		layers = append(layers,
			Fork{}, LayerNorm{name + "norm1"}, Linear{name + "qkv", 3 * width}, Attention{heads}, Linear{name + "out", width}, Join{},
			Fork{}, LayerNorm{name + "norm2"}, Linear{name + "fc1", 4 * width}, GELU{}, Linear{name + "fc2", width}, Join{})
	}
	return append(layers, LayerNorm{"norm"}, Linear{"head", classes})
}

func cnnReLULogits(classes int) []Layer { return append(cnn(classes), ReLU{}) }

// Names lists the names of the built-in models.
func Names() []string {
	var names []string
	for _, b := range builtins {
		names = append(names, b.name)
	}
	return append(names, "mf", "mf:als", "lda", "qp")
}

// ForSequences reports whether a built-in model is trained on sequences rather than images.
func ForSequences(name string) bool { return name == "charlm" }

// ForRatings reports whether a built-in model is trained on ratings. The name may include options.
func ForRatings(name string) bool { return name == "mf" || strings.HasPrefix(name, "mf:") }

// ForDocuments reports whether a built-in model is trained on documents. The name may include
// options.
func ForDocuments(name string) bool { return name == "lda" || strings.HasPrefix(name, "lda:") }

// wrongInput returns an error that says which input a model needs and which it was given.
func wrongInput(name string, in Input) error {
	var fit []string
	for _, b := range builtins {
		if ForSequences(b.name) == in.Sequence {
			fit = append(fit, b.name)
		}
	}
	switch {
	case in.Users > 0:
		fit = []string{"mf", "mf:als"}
	case in.Words > 0:
		fit = []string{"lda"}
	}
	return fmt.Errorf("%w: model %s is not for %s; those that are: %s", kintsugi.ErrUsage, name, in.kind(), strings.Join(fit, ", "))
}

// Lookup returns the description of a built-in model for the given input. name is one of:
//
//	mlr              softmax regression
//	mlp              perceptron with 256 and 128 hidden units
//	lenet            two 5×5 convolutions, three dense layers
//	cnn              two 3×3 convolutions, 512 hidden units, dropout
//	cnn:relu-logits  the same with a ReLU on the logits
//	charlm           a transformer that predicts the next character: 2 blocks of 128 values, 4 heads
//	mf               factors of a matrix of ratings, by gradients; options such as mf:rank=8,decay=0.05
//	mf:als           the same by alternating least squares; options such as mf:als,rank=8,decay=0.1
//	lda              topics of documents by Gibbs sampling; options such as lda:topics=20,alpha=0.1,beta=0.01
//	qp               a quadratic; takes no data, and options such as qp:dimension=1000,condition=100
//
// An unknown name, a wrong option, an input of the wrong kind or an image that is too small is a
// kintsugi.ErrUsage.
func Lookup(name string, in Input) (*Description, error) {
	for _, b := range builtins {
		if b.name == name {
			if in.Sequence != ForSequences(name) || in.Users > 0 || in.Words > 0 {
				return nil, wrongInput(name, in)
			}
			return Describe(name, in, b.defaults, b.layers(in.Classes)...)
		}
	}
	base, options, _ := strings.Cut(name, ":")
	switch {
	case ForRatings(name) && in.Users == 0 || ForDocuments(name) && in.Words == 0:
		return nil, wrongInput(name, in)
	case ForRatings(name):
		return described[Factors](base, in, options, parseFactors)
	case ForDocuments(name):
		return described[Topics](base, in, options, parseTopics)
	case base == "qp":
		return described[Quadratic](base, in, options, func(_ Input, text string) (Quadratic, error) { return parseQuadratic(text) })
	}
	return nil, fmt.Errorf("%w: no model is called %q; know %s", kintsugi.ErrUsage, name, strings.Join(Names(), ", "))
}

// described returns the description of a model that has options instead of layers.
func described[M interface{ Describe() (*Description, error) }](name string, in Input, options string, parse func(Input, string) (M, error)) (*Description, error) {
	m, err := parse(in, options)
	if err != nil {
		return nil, fmt.Errorf("%w: model %s: %w", kintsugi.ErrUsage, name, err)
	}
	return m.Describe()
}

package nn

// Device runs the operations of layers. A Device is safe for concurrent use. It keeps no reference
// to its callers' memory after a call. Lengths that do not fit are mistakes of the program and
// panic.
type Device interface {
	// Name returns the device's name in lower case, such as "avx512".
	Name() string

	Sequences

	// AddBias adds bias to each of rows rows of y. The rows are as long as bias and begin stride
	// values apart. If relu is set, it then replaces values that are not positive by +0. NaN stays.
	AddBias(y []float32, stride, rows int, bias []float32, relu bool)

	// ReLU sets y = max(0, x). It keeps NaN and never gives −0. y and x may be the same array.
	ReLU(y, x []float32)

	// ReLUGradient sets dx to dy where y, the result of ReLU, is not 0, and to 0 elsewhere. dx may
	// be dy.
	ReLUGradient(dx, y, dy []float32)

	// Multiply sets z = x·y, value by value. z may be x or y.
	Multiply(z, x, y []float32)

	// AddRowSums adds each of rows rows of x, which are as long as sum, to sum, in order.
	AddRowSums(sum, x []float32, rows int)

	// ConvForward and ConvBackward compute a convolution and its gradient.
	ConvForward(c *Conv, a *ConvForward)
	ConvBackward(c *Conv, a *ConvBackward)

	// PoolForward overwrites y with the largest value of each window of x, and at with that value's
	// place in its window, row·Size+column. PoolBackward overwrites dx with the gradient for x; dy
	// is the gradient for y.
	PoolForward(q Pool, y []float32, at []uint8, x []float32)
	PoolBackward(q Pool, dx []float32, at []uint8, dy []float32)
}

// Devices returns the devices that run on this machine, Host first and the fastest last.
func Devices() []Device { return append([]Device{Host}, simd()...) }

// Best returns the fastest device of this machine.
func Best() Device { return best }

var best = fastest()

func fastest() Device {
	all := Devices()
	return all[len(all)-1]
}

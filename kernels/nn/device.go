package nn

// Device runs the operations of layers. A Device is safe for concurrent use; it keeps no memory of
// its callers. Lengths that do not fit are mistakes of the program and panic.
type Device interface {
	// Name returns the device's name in lower case, such as "avx512".
	Name() string

	Sequences

	// AddBias adds bias to each of rows rows of y, which begin stride values apart and are as long as bias, and
	// then, if relu, replaces what is not positive by +0. NaN stays.
	AddBias(y []float32, stride, rows int, bias []float32, relu bool)

	// ReLU sets y = max(0, x), with NaN kept and no −0. They may be the same array.
	ReLU(y, x []float32)

	// ReLUGradient sets dx to dy where y, the result of ReLU, is not 0, and to 0 elsewhere. dx may be dy.
	ReLUGradient(dx, y, dy []float32)

	// Multiply sets z = x·y, value by value. z may be x or y.
	Multiply(z, x, y []float32)

	// AddRowSums adds rows rows of x, as long as sum, to sum, in order.
	AddRowSums(sum, x []float32, rows int)

	// ConvForward and ConvBackward compute a convolution and its gradient.
	ConvForward(c *Conv, a *ConvForward)
	ConvBackward(c *Conv, a *ConvBackward)

	// PoolForward overwrites y with the largest value of each window of x, and at with its place in it,
	// row·Size+column. PoolBackward overwrites dx with the gradient for x, given dy, the one for y.
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

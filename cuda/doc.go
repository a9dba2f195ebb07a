// Package cuda runs the operations of package kernels on a GPU of NVIDIA's.
//
// The kernels are in cuda/kernel; this package stages what they read, launches them, and fetches what they wrote.
// [Open] loads the driver when it is called: a program with the tag gpu starts on any machine, and one without it says
// so. kernelstest holds [Device] to the contract, bit for bit: on a GPU where there is one, and on an emulation of the
// driver where there is a C++ compiler.
//
// # Arrays
//
// The methods of kernels.Device take arrays of the host: each call copies what it reads to the GPU
// and what it wrote back, so it is as fast as the link between them. [Device] is meant for who
// keeps arrays on the GPU: package cuda/engine.
//
// # Loss
//
// After a fault on the GPU, such as an uncorrectable error in its memory, the driver answers every
// call with an error. So does this package: [ErrLost], until the process ends. What the GPU held is
// gone.
package cuda

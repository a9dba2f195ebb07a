// Package cuda runs the operations of package kernels on an NVIDIA GPU. Begin with [Open] and
// [Device]; an engine that keeps its arrays on the GPU uses [Queue].
//
// The kernels are in cuda/kernel. This package stages what they read, launches them, and fetches
// what they wrote. [Open] loads the driver at run time: a program built with the tag gpu starts on
// any machine, and for one built without it Open returns an error that says so. kernelstest checks
// [Device] against the contract, bit for bit: on a GPU if there is one, and on an emulation of the
// driver if there is a C++ compiler.
//
// # Arrays
//
// The methods of kernels.Device take arrays in host memory. Each call copies what it reads to the
// GPU and what it wrote back, so it is only as fast as the link between them. [Device].NewArrays,
// [Queue] and package cuda/engine keep arrays on the GPU.
//
// # Loss
//
// After a fault on the GPU, such as an uncorrectable error in its memory, the driver answers every
// call with an error. So does this package: every call returns [ErrLost] until the process ends.
// The contents of the GPU's memory are gone.
package cuda

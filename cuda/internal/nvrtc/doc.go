// Package nvrtc compiles kernels to PTX with NVIDIA's run-time compiler, a library that it loads at
// run time. It is needed to change kernels, not to run them. In builds without the tag gpu it is
// empty.
package nvrtc

// Package nn computes layers of neural networks, forward and backward, on flat arrays of float32 in
// host memory. It computes convolutions and everything that lies between matrix products; package
// blas computes the products. Begin with [Device], which lists the operations. Each has an
// implementation in plain Go, [Host], and one in C for each set of vector instructions.
//
// # Bits
//
// Operations on single values (bias, ReLU, pooling, masks) and sums over rows give equal bits on
// all devices. So do all operations of [Sequences], which specifies the order of their sums.
// Convolutions are bounded, like matrix products. A result is a sum of n products in some order,
// with or without rounding of the products, so it is within (n+1)·2⁻²⁴·Σ|products| of the exact
// sum. On one device equal arguments give equal bits, at any addresses.
package nn

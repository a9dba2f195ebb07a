// Package nn computes layers of neural networks, forward and backward, on flat arrays of float32 in host memory.
//
// Matrix products are package blas's. What is here is all else that a layer does: convolutions, and the passes over
// values between products. Each operation has an implementation in plain Go, Host, and one in C for each set
// of vector instructions.
//
// # Bits
//
// Operations on single values (bias, ReLU, pooling, masks) and sums over rows give equal bits on
// all devices, and so do all operations of Sequences, whose sums run in an order that is written
// down there. Convolutions are bounded, like matrix products: each result is a sum of products in
// some order, with products rounded or not, so it is within (n+1)·2⁻²⁴·Σ|products| of the exact one
// for a sum of n. On one device equal arguments give equal bits, wherever they lie in memory.
package nn

// Package kernels does the arithmetic of an optimizer step on arrays of float32, with equal bits on
// every device. It also encodes and decodes the payloads in which gradients travel. Begin with
// [Device] and [Step]; [Host] is the readable implementation of both.
//
// A parameter server spends most of its processor time on one task: it sums k gradients, scales the
// sum and lets an optimizer rule move the parameters. Done operation by operation, that reads and
// writes every array several times; [Device].Step does it in one pass over one chunk. Every replica
// of a shard runs the step for itself, and replicas must stay equal to the bit on whatever
// processor they run. So the sequence of operations on each element is specified below and is the
// same everywhere.
//
// # Devices
//
// [Host] is plain Go, always complete, and the reference. If the program was built with cgo,
// [Devices] also lists a device for each set of vector instructions that this processor has: avx2
// and avx512 on amd64, neon on arm64. The choice is made at run time. With CGO_ENABLED=0 only Host is left. Package
// kernelstest checks every device against Host.
//
// # Classes
//
// Every operation belongs to one class:
//
//	exact     equal bits to Host, NaN payloads included: nothing is computed, values are moved or compared
//	ordered   equal bits to Host, because the sequence of operations is fixed and nothing is contracted
//	bounded   within the bound stated at the operation; nothing in this package is merely bounded
//
// Devices agree on which results of ordered operations are NaN, but not on the payload and the sign
// of a NaN: IEEE 754 leaves those to the hardware.
//
// Each single operation follows IEEE 754 and rounds to nearest even, division and square root
// included. Subnormal numbers are kept. A product is rounded before it feeds an addition: there are
// no fused multiply-adds.
//
// By-products are summed in float64 in 16 lanes. Element i of the chunk goes into lane i mod 16,
// and each lane adds its elements in order of i, starting from +0. Then the lanes are folded by
// l[i] += l[i+8], then +4, +2, +1. That gives the same sum at every vector width.
//
// # Rules
//
// The formulas are written as the code computes them: one operation at a time, parentheses first,
// then products before sums, all in float32. w are the parameters, m and v the arrays of state, g
// the scaled sum of the gradients; a prime marks a new value:
//
//	acc = (((+0 + weight₀·value₀) + weight₁·value₁) + …)     in the order of Operands
//	g   = acc · Scale
//
//	SGD       h = g + λ·w                     w' = w − η·h
//	Momentum  h = g + λ·w     m' = μ·m + h    w' = w − η·m'
//	Nesterov  h = g + λ·w     m' = μ·m + h    w' = w − η·(h + μ·m')
//	Adam      h = g + λ·w     m' = β₁·m + (1−β₁)·h     v' = β₂·v + (1−β₂)·(h·h)
//	          w' = w − (α·m') / (√v'·ρ + ε)
//	AdamW     h = g,          m' and v' as above
//	          w' = δ·w − (α·m') / (√v'·ρ + ε)
//	Adagrad   h = g + λ·w     m' = m + h·h    w' = w − (η·h) / (√m' + ε)
//	LazyAdam  as Adam where g ≠ 0; elsewhere w' = w, m' = m and v' = v
//	Add       w' = w + g
//	Assign    w' = g, where g is the value of the one operand, neither weighted nor scaled
//
// Here η is LearningRate, λ WeightDecay, μ Momentum and ε Epsilon. 1−β₁, 1−β₂, α = η / Correction1,
// ρ = 1 / √Correction2 and δ = 1 − η·λ are each computed once per step, in float32. Momentum and
// Nesterov are PyTorch's, without dampening. Adagrad is PyTorch's too, and so is Adam up to
// rounding: ρ saves a division for each element. LazyAdam is SparseAdam
// there, with values in place of rows.
//
// Operands may be payloads; [Encoding] lists their formats. A payload is decoded tile by tile on
// its way into the sum, and its decoded values are never written to memory. Broadcast is Next in
// BF16, rounded to nearest even. A finite value beyond the range becomes the largest finite BF16,
// infinities are kept, and every NaN becomes 0x7fc0.
//
// [Few] does a step on the values that sparse payloads name, and no others, to the same bits.
package kernels

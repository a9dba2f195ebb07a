// Package kernels does the arithmetic of a step on arrays of float32, with equal bits on every device.
//
// A parameter server spends its processor time in one place: it sums k gradients, scales the sum and lets
// an optimizer rule move the parameters. Done operation by operation that reads and writes every array
// several times; [Device].Step does it in one pass over one chunk. Replicas of a shard each run the step
// for themselves and must stay equal to the bit, whatever processor they run on, so the sequence of
// operations on each element is written down here and is the same everywhere.
//
// # Devices
//
// [Host] is plain Go, always complete, and the reference. Where the program was built with cgo,
// [Devices] lists also what the processor at hand can run: avx2 and avx512 on amd64, neon on arm64. The
// choice is made at run time; CGO_ENABLED=0 leaves Host. Package kernelstest holds every device to Host.
//
// # Classes
//
// Every operation belongs to one class:
//
//	exact     equal bits to Host, NaN payloads included: nothing is computed, values are moved or compared
//	ordered   equal bits to Host, because the sequence of operations is fixed and nothing is contracted
//	bounded   within the bound stated at the operation; nothing in this package is merely bounded
//
// Ordered operations agree on which results are NaN, but not on the payload and sign of a NaN: IEEE 754
// leaves those to the hardware.
//
// Each single operation is IEEE 754 with rounding to nearest even, division and square root included, and
// subnormal numbers are kept. A product that feeds an addition is rounded first: there are no fused
// multiply-adds. By-products are summed in float64 in 16 lanes, element i of the chunk in lane i mod 16,
// each lane in order of i from +0, and the lanes are folded by l[i] += l[i+8], then +4, +2, +1. That is
// the same sum at every vector width.
//
// # Rules
//
// Written as in the code: one operation at a time, parentheses first, then products before sums, all in
// float32. w are the parameters, m and v the arrays of state, g the scaled sum, primes mark new values:
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
//	Add       w' = w + g
//	Assign    w' = g, where g is the value of the one operand, neither weighted nor scaled
//
// with η LearningRate, λ WeightDecay, μ Momentum, ε Epsilon, and, each computed once per step in float32,
// 1−β₁, 1−β₂, α = η / Correction1, ρ = 1 / √Correction2, δ = 1 − η·λ. Momentum and Nesterov are those of
// PyTorch without dampening; so is Adam up to rounding (ρ saves a division for each element), and Adagrad.
//
// Operands may be payloads: [Encoding] lists the formats. They are decoded tile by tile on the way into the sum,
// and never written to memory. Broadcast is Next in BF16: to nearest even, a finite value beyond the range to the
// largest finite one, infinities kept, every NaN 0x7fc0.
package kernels

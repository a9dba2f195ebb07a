// Package tile has the innermost loops of a matrix product, in Go's assembler, for binaries without
// C. It is a package of its own because a package cannot have both assembler and cgo. If the
// processor is not an amd64, or lacks AVX2 or FMA, Have is false and no function may be called.
package tile

// Package tile has the innermost loops of a matrix product for binaries without C, in Go's
// assembler: a package cannot have both that and cgo. Where the processor lacks AVX2 or FMA, or is
// not an amd64, Have is false and nothing may be called.
package tile

//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package kernels

// The wire and the checkpoints hold little-endian values, which are read and written in place. A
// build for a big-endian machine must fail here; otherwise it would train on swapped bytes.
var _ = bigEndianMachinesAreNotSupported

// The formats to which the matrix units round factors, from the bits of a float32.
#pragma once

#include <cstdint>

namespace emu {

inline bool is_nan(uint32_t b) { return (b & 0x7fffffff) > 0x7f800000; }

// Rounds to the nearest TF32, ties away from zero, as the bits of a float32. All NaNs become one.
inline uint32_t nearest_tf32(uint32_t b) { return is_nan(b) ? 0x7fffffff : (b + 0x1000) & 0xffffe000; }

// Rounds to the nearest BF16, ties to even. Numbers that are too large become infinite.
inline uint32_t nearest_bf16(uint32_t b) { return is_nan(b) ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16; }

} // namespace emu

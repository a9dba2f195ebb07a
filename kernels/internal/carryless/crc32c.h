#ifndef KIN_CRC32C_H
#define KIN_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// kin_crc32c_detect says whether this processor and operating system can run the functions below.
int kin_crc32c_detect(void);

// kin_crc32c continues crc, in the form of hash/crc32, with n bytes: a multiple of 64, at least 256.
uint32_t kin_crc32c(uint32_t crc, const uint8_t *src, size_t n);

// kin_copy_crc32c also copies. It prefetches the lines of dst KIN_COPY_AHEAD bytes ahead, even past its end, since the
// next part of a frame lands there. A store to a line that no cache holds waits for the line, and only a few such
// stores can wait at once.
#define KIN_COPY_AHEAD 2048
uint32_t kin_copy_crc32c(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);

// kin_copy_crc32c_narrow does the same with narrow vectors, if kin_copy_crc32c_narrow_detect says that it can run.
int kin_copy_crc32c_narrow_detect(void);
uint32_t kin_copy_crc32c_narrow(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);

#endif

#ifndef KIN_CRC32C_H
#define KIN_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// kin_crc32c_detect says whether this processor and operating system can run the functions below.
int kin_crc32c_detect(void);

// kin_crc32c continues crc, as hash/crc32 counts it, with n bytes: a multiple of 64, at least 256.
uint32_t kin_crc32c(uint32_t crc, const uint8_t *src, size_t n);

// kin_copy_crc32c copies as well, and asks for the lines of dst that come KIN_COPY_AHEAD bytes later, behind its end too: the next part of a frame lands there.
// A store to a line that no cache has waits for it, and few such stores can wait at once.
#define KIN_COPY_AHEAD 2048
uint32_t kin_copy_crc32c(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);

// kin_copy_crc32c_narrow does so with narrow vectors, where kin_copy_crc32c_narrow_detect says that it can.
int kin_copy_crc32c_narrow_detect(void);
uint32_t kin_copy_crc32c_narrow(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);

#endif

#include <stddef.h>
#include <stdint.h>

enum { str_max = 80, str_grain = 64 };

// str_arrays holds the arrays that are read, followed by those that are written. It is passed by value, since memory
// that holds Go pointers would have to be pinned.
typedef struct {
	uint8_t *at[str_max];
	size_t bytes[str_max];
	int reads, writes, past, ahead;
	size_t parts;
} str_arrays;

void str_move(str_arrays a);

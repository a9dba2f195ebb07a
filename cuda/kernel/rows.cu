// Rows of a table that are added to or replaced. The host has sorted the entries by row, those of one row in their order:
// a block takes one row.
#include "kdev.cuh"

struct RowsArgs {
	f32 *dst;
	const f32 *values;
	const u32 *entry; // entries, sorted by row
	const u32 *begin; // of each row's entries, and the end of the last
	const u32 *row;
	u64 len;
};

enum { THREADS = 128 };

KERNEL(rows_add, RowsArgs, THREADS) {
	const u32 begin = a.begin[BLOCK], end = a.begin[BLOCK + 1];
	f32 *dst = a.dst + (u64)a.row[BLOCK] * a.len;
	for (u64 j = THREAD; j < a.len; j += THREADS) {
		f32 v = dst[j];
		for (u32 e = begin; e < end; e++) v = add(v, a.values[(u64)a.entry[e] * a.len + j]);
		dst[j] = v;
	}
}

// Of a row that is named twice the last counts.
KERNEL(rows_assign, RowsArgs, THREADS) {
	const u32 last = a.entry[a.begin[BLOCK + 1] - 1];
	f32 *dst = a.dst + (u64)a.row[BLOCK] * a.len;
	for (u64 j = THREAD; j < a.len; j += THREADS) dst[j] = a.values[(u64)last * a.len + j];
}

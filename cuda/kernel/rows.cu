// Adds rows to rows of a table, or assigns them. Twin of AddRows and AssignRows in kernels/host.go
// and kernels/rows.go.
//
// Entry e is row e of values; several entries may name the same row of the table. The host sorts
// the entries by the row that they name, and keeps the order of those with the same row. A block
// takes one row of the table, and its threads go along the row. So no two threads write the same
// value, sums are in the order of entries, and there is neither a barrier nor an atomic.
#include "kdev.cuh"

struct RowsArgs {
	f32 *dst; // the table
	const f32 *values;
	const u32 *entry; // the numbers of entries, sorted by row
	const u32 *begin; // for each block, where the entries of its row begin in entry; then their end
	const u32 *row;   // for each block, its row of dst
	u64 len;          // values of a row
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

// If several entries name a row, the last one counts.
KERNEL(rows_assign, RowsArgs, THREADS) {
	const u32 last = a.entry[a.begin[BLOCK + 1] - 1];
	f32 *dst = a.dst + (u64)a.row[BLOCK] * a.len;
	for (u64 j = THREAD; j < a.len; j += THREADS) dst[j] = a.values[(u64)last * a.len + j];
}

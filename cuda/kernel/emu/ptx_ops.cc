// What each instruction does, according to NVIDIA's "Parallel Thread Execution ISA". Each result is rounded once. A
// float32 operation that results in NaN gives the NaN that GPUs give.
#include "ptx.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "../../internal/driver/api.h"
#include "round.h"

namespace ptx {

typedef std::map<std::string, Operation> Table;

template <class T> T canonical(T v) { return v; }
template <> f32 canonical(f32 v) { return v == v ? v : emu::unpack<f32>(0x7fffffff); }

template <class T> T from(u64 bits) { return emu::unpack<T>(bits); }

// An operation whose result is an expression of its operands a, b and c, of type T.
#define MAP(T, expression) \
	[](Warp &w, const Instruction &i, u32 lanes) { \
		const size_t n = i.in.size(); \
		const int x = i.in[0], y = n > 1 ? i.in[1] : x, z = n > 2 ? i.in[2] : x; \
		each(lanes, [&](int l) { \
			const T a = w.get<T>(x, l), b = w.get<T>(y, l), c = w.get<T>(z, l); \
			(void)b, (void)c; \
			w.put(i.out[0], l, canonical(expression)); \
		}); \
	}
// A predicate that is an expression of two operands of type T.
#define TEST(T, expression) \
	[](Warp &w, const Instruction &i, u32 lanes) { \
		u32 yes = 0; \
		each(lanes, [&](int l) { \
			const T a = w.get<T>(i.in[0], l), b = w.get<T>(i.in[1], l); \
			yes |= (u32)(expression) << l; \
		}); \
		u32 &p = w.predicates[i.out[0]]; \
		p = (p & ~lanes) | yes; \
	}
// An expression of predicates, for all lanes at once.
#define LOGIC(expression) \
	[](Warp &w, const Instruction &i, u32 lanes) { \
		const u32 a = w.predicates[i.in[0]], b = w.predicates[i.in.back()]; \
		(void)b; \
		u32 &p = w.predicates[i.out[0]]; \
		p = (p & ~lanes) | ((expression) & lanes); \
	}

template <class T> void comparisons(Table &t, const std::string &type) {
	t["setp.eq" + type] = TEST(T, a == b);
	t["setp.ne" + type] = TEST(T, a < b || a > b);
	t["setp.lt" + type] = TEST(T, a < b);
	t["setp.le" + type] = TEST(T, a <= b);
	t["setp.gt" + type] = TEST(T, a > b);
	t["setp.ge" + type] = TEST(T, a >= b);
	t["setp.equ" + type] = TEST(T, !(a < b || a > b));
	t["setp.neu" + type] = TEST(T, a != b);
	t["setp.ltu" + type] = TEST(T, !(a >= b));
	t["setp.leu" + type] = TEST(T, !(a > b));
	t["setp.gtu" + type] = TEST(T, !(a <= b));
	t["setp.geu" + type] = TEST(T, !(a < b));
	t["setp.num" + type] = TEST(T, a == a && b == b);
	t["setp.nan" + type] = TEST(T, a != a || b != b);
}

template <class T> void moves(Table &t, const std::string &type) {
	t["mov" + type] = [](Warp &w, const Instruction &i, u32 lanes) {
		each(lanes, [&](int l) { w.put(i.out[0], l, w.get<T>(i.in[0], l)); });
	};
	t["selp" + type] = [](Warp &w, const Instruction &i, u32 lanes) {
		const u32 first = w.predicates[i.in[2]];
		each(lanes, [&](int l) { w.put(i.out[0], l, w.get<T>(i.in[first >> l & 1 ? 0 : 1], l)); });
	};
}

template <class T> void integers(Table &t, const std::string &type) {
	typedef typename std::make_unsigned<T>::type U;
	t["add" + type] = MAP(T, (T)((U)a + (U)b));
	t["sub" + type] = MAP(T, (T)((U)a - (U)b));
	t["mul.lo" + type] = MAP(T, (T)((u64)a * (u64)b));
	t["mad.lo" + type] = MAP(T, (T)((u64)a * (u64)b + (u64)c));
	t["div" + type] = MAP(T, b ? (T)(a / b) : (T)-1);
	t["rem" + type] = MAP(T, b ? (T)(a % b) : a);
	t["min" + type] = MAP(T, a < b ? a : b);
	t["max" + type] = MAP(T, a < b ? b : a);
	t["neg" + type] = MAP(T, (T)(0 - (U)a));
	t["shr" + type] = [](Warp &w, const Instruction &i, u32 lanes) {
		each(lanes, [&](int l) {
			const u32 by = w.get<u32>(i.in[1], l), most = 8 * sizeof(T) - 1;
			const T a = w.get<T>(i.in[0], l);
			w.put(i.out[0], l, by <= most ? (T)(a >> by) : std::is_signed<T>::value ? (T)(a >> most) : (T)0);
		});
	};
	comparisons<T>(t, type);
	moves<T>(t, type);
}

template <class T> void bits(Table &t, const std::string &type) {
	t["and" + type] = MAP(T, (T)(a & b));
	t["or" + type] = MAP(T, (T)(a | b));
	t["xor" + type] = MAP(T, (T)(a ^ b));
	t["not" + type] = MAP(T, (T)~a);
	t["shl" + type] = [](Warp &w, const Instruction &i, u32 lanes) {
		each(lanes, [&](int l) {
			const u32 by = w.get<u32>(i.in[1], l);
			w.put(i.out[0], l, by < 8 * sizeof(T) ? (T)(w.get<T>(i.in[0], l) << by) : (T)0);
		});
	};
	t["setp.eq" + type] = TEST(T, a == b);
	t["setp.ne" + type] = TEST(T, a != b);
	moves<T>(t, type);
}

template <class T> void floats(Table &t, const std::string &type) {
	t["add.rn" + type] = MAP(T, a + b);
	t["sub.rn" + type] = MAP(T, a - b);
	t["mul.rn" + type] = MAP(T, a * b);
	t["fma.rn" + type] = MAP(T, std::fma(a, b, c));
	t["div.rn" + type] = MAP(T, a / b);
	t["sqrt.rn" + type] = MAP(T, std::sqrt(a));
	t["rcp.rn" + type] = MAP(T, 1 / a);
	t["min" + type] = MAP(T, std::fmin(a, b));
	t["max" + type] = MAP(T, std::fmax(a, b));
	t["neg" + type] = MAP(T, -a);
	t["abs" + type] = MAP(T, std::fabs(a));
	comparisons<T>(t, type);
	moves<T>(t, type);
}

// To an integer, towards zero. A value that does not fit becomes the nearest one that does, and NaN becomes 0.
template <class T, class F> T clamp(F v) {
	if (!(v == v)) return 0;
	if (v <= (F)std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
	if (v >= (F)std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
	return (T)v;
}

f32 from_half(u16 h) {
	const u32 sign = (u32)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
	if (exponent == 31) return fraction ? from<f32>(0x7fffffff) : from<f32>(sign | 0x7f800000);
	if (exponent == 0) return std::copysign((f32)fraction * 0x1p-24f, from<f32>(sign));
	return from<f32>(sign | (exponent + 112) << 23 | fraction << 13);
}

// a·b + c, rounded downwards.
f32 fma_down(f32 a, f32 b, f32 c) {
	const int before = fegetround();
	fesetround(FE_DOWNWARD);
	volatile f32 x = a, y = b, z = c, r = std::fma(x, y, z);
	fesetround(before);
	return r;
}

// The upper word of a reciprocal, as given by the instruction with which divisions begin.
f64 reciprocal_word(f64 a) { return from<f64>(emu::pack(1 / a) & 0xffffffff00000000ull); }

template <class T> T insert_bits(T a, T b, u32 at, u32 n) {
	const u32 bits = 8 * sizeof(T);
	at &= 255, n &= 255;
	if (n == 0 || at >= bits) return b;
	const T mask = (n >= bits ? ~(T)0 : ((T)1 << n) - 1) << at;
	return (b & ~mask) | (a << at & mask);
}

template <class T> void insert(Warp &w, const Instruction &i, u32 lanes) {
	each(lanes, [&](int l) { w.put(i.out[0], l, insert_bits(w.get<T>(i.in[0], l), w.get<T>(i.in[1], l), w.get<u32>(i.in[2], l), w.get<u32>(i.in[3], l))); });
}

u32 permute_bytes(u32 a, u32 b, u32 which) {
	const u64 all = (u64)b << 32 | a;
	u32 r = 0;
	for (int i = 0; i < 4; i++) {
		const u32 pick = which >> 4 * i;
		u32 v = all >> 8 * (pick & 7) & 255;
		if (pick & 8) v = v & 128 ? 255 : 0;
		r |= v << 8 * i;
	}
	return r;
}

template <class A> void conversions(Table &t, const std::string &a) {
	t["cvt.u16" + a] = MAP(A, (u16)a), t["cvt.s16" + a] = MAP(A, (i16)a);
	t["cvt.u32" + a] = MAP(A, (u32)a), t["cvt.s32" + a] = MAP(A, (i32)a);
	t["cvt.u64" + a] = MAP(A, (u64)a), t["cvt.s64" + a] = MAP(A, (i64)a);
	t["cvt.u8" + a] = MAP(A, (u8)a), t["cvt.s8" + a] = MAP(A, (i64)(i8)a);
	t["cvt.rn.f32" + a] = MAP(A, (f32)a), t["cvt.rn.f64" + a] = MAP(A, (f64)a);
}

// Packs registers into one of type T, or unpacks one: mov with a list on one side.
template <class T> void lists(Table &t, const std::string &type) {
	t["mov" + type + " list"] = [](Warp &w, const Instruction &i, u32 lanes) {
		const size_t parts = std::max(i.in.size(), i.out.size()), width = 8 * sizeof(T) / parts;
		each(lanes, [&](int l) {
			u64 whole = 0;
			if (i.out.size() > 1)
				for (size_t p = 0; p < parts; p++) w.put(i.out[p], l, w.get<u64>(i.in[0], l) >> p * width & (((u64)1 << width) - 1));
			else {
				for (size_t p = 0; p < parts; p++) whole |= (w.get<u64>(i.in[p], l) & (((u64)1 << width) - 1)) << p * width;
				w.put(i.out[0], l, whole);
			}
		});
	};
}

// Memory. A signed value is extended to the whole register.
template <class T, class Wide, Space S, int N> void load(Warp &w, const Instruction &i, u32 lanes) {
	each(lanes, [&](int l) {
		const char *p = reach(w, i, l, S, w.get<u64>(i.in[0], l) + i.offset, N * sizeof(T), READ);
		if (!p) return;
		T v[N];
		memcpy(v, p, sizeof v);
		for (int n = 0; n < N; n++) w.put(i.out[n], l, (Wide)v[n]);
	});
}

template <class T, Space S, int N> void save(Warp &w, const Instruction &i, u32 lanes) {
	each(lanes, [&](int l) {
		char *p = reach(w, i, l, S, w.get<u64>(i.in[0], l) + i.offset, N * sizeof(T), WRITE);
		if (!p) return;
		T v[N];
		for (int n = 0; n < N; n++) v[n] = w.get<T>(i.in[1 + n], l);
		memcpy(p, v, sizeof v);
	});
}

template <class T, class Wide, Space S> void accesses(Table &t, const std::string &space, const std::string &type) {
	t["ld" + space + type] = load<T, Wide, S, 1>, t["st" + space + type] = save<T, S, 1>;
	t["ld" + space + ".v2" + type] = load<T, Wide, S, 2>, t["st" + space + ".v2" + type] = save<T, S, 2>;
	t["ld" + space + ".v4" + type] = load<T, Wide, S, 4>, t["st" + space + ".v4" + type] = save<T, S, 4>;
}

template <Space S> void memory(Table &t, const std::string &space) {
	accesses<u8, u8, S>(t, space, ".u8"), accesses<i8, i64, S>(t, space, ".s8"), accesses<u8, u8, S>(t, space, ".b8");
	accesses<u16, u16, S>(t, space, ".u16"), accesses<i16, i64, S>(t, space, ".s16"), accesses<u16, u16, S>(t, space, ".b16");
	accesses<u32, u32, S>(t, space, ".u32"), accesses<i32, i64, S>(t, space, ".s32"), accesses<u32, u32, S>(t, space, ".b32");
	accesses<u64, u64, S>(t, space, ".u64"), accesses<i64, i64, S>(t, space, ".s64"), accesses<u64, u64, S>(t, space, ".b64");
	accesses<u32, u32, S>(t, space, ".f32"), accesses<u64, u64, S>(t, space, ".f64");
}

#define ATOM(T, S, expression) \
	[](Warp &w, const Instruction &i, u32 lanes) { \
		each(lanes, [&](int l) { \
			char *p = reach(w, i, l, S, w.get<u64>(i.in[0], l) + i.offset, sizeof(T), ATOMIC); \
			if (!p) return; \
			T a; \
			memcpy(&a, p, sizeof a); \
			const T b = w.get<T>(i.in[1], l), r = expression; \
			memcpy(p, &r, sizeof r); \
			w.put(i.out[0], l, a); \
		}); \
	}

template <Space S> void atomics(Table &t, const std::string &space) {
	t["atom" + space + ".add.u32"] = ATOM(u32, S, a + b), t["atom" + space + ".add.u64"] = ATOM(u64, S, a + b);
	t["atom" + space + ".min.u32"] = ATOM(u32, S, a < b ? a : b), t["atom" + space + ".min.u64"] = ATOM(u64, S, a < b ? a : b);
	t["atom" + space + ".max.u32"] = ATOM(u32, S, a < b ? b : a), t["atom" + space + ".max.u64"] = ATOM(u64, S, a < b ? b : a);
	t["atom" + space + ".or.b32"] = ATOM(u32, S, a | b);
}

// Operations of a warp whose lanes have all come. A shuffle moves words between lanes. A lane that has no
// word to take keeps its own.
enum Way { UP, DOWN, BUTTERFLY, INDEX };

template <Way W> void shuffle(Warp &w, const Instruction &i, u32 lanes) {
	u32 given[32], taken = 0;
	for (int l = 0; l < 32; l++) given[l] = w.get<u32>(i.in[0], l);
	for (int l = 0; l < 32; l++) {
		const u32 by = w.get<u32>(i.in[1], l) & 31, c = w.get<u32>(i.in[2], l), segment = c >> 8 & 31;
		if (w.get<u32>(i.in[3], l) != ~0u) return fail(w, i, l, CUDA_ERROR_LAUNCH_FAILED, "a mask that leaves lanes out, which this does not know");
		const int most = (l & segment) | (c & 31 & ~segment), least = l & segment;
		int j = W == UP ? l - (int)by : W == DOWN ? l + (int)by : W == BUTTERFLY ? l ^ (int)by : least | (int)(by & ~segment);
		const bool there = W == UP ? j >= most : j <= most;
		if (!there) j = l;
		taken |= (u32)there << l;
		w.put(i.out[0], l, given[j]);
	}
	if (i.out.size() > 1) w.predicates[i.out[1]] = taken;
}

void ballot(Warp &w, const Instruction &i, u32) {
	const u32 all = w.predicates[i.in[0]];
	for (int l = 0; l < 32; l++) w.put(i.out[0], l, all);
}

void in_step(Warp &w, const Instruction &, u32) { w.epoch++; }

// The words of lane 4·g + t hold these places of the matrices, with PER values in a word. Of the first
// matrix: rows g and g + 8, columns from PER·t on, and then from 4·PER + PER·t on. Of the second matrix:
// rows from PER·t on, and then from 4·PER + PER·t on, in column g. The sums are those of rows g and g + 8,
// columns 2·t and 2·t + 1.
template <int PER, class Value> void matrix_product(Warp &w, const Instruction &i, Value value) {
	enum { K = 8 * PER };
	static f32 a[16][K], b[K][8];
	for (int l = 0; l < 32; l++) {
		const int g = l >> 2, t = l & 3;
		for (int p = 0; p < PER; p++) {
			for (int r = 0; r < 4; r++) a[g + 8 * (r & 1)][4 * PER * (r >> 1) + PER * t + p] = value(w.get<u32>(i.in[r], l), p);
			for (int r = 0; r < 2; r++) b[4 * PER * r + PER * t + p][g] = value(w.get<u32>(i.in[4 + r], l), p);
		}
	}
	for (int l = 0; l < 32; l++) {
		f32 sum[4];
		for (int r = 0; r < 4; r++) sum[r] = w.get<f32>(i.in[6 + r], l);
		for (int r = 0; r < 4; r++) {
			for (int k = 0; k < K; k++) sum[r] += a[(l >> 2) + 8 * (r >> 1)][k] * b[k][2 * (l & 3) + (r & 1)];
			w.put(i.out[r], l, canonical(sum[r]));
		}
	}
}

static Table table() {
	Table t;
	integers<u16>(t, ".u16"), integers<i16>(t, ".s16");
	integers<u32>(t, ".u32"), integers<i32>(t, ".s32");
	integers<u64>(t, ".u64"), integers<i64>(t, ".s64");
	bits<u16>(t, ".b16"), bits<u32>(t, ".b32"), bits<u64>(t, ".b64");
	floats<f32>(t, ".f32"), floats<f64>(t, ".f64");
	t["mul.wide.u32"] = MAP(u32, (u64)a * b), t["mul.wide.s32"] = MAP(i32, (i64)a * b);
	t["popc.b32"] = MAP(u32, (u32)__builtin_popcount(a));
	t["bfi.b32"] = insert<u32>, t["bfi.b64"] = insert<u64>;
	t["prmt.b32"] = MAP(u32, permute_bytes(a, b, c));

	t["and.pred"] = LOGIC(a & b), t["or.pred"] = LOGIC(a | b), t["xor.pred"] = LOGIC(a ^ b), t["not.pred"] = LOGIC(~a), t["mov.pred"] = LOGIC(a);

	conversions<u8>(t, ".u8"), conversions<i8>(t, ".s8"), conversions<u16>(t, ".u16"), conversions<i16>(t, ".s16");
	conversions<u32>(t, ".u32"), conversions<i32>(t, ".s32"), conversions<u64>(t, ".u64"), conversions<i64>(t, ".s64");
	t["cvt.f64.f32"] = MAP(f32, (f64)a), t["cvt.rn.f32.f64"] = MAP(f64, (f32)a);
	t["cvt.f32.f16"] = MAP(u16, from_half(a));
	t["cvt.rzi.u64.f32"] = MAP(f32, (clamp<u64>(a)));
	t["cvt.rmi.f32.f32"] = MAP(f32, std::floor(a));
	t["cvt.sat.f32.f32"] = MAP(f32, a >= 0 ? a < 1 ? a : 1.0f : 0.0f);
	t["cvt.rna.tf32.f32"] = MAP(u32, emu::nearest_tf32(a));
	t["cvt.rn.bf16x2.f32"] = MAP(u32, emu::nearest_bf16(a) << 16 | emu::nearest_bf16(b));

	t["fma.rm.f32"] = MAP(f32, fma_down(a, b, c));
	// Approximations. Those of a GPU may differ in the last bits.
	t["ex2.approx.ftz.f32"] = MAP(f32, std::exp2(a));
	t["rcp.approx.ftz.f64"] = MAP(f64, reciprocal_word(a));

	memory<GLOBAL>(t, ".global"), memory<GLOBAL>(t, ".global.nc"), memory<GLOBAL>(t, ""), memory<SHARED>(t, ".shared"), memory<LOCAL>(t, ".local"), memory<PARAM>(t, ".param");
	atomics<GLOBAL>(t, ".global"), atomics<SHARED>(t, ".shared");
	t["cvta.to.global.u64"] = t["mov.u64"];

	t["shfl.sync.up.b32"] = shuffle<UP>, t["shfl.sync.down.b32"] = shuffle<DOWN>, t["shfl.sync.bfly.b32"] = shuffle<BUTTERFLY>, t["shfl.sync.idx.b32"] = shuffle<INDEX>;
	t["vote.sync.ballot.b32"] = ballot;
	t["bar.warp.sync"] = in_step;
	t["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"] = [](Warp &w, const Instruction &i, u32) {
		matrix_product<1>(w, i, [](u32 word, int) { return from<f32>(word & 0xffffe000); });
	};
	t["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = [](Warp &w, const Instruction &i, u32) {
		matrix_product<2>(w, i, [](u32 word, int p) { return from<f32>(p ? word & 0xffff0000 : word << 16); });
	};
	lists<u32>(t, ".b32"), lists<u64>(t, ".b64");
	return t;
}

Operation operation(const std::string &name) {
	static const Table known = table();
	const auto found = known.find(name);
	return found == known.end() ? nullptr : found->second;
}

} // namespace ptx

// What the kernels of Twine share: the words that the host gives them (src/twine/words.rs), how an
// array is cut into chunks, and small arithmetic. docs/reference/twine.md is the specification.
// WIDE, WARPS and, for one form of arrays, FORM, MODE and MEASURES are defined in front of this
// text. It is C++ as well: a test compiles it for the processor, with EMULATED defined, and runs the
// lanes in turn.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define ALL 0xffffffffu
#define UNROLL _Pragma("unroll")
#define UNROLL8 _Pragma("unroll 8")
#define UNROLL4 _Pragma("unroll 4")
#define UNROLL1 _Pragma("unroll 1")
#define INLINE_JOBS 16
#define PIECES 32
#define STRIDE 33  // of a block in shared memory: lanes that read their blocks meet no bank twice
#define FETCHED_STRIDE 36  // of one that was fetched: nor do eight lanes that read 16 bytes

#define RULE_RAW 0
#define RULE_EXACT 1
#define RULE_STEP 2
#define RULE_RANGE 3
#define RULE_RMS 4
#define RULE_RELATIVE 5

#define KIND_F16 0
#define KIND_BF16 1
#define KIND_F32 2
#define KIND_F64 3
#define KIND_SIGNED 4

#define HOW_AFTER 1

// The launches of a call: one, or two where bounds depend on the values.
#define PASS_ONLY 0
#define PASS_FIRST 1
#define PASS_SECOND 2

#define STATUS_DONE 0
#define STATUS_OVERFLOW 1
#define STATUS_REFUSED 2

#define MAGIC 0x314e5754u

struct Cut {
    u32 n_chunks, nx, ny, nz, px, py, pz;
    u32 form;  // bits, kind, profile, components: a byte each
};

// How far it is from a value to the next one along x, y, z, and from one volume (profile 3) or plane
// (profile 2) to the next; in values.
struct Steps {
    u64 x, y, z, rest;
};

struct Job {
    u64 source, n;
    u32 tile0, tiles;
    Cut cut;
    u32 entry, rule;
    double bound, e, step, inv;
    u64 floor_bits;
    u32 kept, shift;
    u64 guess, bins;  // addresses, where the bound depends on the values
    Steps steps;
};

struct Entry {
    u64 start, align, limit, slot, sequence, record;
    u32 job0, jobs, how, head;
};

struct EncodeLaunch {
    u64 job_table, entry_table, status, totals, sums, steps, counts, ticket, doubt;
    u32 first_ticket, end_tile, jobs, entries, epoch, pass, first_tile, first_job, end_job;
    u32 tickets;
    Job inline_jobs[INLINE_JOBS];
    Entry inline_entries[INLINE_JOBS];
};

// What a job accumulates. Between calls all are 0 but the last two of u64, which are set anew.
struct Sum {
    u64 max_bits;  // the largest error, as the bits of a double
    double sum_sq;
    u64 outliers;
    u64 start;   // its address
    u64 stored;  // its bytes
    u32 done;    // its tiles that are done
    u32 unused[5];
};

// What is found out about a job's values, as the largest of numbers for which 0 stands for none.
struct Found {
    u64 high, low;  // the extremes, in the order of `rising`; the complement of the smallest
    u64 finite;     // finite values
    // The guesses of the bound that blocks have used, as bits; the complement of the smallest.
    u64 most_used, least_used;
    u64 unused[3];
};

// A job may be encoded twice in a call.
struct Tally {
    Sum first, second;
    Found found;
};

struct Step {
    double bound, e, step, inv;
};

struct Piece {
    u64 stream, stored, target, n;
    Cut cut;
    u32 tile0, tiles, dtype, zero;
    Steps steps;
};

struct DecodeLaunch {
    u64 slot, sequence, counts;
    u32 tiles, pieces;
    Piece piece[PIECES];
};

#ifdef EMULATED
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define BOUNDS
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
// So many registers that a multiprocessor holds this many blocks; what there is room for otherwise.
#ifdef LEAST_BLOCKS
#define BOUNDS __launch_bounds__(32 * WARPS, LEAST_BLOCKS)
#else
#define BOUNDS __launch_bounds__(32 * WARPS)
#endif

// A word for other blocks that says all by itself: nothing else is ordered with it.
DEVICE void publish(u64 *to, u64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

DEVICE u64 look_at(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// To the host, after everything of this thread and what it has seen.
DEVICE void store_for_host(u64 *to, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// 0 instead of a subnormal number.
DEVICE float without_subnormal(float x) {
    float same;
    asm("mul.ftz.f32 %0, %1, 0f3f800000;" : "=f"(same) : "f"(x));
    return same;
}

// The bytes that the selector says; 8 more stands for copies of a byte's sign.
DEVICE u32 permuted(u32 x, u32 selector) {
    u32 bytes;
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(bytes) : "r"(x), "r"(selector));
    return bytes;
}

DEVICE void pause() { __nanosleep(20); }
DEVICE void pause_long() { __nanosleep(200); }

// The address of shared memory for fetches.
typedef u32 Place;
DEVICE Place place_in_shared(u32 *to) { return (Place)__cvta_generic_to_shared(to); }

// To shared memory, `words` after a place, while the thread does something else.
DEVICE void fetch16(Place to, u32 words, const u32 *from) {
    u32 at = to + 4 * words;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

DEVICE void fetch4(Place to, u32 words, const u32 *from) {
    u32 at = to + 4 * words;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

// All that the thread has fetched is there.
DEVICE void wait_for_fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

// The form of all arrays of the launch where it is known when this is compiled; else 0.
#ifndef FORM
#define FORM 0u
#endif

// Whether all arrays have values of at most 32 bits and are encoded in one mode: chunks are fetched.
#if defined(MODE) && !WIDE
#define FETCHES 1
#else
#define FETCHES 0
#endif
#define EXACT (FETCHES && MODE == 0)
#define BOUNDED (FETCHES && MODE == 1)

#define ANY_KIND 0xffu  // in a form, of values that have the same bits

DEVICE u32 form_of(const Cut &cut) { return FORM ? FORM : cut.form; }
DEVICE u32 bits_of(const Cut &cut) { return form_of(cut) & 0xff; }
DEVICE u32 kind_of(const Cut &cut) {
    const bool known = FORM && (FORM >> 8 & 0xff) != ANY_KIND;
    return (known ? FORM : cut.form) >> 8 & 0xff;
}
DEVICE u32 profile_of(const Cut &cut) { return form_of(cut) >> 16 & 0xff; }
DEVICE u32 components_of(const Cut &cut) { return form_of(cut) >> 24; }

// Rounded up to a multiple of a power of two.
DEVICE u64 align_up(u64 number, u64 unit) { return (number + unit - 1) & ~(unit - 1); }

DEVICE u32 width_of(u32 x) { return 32 - __clz((int)x); }
DEVICE u32 width_of(u64 x) { return 64 - __clzll((i64)x); }

DEVICE u32 exclusive_sum(u32 mine, u32 lane) {
    u32 sum = mine;
    UNROLL for (u32 d = 1; d < 32; d <<= 1) {
        u32 other = __shfl_up_sync(ALL, sum, d);
        if (lane >= d) sum += other;
    }
    return sum - mine;
}

DEVICE u64 sum_of_warp(u64 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x += __shfl_xor_sync(ALL, x, d);
    return x;
}

DEVICE double sum_of_warp(double x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x = __dadd_rn(x, __shfl_xor_sync(ALL, x, d));
    return x;
}

DEVICE u64 max_of_warp(u64 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) {
        u64 other = __shfl_xor_sync(ALL, x, d);
        x = other > x ? other : x;
    }
    return x;
}

#if !defined(EMULATED) && __CUDA_ARCH__ < 800
DEVICE u32 sum_of_warp(u32 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x += __shfl_xor_sync(ALL, x, d);
    return x;
}
DEVICE u32 or_of_warp(u32 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x |= __shfl_xor_sync(ALL, x, d);
    return x;
}
DEVICE u32 max_of_warp(u32 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x = max(x, __shfl_xor_sync(ALL, x, d));
    return x;
}
DEVICE u32 min_of_warp(u32 x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x = min(x, __shfl_xor_sync(ALL, x, d));
    return x;
}
#else
DEVICE u32 sum_of_warp(u32 x) { return __reduce_add_sync(ALL, x); }
DEVICE u32 or_of_warp(u32 x) { return __reduce_or_sync(ALL, x); }
DEVICE u32 max_of_warp(u32 x) { return __reduce_max_sync(ALL, x); }
DEVICE u32 min_of_warp(u32 x) { return __reduce_min_sync(ALL, x); }
#endif

// The part of an array that a chunk holds.
struct Window {
    u64 base;     // index of its first value
    u32 m;        // values inside
    u32 wx, hy;   // columns and rows inside (profiles 2 and 3)
    u32 dz;       // planes inside (profile 3), else 1
    u32 form;
    u64 x, y, z;  // how far apart columns, rows and planes are
};

DEVICE u32 profile_of(const Window &w) { return (FORM ? FORM : w.form) >> 16 & 0xff; }
DEVICE u32 components_of(const Window &w) { return (FORM ? FORM : w.form) >> 24; }

DEVICE Window window_of(const Cut &cut, const Steps &steps, u64 n, u32 c) {
    Window w;
    w.form = form_of(cut);
    w.x = steps.x;
    w.y = steps.y;
    w.z = steps.z;
    w.dz = 1;
    if (profile_of(w) == 1) {
        w.base = (u64)c * 1024;
        w.m = n - w.base < 1024 ? (u32)(n - w.base) : 1024;
        w.wx = 32;
        w.hy = 32;
        return w;
    }
    u32 rest = c / cut.px, x = c - rest * cut.px, y = rest;
    // Most arrays of two dimensions are one plane.
    if (y < cut.py) {
        rest = 0;
    } else {
        rest /= cut.py;
        y -= rest * cut.py;
    }
    w.wx = min(32u, cut.nx - 32 * x);
    if (profile_of(w) == 2) {
        w.hy = min(32u, cut.ny - 32 * y);
        w.base = rest * steps.rest + 32 * y * w.y + 32 * x * w.x;
    } else {
        u32 z = rest;
        // Most of three dimensions are one volume.
        if (z < cut.pz) {
            rest = 0;
        } else {
            rest /= cut.pz;
            z -= rest * cut.pz;
        }
        w.hy = min(8u, cut.ny - 8 * y);
        w.dz = min(4u, cut.nz - 4 * z);
        w.base = rest * steps.rest + 4 * z * w.z + 8 * y * w.y + 32 * x * w.x;
    }
    w.m = w.wx * w.hy * w.dz;
    return w;
}

// Positions of a block that are inside: the first so many.
DEVICE u32 inside_of_block(const Window &w, u32 block) {
    if (profile_of(w) == 1) {
        u32 begin = 32 * block;
        return begin >= w.m ? 0 : min(32u, w.m - begin);
    }
    bool inside = profile_of(w) == 2 ? block < w.hy : (block >> 3) < w.dz && (block & 7) < w.hy;
    return inside ? w.wx : 0;
}

// The rows of a column of the chunk that are inside, as bits.
DEVICE u32 rows_inside(const Window &w, u32 column) {
    if (profile_of(w) == 1) return column < w.m ? ALL >> (32 - (w.m - column + 31) / 32) : 0;
    if (column >= w.wx) return 0;
    if (profile_of(w) == 2) return ALL >> (32 - w.hy);
    return ALL >> (32 - 8 * w.dz) & ((1u << w.hy) - 1) * 0x01010101u;
}

// The rows of a chunk: how far apart they are, and where the next plane is after eight of them
// (profile 3).
struct Rows {
    u64 row, plane;
};

DEVICE Rows rows_of(const Window &w) {
    Rows rows = {profile_of(w) == 1 ? 32 : w.y, profile_of(w) == 3 ? w.z - 8 * w.y : 0};
    return rows;
}

// Whether the values of a row lie apart, so that a lane takes a row and not a column: rows or planes
// are next to each other then.
DEVICE bool lie_apart(const Window &w) { return profile_of(w) != 1 && w.x != 1; }

// The offset of a row from the first.
DEVICE u64 offset_of(const Rows &rows, u32 row) { return row * rows.row + (row >> 3) * rows.plane; }

// Index in the array of the first value of a row (profiles 2 and 3).
DEVICE u64 row_of(const Window &w, u32 block) { return w.base + offset_of(rows_of(w), block); }

// Index in the array of a position that is inside.
DEVICE u64 index_of(const Window &w, u32 position) {
    if (profile_of(w) != 1) return row_of(w, position >> 5) + (position & 31) * w.x;
    if (components_of(w) == 1) return w.base + position;
    u32 half = w.m / 2;
    return w.base + (position < half ? 2 * position : 2 * (position - half) + 1);
}

DEVICE u32 raw_words(u32 m, u32 bits) { return 1 + (m * bits + 31) / 32; }

#ifdef EMULATED
// float16 to float32, exactly.
DEVICE float widen_f16(u32 b) {
    u32 sign = (b & 0x8000) << 16, exponent = b >> 10 & 31, mantissa = b & 0x3ff;
    if (exponent == 0) {
        float tiny = __fmul_rn(__int2float_rn((i32)mantissa), 5.9604644775390625e-8f);
        return __uint_as_float(__float_as_uint(tiny) | sign);
    }
    u32 wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
    return __uint_as_float(sign | wide | mantissa << 13);
}

// The bits of the float16 next to x, ties to even.
DEVICE u32 narrow_f16(float x) {
    u32 b = __float_as_uint(x), sign = b >> 16 & 0x8000;
    b &= 0x7fffffff;
    if (b >= 0x477ff000) return sign | 0x7c00;
    if (b < 0x38800000) {
        return sign | (u32)__float2int_rn(__fmul_rn(__uint_as_float(b), 16777216.0f));
    }
    b += 0xfff + (b >> 13 & 1);
    return sign | ((b >> 13) - (112 << 10));
}
#else
// The same by an instruction.
DEVICE float widen_f16(u32 b) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((u16)b));
    return x;
}

DEVICE u32 narrow_f16(float x) {
    u16 b;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(x));
    return b;
}
#endif

// The bits of the bfloat16 next to x, ties to even.
DEVICE u32 narrow_bf16(float x) {
    u32 b = __float_as_uint(x);
    return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

DEVICE float widen(u32 kind, u32 b) {
    return kind == KIND_F32 ? __uint_as_float(b)
                            : kind == KIND_F16 ? widen_f16(b) : __uint_as_float(b << 16);
}

DEVICE u32 narrow(u32 kind, float x) {
    if (kind == KIND_F32) return __float_as_uint(x);
    return kind == KIND_F16 ? narrow_f16(x) : narrow_bf16(x);
}

DEVICE u32 mantissa_of(u32 kind) {
    return kind == KIND_F16 ? 10 : kind == KIND_BF16 ? 7 : kind == KIND_F32 ? 23 : 52;
}

DEVICE u64 infinity_of(u32 kind) {
    return kind == KIND_F16 ? 0x7c00
                            : kind == KIND_BF16 ? 0x7f80
                                                : kind == KIND_F32 ? 0x7f800000
                                                                   : 0x7ff0000000000000ull;
}

// Bits of a whose positions have a bit in J change places with those of b that have none there.
template <int J>
DEVICE void exchange(u32 &a, u32 &b) {
    const u32 x = a, y = b;
    if (J >= 8) {
        a = __byte_perm(x, y, J == 16 ? 0x5410 : 0x6240);
        b = __byte_perm(x, y, J == 16 ? 0x7632 : 0x7351);
        return;
    }
    const u32 stay = J == 4 ? 0x0f0f0f0fu : J == 2 ? 0x33333333u : 0x55555555u;
    a = (x & stay) | (y << J & ~stay);
    b = (y & ~stay) | (x >> J & stay);
}

// N words of bits, in squares of N x N side by side: bit i of word p and bit p of word i of a
// square change places.
template <int J, int N>
DEVICE void transpose_from(u32 (&a)[N]) {
    UNROLL for (int k = 0; k < N; k++) {
        if (!(k & J)) exchange<J>(a[k], a[k | J]);
    }
    if constexpr (J > 1) transpose_from<J / 2, N>(a);
}

template <int N>
DEVICE void transpose(u32 (&a)[N]) {
    transpose_from<N / 2, N>(a);
}

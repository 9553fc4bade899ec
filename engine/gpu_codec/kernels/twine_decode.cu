// Decodes Twine streams. A warp has a chunk. Nothing that a stream says is used before it was
// compared with what the host knows of the array and of the length of the stream: whatever the
// bytes are, nothing outside of either is touched. docs/reference/twine.md lists what is refused.

#define HEADER_WORDS 16
#define MOST_OUTLIERS 256
#define MARK 0x80u

#if WIDE
typedef u64 Coeff;
#else
typedef u32 Coeff;
#endif

// Words that the descriptors and blocks of any chunk have at most.
template <typename U>
struct Room {
    enum { WORDS = 9 + 32 * (32 + 1) * (sizeof(U) / 4) + 7 };
};

struct Shared {
    u32 stage[WARPS][Room<Coeff>::WORDS];
    Piece piece;
    u32 header[HEADER_WORDS];
    u32 mode, shift;
    double step;
    u32 payload;
    u32 sound;
};

// A stream as far as it has been checked.
struct Stream {
    const u32 *payload;
    u32 mode, shift, kind, bits;
    double step;
};

DEVICE u64 header_u64(const u32 *header, u32 at) { return header[at] | (u64)header[at + 1] << 32; }

// Whether the header is that of this array, and the stream as long as it says.
DEVICE bool check_header(Shared &shared) {
    const Piece &piece = shared.piece;
    const Cut &cut = piece.cut;
    const u32 *h = shared.header;
    const u32 kind = kind_of(cut), mode = h[1] >> 16 & 0xff;
    u64 words = (u64)HEADER_WORDS + cut.n_chunks + 1 + h[13];
    bool same = h[0] == MAGIC && (h[1] & 0xff) == 1 && (h[1] >> 8 & 0xff) == piece.dtype &&
                h[1] >> 24 == profile_of(cut) && header_u64(h, 2) == piece.n &&
                h[9] == cut.n_chunks && h[10] == cut.nx && h[11] == cut.ny && h[12] == cut.nz &&
                piece.stored == 4 * words;
    double step = __longlong_as_double((i64)header_u64(h, 6));
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    if (mode == 1) {
        bool exact = kind == KIND_F64 || (double)(float)step == step;
        same = same && kind < KIND_SIGNED && step >= 0 && step < infinite && exact;
    } else if (mode == 2) {
        same = same && kind < KIND_SIGNED && h[8] <= mantissa_of(kind);
    } else {
        same = same && mode == 0;
    }
    shared.mode = mode;
    shared.step = step;
    shared.shift = mode == 2 ? mantissa_of(kind) - h[8] : 0;
    shared.payload = h[13];
    return same;
}

// The piece of this tile and its header; by the first warp.
DEVICE void take_piece(const DecodeLaunch &a, Shared &shared, u32 lane) {
    u32 number = 0;
    while (number + 1 < a.pieces && a.piece[number + 1].tile0 <= blockIdx.x) number++;
    const u32 *words = (const u32 *)&a.piece[number];
    if (lane < sizeof(Piece) / 4) ((u32 *)&shared.piece)[lane] = words[lane];
    __syncwarp();
    bool long_enough = shared.piece.stored >= 4 * (u64)(HEADER_WORDS + 1);
    if (lane < HEADER_WORDS) {
        shared.header[lane] = long_enough ? ((const u32 *)shared.piece.stream)[lane] : 0;
    }
    __syncwarp();
    if (lane == 0) shared.sound = long_enough && check_header(shared);
}

// ---- Blocks ------------------------------------------------------------------------------------

// Where a lane's block is, in words after the descriptors.
struct Block {
    u32 width, mark, at;
};

// Places of all blocks of kinds 0, 1 and 2, where the size of a sparse block is only known from its
// mask. False when they are not all inside. `total` is the number of their words.
DEVICE bool place_blocks(const u32 *stage, u32 words, Block &block, u32 &total, u32 lane) {
    const u32 dense = block.mark ? 0 : block.width;
    const u32 before = exclusive_sum(dense, lane);
    u32 sparse = __ballot_sync(ALL, block.mark != 0), extra = 0, own = 0;
    while (sparse) {
        const u32 other = __ffs((int)sparse) - 1;
        sparse &= sparse - 1;
        const u32 at = __shfl_sync(ALL, before, other) + extra;
        if (9 + at >= words) return false;
        const u32 count = __popc(stage[9 + at]);
        const u32 size = 1 + (count * __shfl_sync(ALL, block.width, other) + 31) / 32;
        extra += size;
        if (lane > other) own += size;
    }
    block.at = before + own;
    total = sum_of_warp(dense) + extra;
    return 9 + total <= words;
}

DEVICE void read_planes(u32 (&z)[32], const u32 *from, u32 width) {
    UNROLL for (u32 i = 0; i < 32; i++) z[i] = i < width ? from[i] : 0;
    transpose(z);
}

DEVICE void read_dense(u32 (&z)[32], const u32 *from, u32 width) { read_planes(z, from, width); }

DEVICE void read_dense(u64 (&z)[32], const u32 *from, u32 width) {
    u32 half[32];
    read_planes(half, from, min(width, 32u));
    UNROLL for (int i = 0; i < 32; i++) z[i] = half[i];
    if (width <= 32) return;
    read_planes(half, from + 32, width - 32);
    UNROLL for (int i = 0; i < 32; i++) z[i] |= (u64)half[i] << 32;
}

// `width` bits, at most 32, from bit `at` on.
DEVICE u32 bits_at(const u32 *from, u32 at, u32 width) {
    u32 word = at >> 5, shift = at & 31;
    u64 both = from[word];
    if (shift + width > 32) both |= (u64)from[word + 1] << 32;
    u32 mask = width == 32 ? ALL : (1u << width) - 1;
    return (u32)(both >> shift) & mask;
}

DEVICE void number_at(u32 &z, const u32 *from, u32 at, u32 width) { z = bits_at(from, at, width); }

DEVICE void number_at(u64 &z, const u32 *from, u32 at, u32 width) {
    z = bits_at(from, at, min(width, 32u));
    if (width > 32) z |= (u64)bits_at(from, at + 32, width - 32) << 32;
}

template <typename U>
DEVICE void read_sparse(U (&z)[32], const u32 *from, u32 width) {
    const u32 mask = from[0];
    u32 at = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        z[i] = 0;
        if (mask >> i & 1) {
            number_at(z[i], from + 1, at, width);
            at += width;
        }
    }
}

// ---- Back from residuals -----------------------------------------------------------------------

DEVICE u32 unzigzag(u32 z) { return z >> 1 ^ (0u - (z & 1)); }
DEVICE u64 unzigzag(u64 z) { return z >> 1 ^ (0ull - (z & 1)); }

// Sums within a lane, and in profile 1 through the whole chunk.
template <typename U>
DEVICE void sum_blocks(U (&q)[32], bool through, u32 lane) {
    UNROLL for (int i = 1; i < 32; i++) q[i] += q[i - 1];
    if (!through) return;
    U sum = q[31];
    UNROLL for (u32 d = 1; d < 32; d <<= 1) {
        U other = __shfl_up_sync(ALL, sum, d);
        if (lane >= d) sum += other;
    }
    sum -= q[31];
    UNROLL for (int i = 0; i < 32; i++) q[i] += sum;
}

// Sums along y, and in profile 3 along z, of a column of the chunk.
template <typename U>
DEVICE void sum_column(U (&q)[32], u32 profile, u32 times) {
    for (u32 t = 0; t < times; t++) {
        UNROLL for (int b = 1; b < 32; b++) {
            if (profile == 2 || (b & 7)) q[b] += q[b - 1];
        }
        if (profile == 3) {
            UNROLL for (int b = 8; b < 32; b++) q[b] += q[b - 8];
        }
    }
}

// The bits of the value of a coefficient: in mode 1, in mode 2, and of a float in mode 0.
DEVICE u32 stepped(u32 q, const Stream &s) {
    return narrow(s.kind, __fmul_rn(__int2float_rn((i32)q), (float)s.step));
}

DEVICE u64 stepped(u64 q, const Stream &s) {
    return (u64)__double_as_longlong(__dmul_rn(__ll2double_rn((i64)q), s.step));
}

DEVICE u32 relative(u32 q, const Stream &s) {
    bool negative = (i32)q < 0;
    u32 code = negative ? 0u - q : q;
    return code << s.shift | (negative ? 1u << (s.bits - 1) : 0);
}

DEVICE u64 relative(u64 q, const Stream &s) {
    bool negative = (i64)q < 0;
    u64 code = negative ? 0ull - q : q;
    return code << s.shift | (negative ? 1ull << 63 : 0);
}

DEVICE u32 unordered(u32 q, const Stream &s) {
    const u32 top = 1u << (s.bits - 1);
    return q & top ? q ^ (top - 1) : q;
}

DEVICE u64 unordered(u64 q, const Stream &) {
    const u64 top = 1ull << 63;
    return q & top ? q ^ (top - 1) : q;
}

// Replaces coefficients by the bits of their values. The mode is asked for once, not for each.
template <typename U>
DEVICE void values_of(U (&q)[32], const Stream &s) {
    if (s.mode == 1) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = stepped(q[i], s);
    } else if (s.mode == 2) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = relative(q[i], s);
    } else if (s.kind < KIND_SIGNED) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = unordered(q[i], s);
    }
}

// The bits of a value from what FOR packed.
DEVICE u32 unframed(u32 u, const Stream &s) {
    const u32 top = 1u << (s.bits - 1), mask = top | (top - 1);
    if (s.kind == KIND_SIGNED) return u ^ top;
    if (s.kind > KIND_SIGNED) return u;
    u &= mask;
    return u >> 1 | (u & 1 ? top : 0);
}

DEVICE u64 unframed(u64 u, const Stream &s) {
    if (s.kind == KIND_SIGNED) return u ^ 1ull << 63;
    if (s.kind > KIND_SIGNED) return u;
    return u >> 1 | u << 63;
}

// ---- Out ---------------------------------------------------------------------------------------

DEVICE void write_value(u64 target, u32 bits, u64 index, u64 value) {
    switch (bits) {
        case 8: ((u8 *)target)[index] = (u8)value; break;
        case 16: ((u16 *)target)[index] = (u16)value; break;
        case 32: __stcs((u32 *)target + index, (u32)value); break;
        default: __stcs((u64 *)target + index, value);
    }
}

// Writes the values inside of a chunk of which a lane has a column.
template <bool FULL, typename T, typename U>
DEVICE void write_column(T *to, const U (&q)[32], const Window &w, u32 lane) {
    const Rows rows = rows_of(w);
    const u32 inside = rows_inside(w, lane);
    to += w.base + lane;
    UNROLL for (u32 b = 0; b < 32; b++) {
        if (FULL || inside >> b & 1) __stcs(to, (T)q[b]);
        to += rows.row + ((b & 7) == 7 ? rows.plane : 0);
    }
}

template <typename T, typename U>
DEVICE void write_columns(u64 target, const U (&q)[32], const Window &w, u32 lane) {
    if (w.m == 1024) return write_column<true>((T *)target, q, w, lane);
    write_column<false>((T *)target, q, w, lane);
}

// The same of complex values, whose real parts are in the first half of the positions inside.
template <typename T, typename U>
DEVICE void write_parts(u64 target, const U (&q)[32], const Window &w, u32 lane) {
    T *to = (T *)target + w.base;
    const u32 half = w.m / 2;
    UNROLL for (u32 b = 0; b < 32; b++) {
        const u32 position = 32 * b + lane;
        const u32 index = position < half ? 2 * position : 2 * (position - half) + 1;
        if (position < w.m) to[index] = (T)q[b];
    }
}

// The same of a chunk whose rows lie next to each other: a lane has a column of it, and writes a
// row.
template <typename T, typename U>
DEVICE void write_rows(u64 target, U *grid, const U (&q)[32], const Window &w, u32 lane) {
    __syncwarp();
    UNROLL for (u32 b = 0; b < 32; b++) grid[b * STRIDE + lane] = q[b];
    __syncwarp();
    T *to = (T *)target + row_of(w, lane);
    const u64 step = w.x;
    const u32 inside = inside_of_block(w, lane);
    UNROLL8 for (u32 i = 0; i < 32; i++) {
        if (i < inside) to[i * step] = (T)grid[lane * STRIDE + i];
    }
}

template <typename T, typename U>
DEVICE void write_values_of(u64 target, u32 *stage, const U (&q)[32], const Window &w, u32 lane) {
    if (components_of(w) != 1) return write_parts<T>(target, q, w, lane);
    if (lie_apart(w)) return write_rows<T>(target, (U *)stage, q, w, lane);
    write_columns<T>(target, q, w, lane);
}

// What is in `stage` is not needed any more.
template <typename U>
DEVICE void write_values(u32 *stage, const U (&q)[32], const Window &w, const Stream &s, u64 target,
                         u32 lane) {
    if (sizeof(U) == 8) return write_values_of<u64>(target, stage, q, w, lane);
    switch (s.bits) {
        case 8: return write_values_of<u8>(target, stage, q, w, lane);
        case 16: return write_values_of<u16>(target, stage, q, w, lane);
        default: return write_values_of<u32>(target, stage, q, w, lane);
    }
}

// A value of those of a chunk that are stored as they are.
DEVICE void raw_value(u32 &value, const u32 *from, u32 rank, u32 bits) {
    const u32 bit = rank * bits;
    value = __ldcs(from + (bit >> 5)) >> (bit & 31);
}

DEVICE void raw_value(u64 &value, const u32 *from, u32 rank, u32) {
    value = __ldcs(from + 2 * rank) | (u64)__ldcs(from + 2 * rank + 1) << 32;
}

template <typename U>
DEVICE void read_raw(U (&q)[32], const u32 *from, const Window &w, const Stream &s, u32 lane) {
    const u32 rows = rows_inside(w, lane), begun = rows_inside(w, 0);
    u32 rank = lane;
    UNROLL for (int b = 0; b < 32; b++) {
        q[b] = 0;
        if (rows >> b & 1) raw_value(q[b], from, rank, s.bits);
        rank += begun >> b & 1 ? w.wx : 0;
    }
}

// How many values of a chunk are not from coefficients, and the words of their positions.
struct Outliers {
    const u32 *from;
    u32 count;
};

// Writes the outliers over what is there. False when a position is not inside or does not ascend.
template <typename U>
DEVICE bool write_outliers(const Outliers &all, const Window &w, const Stream &s, u64 target,
                           u32 lane) {
    const u32 *from = all.from, count = all.count;
    const u32 *values = from + (count + 1) / 2;
    bool good = true;
    for (u32 k = lane; k < count; k += 32) {
        u32 position = from[k / 2] >> (k & 1 ? 16 : 0) & 0xffff;
        u32 before = k ? from[(k - 1) / 2] >> ((k - 1) & 1 ? 16 : 0) & 0xffff : 0;
        bool inside = position < 1024 && (position & 31) < inside_of_block(w, position >> 5);
        if (!inside || (k && before >= position)) {
            good = false;
            continue;
        }
        u64 value = sizeof(U) == 8 ? values[2 * k] | (u64)values[2 * k + 1] << 32 : values[k];
        write_value(target, s.bits, index_of(w, position), value);
    }
    return __all_sync(ALL, good);
}

// ---- A chunk -----------------------------------------------------------------------------------

// Takes words into shared memory, with so many loads under way that a chunk within a bound takes
// one turn.
DEVICE void take_words(u32 *stage, const u32 *from, u32 words, u32 lane) {
    const u32 loads = 16;
    UNROLL1 for (u32 begin = lane; begin < words; begin += 32 * loads) {
        u32 some[loads];
        UNROLL for (u32 j = 0; j < loads; j++) {
            some[j] = begin + 32 * j < words ? from[begin + 32 * j] : 0;
        }
        UNROLL for (u32 j = 0; j < loads; j++) {
            if (begin + 32 * j < words) stage[begin + 32 * j] = some[j];
        }
    }
}

// The values of a coded chunk, of which a lane has a column. False when it breaks a rule.
template <typename U>
DEVICE bool read_coded(U (&q)[32], u32 *stage, const u32 *from, u32 words, const Window &w,
                       const Stream &s, Outliers &all, u32 lane) {
    const u32 kind = from[0] & 0xffff, outliers = from[0] >> 16;
    const u32 per = s.bits == 64 ? 2 : 1;
    const u32 coefficient = s.mode == 0 ? s.bits : 8 * sizeof(U);
    if (words < 9 || outliers > (s.mode ? MOST_OUTLIERS : 0)) return false;
    if (kind > 2 && !(kind == 5 && s.mode == 0)) return false;
    take_words(stage, from, min(words, (u32)Room<U>::WORDS), lane);
    __syncwarp();
    const u32 descriptor = stage[1 + (lane >> 2)] >> 8 * (lane & 3) & 0xff;
    Block block = {descriptor & ~MARK, descriptor & MARK, 0};
    bool good = block.width <= coefficient;
    good = good && (kind == 5 ? block.mark || !descriptor : !block.mark || block.width);
    if (!__all_sync(ALL, good)) return false;
    u32 total;
    if (kind == 5) {
        u32 size = block.mark ? block.width + per : 0;
        block.at = exclusive_sum(size, lane);
        total = sum_of_warp(size);
        if (9 + total > words) return false;
    } else if (!place_blocks(stage, words, block, total, lane)) {
        return false;
    }
    if (9 + total + (outliers + 1) / 2 + outliers * per != words) return false;
    all.from = from + 9 + total;
    all.count = outliers;
    const u32 *own = stage + 9 + block.at;
    if (kind == 5) {
        U least = 0;
        if (block.mark) {
            least = sizeof(U) == 8 ? (U)(own[0] | (u64)own[1] << 32) : (U)own[0];
            own += per;
        }
        read_dense(q, own, block.width);
        UNROLL for (int i = 0; i < 32; i++) q[i] = unframed((U)(q[i] + least), s);
    } else {
        if (block.mark) {
            read_sparse(q, own, block.width);
        } else {
            read_dense(q, own, block.width);
        }
        UNROLL for (int i = 0; i < 32; i++) q[i] = unzigzag(q[i]);
        for (u32 t = 0; t < kind; t++) sum_blocks(q, profile_of(w) == 1, lane);
    }
    __syncwarp();
    U *grid = (U *)stage;
    UNROLL for (int i = 0; i < 32; i++) grid[lane * STRIDE + i] = q[i];
    __syncwarp();
    UNROLL for (int b = 0; b < 32; b++) q[b] = grid[b * STRIDE + lane];
    if (profile_of(w) != 1 && kind != 5) sum_column(q, profile_of(w), kind);
    if (kind != 5) values_of(q, s);
    return true;
}

// Decodes a chunk of `words` words, all of which can be read. False when it breaks a rule. All
// kinds of chunks share one call that writes values: that is most of the kernel's code.
template <typename U>
DEVICE bool decode_values(u32 *stage, const u32 *from, u32 words, const Window &w, const Stream &s,
                          u64 target, u32 lane) {
    const u32 first = words ? from[0] : 0, per = sizeof(U) / 4;
    Outliers all = {from, 0};
    U q[32];
    if (words == 0 || first == 4) {
        if (words != 0 && words != 1 + per) return false;
        u64 value = words ? from[1] | (per == 2 ? (u64)from[2] << 32 : 0) : 0;
        UNROLL for (int b = 0; b < 32; b++) q[b] = (U)value;
    } else if (first == 3) {
        if (words != raw_words(w.m, s.bits)) return false;
        read_raw(q, from + 1, w, s, lane);
    } else if (!read_coded(q, stage, from, words, w, s, all, lane)) {
        return false;
    }
    write_values(stage, q, w, s, target, lane);
    if (all.count == 0) return true;
    __syncwarp();
    return write_outliers<U>(all, w, s, target, lane);
}

DEVICE bool decode_chunk(u32 *stage, const u32 *from, u32 words, const Window &w, const Stream &s,
                         u64 target, u32 lane) {
#if WIDE
    if (s.bits == 64) return decode_values<u64>(stage, from, words, w, s, target, lane);
#endif
    return decode_values<u32>(stage, from, words, w, s, target, lane);
}

// The chunk that is decoded as number i. Where planes are next to each other in memory, chunks come
// in the order of planes: what each writes of a sector goes to memory together.
DEVICE u32 chunk_of(const Piece &piece, u32 i) {
    const Cut &cut = piece.cut;
    if (profile_of(cut) != 3 || piece.steps.z != 1) return i;
    const u32 plane = cut.px * cut.py, volume = plane * cut.pz;
    const u32 before = i / volume * volume, j = i - before;
    return before + j % cut.pz * plane + j / cut.pz;
}

// The part of the piece that a warp has. False when it breaks a rule.
DEVICE bool decode_part(Shared &shared, u32 warp, u32 lane) {
    const Piece &piece = shared.piece;
    const u32 i = (blockIdx.x - piece.tile0) * WARPS + warp;
    const u32 *table = (const u32 *)piece.stream + HEADER_WORDS;
    if (i == 0 && table[0] != 0) return false;
    if (piece.cut.n_chunks == 0) return shared.payload == 0;
    if (i >= piece.cut.n_chunks) return true;
    const u32 c = chunk_of(piece, i);
    const u32 begin = table[c], end = table[c + 1];
    bool last = c + 1 == piece.cut.n_chunks;
    if (begin > end || end > shared.payload || (last && end != shared.payload)) return false;
    Stream s;
    s.payload = table + piece.cut.n_chunks + 1;
    s.mode = shared.mode;
    s.shift = shared.shift;
    s.kind = kind_of(piece.cut);
    s.bits = bits_of(piece.cut);
    s.step = shared.step;
    const Window w = window_of(piece.cut, piece.steps, piece.n, c);
    u32 *stage = shared.stage[warp];
    return decode_chunk(stage, s.payload + begin, end - begin, w, s, piece.target, lane);
}

// Counts the tile as done; the last one reports.
DEVICE void end_tile(const DecodeLaunch &a, bool good) {
    u32 *done = (u32 *)a.counts, *damaged = done + 1;
    if (!good) atomicAdd(damaged, 1u);
    __threadfence();
    if (atomicAdd(done, 1u) + 1 != a.tiles) return;
    __threadfence();
    u64 *slot = (u64 *)a.slot;
    slot[1] = *(volatile u32 *)damaged ? STATUS_REFUSED : STATUS_DONE;
    slot[2] = 0;
    slot[3] = 0;
    *(volatile u32 *)damaged = 0;
    *(volatile u32 *)done = 0;
    __threadfence_system();
    store_for_host(slot, a.sequence);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
twine_decode(const __grid_constant__ DecodeLaunch a) {
    __shared__ Shared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (warp == 0) take_piece(a, shared, lane);
    __syncthreads();
    bool good = shared.sound && decode_part(shared, warp, lane);
    bool all_good = __syncthreads_and(good);
    if (threadIdx.x == 0) end_tile(a, all_good);
}

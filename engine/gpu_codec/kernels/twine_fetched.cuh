// Chunks of values of at most 32 bits in modes 0 and 1, in a launch for one form and one of them.
// Residuals of both kinds stay in registers while the narrowest is chosen. Numbers of few bits lie
// side by side in words before they get their zig-zag form and are cut into planes. All chunks go
// this way, full or not: what warps run at once has to fit the memory for instructions. A launch
// for all forms gives the same bytes.

// What a lane knows of the errors of the job's chunks; the sum of their squares in units of
// 2^8 / scale^2, for that of a chunk is up to 2^123. With one chunk single precision is enough.
#if ONCE
typedef float ErrorSum;
#else
typedef double ErrorSum;
#endif
struct LaneErrors {
    float largest;
    ErrorSum sum;
};

#if !FETCHES
DEVICE void keep_lane_errors(Shared &, LaneErrors &, u32, u32) {}
#else
// ---- Numbers -----------------------------------------------------------------------------------

#define BITS (FORM & 0xff)
// In mode 0 numbers are shifted up, so that they wrap as those of fewer bits do.
#define CUT (EXACT ? 32 - BITS : 0)

// The extremes of residuals, and 0.
struct Extent {
    i32 least, most;
};

// With two more: some devices find the least of three at once.
DEVICE void extend(Extent &own, u32 a, u32 b) {
    own.least = min(own.least, min((i32)a, (i32)b));
    own.most = max(own.most, max((i32)a, (i32)b));
}

// The width of the widest in its zig-zag form.
DEVICE u32 width_of(const Extent &own) {
    return own.least | own.most ? 1 + width_of((u32)max(own.most, ~own.least) >> CUT) : 0;
}

// What makes numbers of a kind's bits: of floats, those below the sign change with it, and FOR
// takes the sign last; FOR takes signed numbers with their first bit the other way.
struct Order {
    bool is_float;
    u32 flip, other;

    // A coefficient, from the bits of a value in mode 0; in mode 1 it is one already.
    DEVICE_MEMBER u32 coefficient(u32 x) const {
        if (!EXACT) return x;
        const u32 top = x << CUT;
        return top ^ ((u32)((i32)top >> 31) & flip);
    }

    // What FOR packs.
    DEVICE_MEMBER u32 framed(u32 b) const {
        return is_float ? (b << 1 | b >> (BITS - 1)) & ALL >> (32 - BITS) : b ^ other;
    }
};

DEVICE Order order_of(u32 kind) {
    const bool is_float = kind < KIND_SIGNED;
    Order order = {is_float, is_float ? 0x7fffffffu & ALL << CUT : 0,
                   kind == KIND_SIGNED ? 1u << (BITS - 1) : 0};
    return order;
}

// Goes through a lane's coefficients, from the first to the last.
template <int PROFILE>
struct LaneWalker {
    // Of the coefficient before: itself and L.
    u32 q1, d1;
    // -1 where there is a row above, or a plane before.
    u32 row, plane;

    DEVICE_MEMBER void begin(u32 last, u32 other, u32 lane) {
        q1 = d1 = 0;
        if (PROFILE == 1) {
            last = __shfl_up_sync(ALL, last, 1);
            other = __shfl_up_sync(ALL, other, 1);
            q1 = lane ? last : 0;
            d1 = lane ? last - other : 0;
        }
        row = (PROFILE == 3 ? lane & 7 : lane) ? ALL : 0;
        plane = lane >= 8 ? ALL : 0;
    }

    DEVICE_MEMBER u32 across(u32 d) const {
        if (PROFILE == 1) return d;
        d += __shfl_up_sync(ALL, d, 1) * row;
        return PROFILE == 3 ? __shfl_up_sync(ALL, d, 8) * plane + d : d;
    }

    DEVICE_MEMBER void next(u32 q, u32 &once, u32 &twice) {
        once = across(q - q1);
        twice = across(once - d1);
        q1 = q;
        d1 = once;
    }
};

// The widths of a lane's block in each kind, and what FOR takes off, which is in mode 0 alone.
struct LaneWidths {
    u32 widths[3], frame, least;
    bool is_one;  // all values are the same
};

// Replaces values, or coefficients in mode 1, by their residuals once, and gives those of L twice.
// Both are 0 outside of a chunk that is not full.
template <int PROFILE, bool FULL>
DEVICE LaneWidths lane_residuals(u32 (&x)[32], u32 (&twice)[32], const Order &order, u32 inside,
                                 u32 lane) {
    LaneWalker<PROFILE> walker;
    walker.begin(order.coefficient(x[31]), order.coefficient(x[30]), lane);
    Extent all[3] = {{0, 0}, {0, 0}, {0, 0}};
    u32 least = ALL, most = 0;
    UNROLL for (u32 i = 0; i < 32; i += 2) {
        const bool inner[2] = {FULL || i < inside, FULL || i + 1 < inside};
        if (EXACT) {
            const u32 u = order.framed(x[i]), v = order.framed(x[i + 1]);
            least = min(least, min(inner[0] ? u : ALL, inner[1] ? v : ALL));
            most = max(most, max(inner[0] ? u : 0, inner[1] ? v : 0));
        }
        const u32 q[2] = {order.coefficient(x[i]), order.coefficient(x[i + 1])};
        UNROLL for (u32 j = 0; j < 2; j++) {
            walker.next(q[j], x[i + j], twice[i + j]);
            if (!FULL) {
                x[i + j] = inner[j] ? x[i + j] : 0;
                twice[i + j] = inner[j] ? twice[i + j] : 0;
            }
        }
        extend(all[0], q[0], q[1]);
        extend(all[1], x[i], x[i + 1]);
        extend(all[2], twice[i], twice[i + 1]);
    }
    least = FULL || inside ? least : 0;
    LaneWidths found = {{width_of(all[0]), width_of(all[1]), width_of(all[2])},
                        width_of(most - least), least, most == least};
    return found;
}

// Words of the block of FOR.
DEVICE u32 frame_words(const LaneWidths &found) {
    return found.is_one && found.least == 0 ? 0 : found.frame + 1;
}

// A kind of a chunk, the width of the lane's block in it, and the words of its blocks if none is
// sparse.
struct Choice {
    u32 kind, width, words;
};

DEVICE Choice choose_kind(const LaneWidths &found) {
    // Up to 1024 each, and 1056 with FOR.
    const u32 sums = sum_of_warp(found.widths[0] | found.widths[1] << 16);
    const u32 others = sum_of_warp(found.widths[2] | (EXACT ? frame_words(found) << 16 : 0));
    Choice best = {0, found.widths[0], sums & 0xffff};
    const u32 once = sums >> 16, twice = others & 0xffff, frame = others >> 16;
    if (once < best.words) best.kind = 1, best.words = once, best.width = found.widths[1];
    if (twice < best.words) best.kind = 2, best.words = twice, best.width = found.widths[2];
    if (EXACT && frame < best.words) best.kind = 5, best.words = frame, best.width = found.frame;
    return best;
}

// ---- Words -------------------------------------------------------------------------------------

// What becomes of a chunk, besides its numbers.
struct Coding {
    Choice choice;
    u32 least;      // what FOR takes off
    bool is_empty;  // whether that leaves a block of the lane without words
    u32 outliers;
};

// The lower N bits of numbers side by side: number k + j N is part j of word k.
template <int N>
DEVICE void parts_of(const u32 (&x)[32], u32 (&parts)[N]) {
    UNROLL for (int k = 0; k < N; k++) {
        if (N == 32) {
            parts[k] = x[k];
        } else if (N == 16) {
            parts[k] = __byte_perm(x[k], x[k + 16 & 31], 0x5410);
        } else {
            const u32 low = __byte_perm(x[k], x[k + 8 & 31], 0x0040);
            const u32 high = __byte_perm(x[k + 16 & 31], x[k + 24 & 31], 0x0040);
            parts[k] = __byte_perm(low, high, 0x5410);
        }
    }
}

// Residuals of N bits each, side by side, in their zig-zag form.
template <int N>
DEVICE void zigzag_parts(u32 (&parts)[N]) {
    const u32 lowest = N == 8 ? 0x01010101u : N == 16 ? 0x00010001u : 1u;
    UNROLL for (int k = 0; k < N; k++) {
        const u32 p = parts[k];
        // Copies of the sign of each part.
        const u32 sign = N == 32 ? (u32)((i32)p >> 31) : permuted(p, N == 8 ? 0xba98 : 0xbb99);
        parts[k] = (p << 1 & ~lowest) ^ sign;
    }
}

// The chunk in shared memory, of numbers that have at most N bits; gives its words, or 0 if those
// are no fewer than of the chunk as it is.
template <int N>
DEVICE u32 write_numbers(u32 *stage, const u32 (&x)[32], const Coding &own, u32 most, u32 lane,
                         u32 &block_words) {
    const bool frame = EXACT && own.choice.kind == 5;
    const u32 width = own.choice.width;
    u32 parts[N], planes[N], mask = 0;
    parts_of<N>(x, parts);
    if (!frame) zigzag_parts<N>(parts);
    UNROLL for (int k = 0; k < N; k++) planes[k] = parts[k];
    transpose(planes);
    UNROLL for (int k = 0; k < N; k++) mask |= planes[k];
    const u32 coded = frame ? own.is_empty ? 0 : width + 1 : cost_of(width, __popc(mask)).words;
    const u32 before = exclusive_sum(coded, lane);
    block_words = 9 + __shfl_sync(ALL, before + coded, 31);
    const u32 words = block_words + (own.outliers + 1) / 2 + own.outliers;
    if (words >= most) return 0;
    const bool sparse = !frame && coded < width, some = frame && coded != 0;
    write_head(stage, own.choice.kind, own.outliers, width | (sparse || some ? 0x80u : 0), lane);
    u32 *to = stage + 9 + before;
    if (some) *to++ = own.least;
    const u32 dense = sparse ? 0 : width;
    UNROLL for (u32 i = 0; i < N; i++) {
        if (i < dense) to[i] = planes[i];
    }
    if (sparse) {
        to[0] = mask;
        write_sparse_parts<N>(to + 1, parts, mask, width);
    }
    return words;
}

DEVICE u32 write_coded(u32 *stage, const u32 (&x)[32], const Coding &own, u32 most, u32 lane,
                       u32 &block_words) {
    const u32 width = own.choice.width;
    if ((EXACT && BITS <= 8) || __all_sync(ALL, width <= 8)) {
        return write_numbers<8>(stage, x, own, most, lane, block_words);
    }
    if ((EXACT && BITS <= 16) || __all_sync(ALL, width <= 16)) {
        return write_numbers<16>(stage, x, own, most, lane, block_words);
    }
    return write_numbers<32>(stage, x, own, most, lane, block_words);
}

// ---- A chunk -----------------------------------------------------------------------------------

// What quantising a lane's values has found.
struct LaneValues {
    FloatErrors errors;
    u32 bad;       // values that are outliers
    u32 outliers;  // of the chunk
};

// Adds the errors of a chunk.
DEVICE void note_lane_errors(LaneErrors &errors, const FloatErrors &found) {
    errors.largest = fmaxf(errors.largest, found.largest);
    errors.sum += __fmul_rn(found.sum, 0x1p-8f);
}

// Adds the errors of a lane to those of the warp.
DEVICE void keep_lane_errors(Shared &shared, LaneErrors &own, u32 warp, u32 lane) {
    if (!BOUNDED) return;
    const u32 most = max_of_warp(__float_as_uint(own.largest));
    const double sum = sum_of_warp((double)own.sum);
    own.largest = 0;
    own.sum = 0;
    if (lane != 0 || most == 0) return;
    const Step32 step = narrow_step(shared.step);
    const double scale = scale_of(step), largest = __uint_as_float(most);
    // 1 / scale: the step is nearly that of its inverse, and a division takes long.
    double unit = step.inv < 0x1p60f ? step.step * 0x1p-60 : 0x1p-120;
    unit *= 2 - scale * unit;
    shared.max_bits[warp] = max(shared.max_bits[warp], (u64)__double_as_longlong(largest));
    shared.sum_sq[warp] += sum * 0x1p8 * unit * unit;
}

// Replaces values by coefficients.
DEVICE LaneValues quantise_lane(u32 (&x)[32], float most, const u32 *mine, u32 kind,
                                const Step32 &step, u32 inside) {
    LaneValues own = {{0, 0}, 0, 0};
    const float scale = scale_of(step);
    const bool whole = quantise_whole(x, most, own.errors, kind, step, scale);
    if (__all_sync(ALL, whole)) return own;
    if (!whole) own.bad = quantise_some(x, mine, own.errors, kind, step, scale);
    if (inside < 32) own.bad &= (1u << inside) - 1;
    own.outliers = sum_of_warp((u32)__popc(own.bad));
    return own;
}

// The same, if it is coded within a bound.
DEVICE void note_errors_of(Shared &shared, LaneErrors &errors, const LaneValues &own,
                           const Step32 &step, u32 warp, u32 lane) {
    if (!BOUNDED) return;
    const float scale = scale_of(step);
    if (!__any_sync(ALL, vanishes(own.errors, scale))) return note_lane_errors(errors, own.errors);
    const Job &job = shared.job;
    const Window &w = shared.windows[warp];
    const u32 inside = inside_of_block(w, lane), all = inside ? ALL >> (32 - inside) : 0;
    // What was fetched may have been overwritten.
    const auto read = [&](u32 i) { return (u32)read_value(job, index_of(w, 32 * lane + i)); };
    const u32 coded = all & ~own.bad, kind = kind_of(job.cut);
    keep_errors(shared, errors_of(own.errors, coded, kind, step, scale, read), 0, warp, lane);
}

// Whether all values of a chunk have the same bits.
DEVICE bool are_same(const u32 *stage, u32 inside, u32 lane) {
    const u32 first = stage[0], *mine = stage + FETCHED_STRIDE * lane;
    u32 differ = 0;
    UNROLL8 for (u32 i = 0; i < 32; i++) differ |= i < inside ? mine[i] ^ first : 0;
    return !__any_sync(ALL, differ != 0);
}

// The numbers of kinds 0 and 5, from the values.
DEVICE void numbers_from(u32 (&x)[32], const u32 *stage, const Job &job, u32 kind, u32 least,
                         const Step32 &step, u32 bad, u32 inside, u32 lane) {
    // Read again, or each value would keep a register from the first time on.
    __syncwarp();
    read_fetched(stage, x, lane);
    const u32 type = kind_of(job.cut);
    const Order order = order_of(type);
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (BOUNDED) {
            x[i] = (u32)__float2int_rn(__fmul_rn(widen(type, x[i]), step.inv));
        } else if (kind == 5) {
            x[i] = i < inside ? order.framed(x[i]) - least : 0;
        } else {
            x[i] = order.coefficient(x[i]);
        }
    }
    if (!BOUNDED || bad == 0) return;
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (bad >> i & 1) x[i] = 0;
    }
}

// The residuals of a chunk, and how wide they are.
DEVICE LaneWidths residuals_of(u32 (&x)[32], u32 (&twice)[32], const Order &order, const Window &w,
                               u32 inside, u32 lane) {
    const int profile = FORM >> 16 & 0xff;
    if (w.m == 1024) return lane_residuals<profile, true>(x, twice, order, 32, lane);
    return lane_residuals<profile, false>(x, twice, order, inside, lane);
}

// Whether all values of a chunk are the same.
DEVICE bool is_constant(const LaneWidths &found, const Order &order, const u32 *stage, u32 inside,
                        u32 lane) {
    if (EXACT) {
        const bool is_first = found.is_one && found.least == order.framed(stage[0]);
        return __all_sync(ALL, is_first || inside == 0);
    }
    // With the first coefficient alone all are the same, and perhaps the values are.
    return __all_sync(ALL, lane == 0 || found.widths[1] == 0) && are_same(stage, inside, lane);
}

// From coefficients, or values in mode 0, to the words of a chunk in shared memory; gives their
// number.
DEVICE u32 encode_numbers(Shared &shared, LaneErrors &errors, u32 (&x)[32], const LaneValues &own,
                          const Step32 &step, u32 inside, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const Window &w = shared.windows[warp];
    u32 *stage = shared.stage[warp];
    u32 twice[32], block_words;
    const Order order = order_of(kind_of(job.cut));
    const LaneWidths found = residuals_of(x, twice, order, w, inside, lane);
    if (is_constant(found, order, stage, inside, lane)) {
        return stage_constant(stage, stage[0], BITS, lane);
    }
    if (BOUNDED && lane == 0) shared.outliers[warp] += own.outliers;
    const Choice choice = choose_kind(found);
    if (BOUNDED && (choice.words | own.outliers) == 0) {
        note_errors_of(shared, errors, own, step, warp, lane);
        return 0;
    }
    if (choice.kind == 2) {
        UNROLL for (int i = 0; i < 32; i++) x[i] = twice[i];
    } else if (choice.kind != 1) {
        numbers_from(x, stage, job, choice.kind, found.least, step, own.bad, inside, lane);
    }
    if (CUT && choice.kind != 5) {
        UNROLL for (int i = 0; i < 32; i++) x[i] = (u32)((i32)x[i] >> CUT);
    }
    const bool is_empty = found.is_one && found.least == 0;
    const Coding coding = {choice, found.least, is_empty, own.outliers};
    const u32 most = own.outliers > 256 ? 0 : raw_words(w.m, BITS);
    const u32 words = write_coded(stage, x, coding, most, lane, block_words);
    if (words == 0) return stage_raw(stage, job, w, lane);
    if (own.outliers) {
        const u32 before = exclusive_sum(__popc(own.bad), lane);
        write_outliers<u32>(stage + block_words, own.outliers, before, own.bad, lane, job, w);
    }
    note_errors_of(shared, errors, own, step, warp, lane);
    __syncwarp();
    return words;
}

// Encodes a chunk that was fetched, in shared memory; gives its words.
DEVICE u32 encode_fetched(Shared &shared, LaneErrors &errors, u32 warp, u32 lane) {
    const u32 kind = kind_of(shared.job.cut);
    const u32 *mine = shared.stage[warp] + FETCHED_STRIDE * lane;
    const u32 inside = inside_of_block(shared.windows[warp], lane);
    u32 x[32];
    read_fetched(shared.stage[warp], x, lane);
    if (BOUNDED) {
        UNROLL for (int i = 0; i < 32; i++) x[i] = __float_as_uint(widen(kind, x[i]));
    }
    const Largest largest = largest_of(x);
    const bool has_some = __any_sync(ALL, largest.bits != 0);
#if MEASURES
    if (shared.work == WORK_MEASURE) {
        measure_staged(shared, mine, inside, warp, lane);
        return 0;
    }
    if (!has_some && measures(shared)) measure_zeros(shared, shared.windows[warp].m, warp, lane);
#endif
    if (!has_some) return 0;
    LaneValues own = {{0, 0}, 0, 0};
    Step32 step = {0, 0, 0};
    if (BOUNDED) {
        step = narrow_step(shared.step);
        own = quantise_lane(x, largest.magnitude, mine, kind, step, inside);
    }
#if MEASURES
    const bool finite = own.outliers == 0;
    if (measures(shared)) measure_fetched(shared, finite, largest.magnitude, inside, warp, lane);
#endif
    return encode_numbers(shared, errors, x, own, step, inside, warp, lane);
}
#endif

// Chunks of float32 in modes 0 and 1, in a launch for one of them. Residuals of both kinds stay in
// registers while the narrowest is chosen; they get their zig-zag form after they have been cut into
// planes of bits, where that is one operation for a plane. All chunks go this way, full or not: what
// warps run at once has to fit the memory for instructions. A launch for all forms gives the same
// bytes.

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

#if !QUICK
DEVICE void keep_lane_errors(Shared &, LaneErrors &, u32, u32) {}
#endif

#if FETCHES
// ---- Numbers -----------------------------------------------------------------------------------

// As wide as the zig-zag form of a residual.
DEVICE u32 folded(u32 d) { return d ^ d << 1; }

DEVICE u32 framed_f32(u32 b) { return b << 1 | b >> 31; }
DEVICE u32 ordered_f32(u32 b) { return b ^ ((u32)((i32)b >> 31) & 0x7fffffffu); }

// A coefficient, from the bits of a value in mode 0; in mode 1 it is one already.
DEVICE u32 coefficient(u32 x) { return EXACT ? ordered_f32(x) : x; }

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
DEVICE LaneWidths lane_residuals(u32 (&x)[32], u32 (&twice)[32], u32 inside, u32 lane) {
    LaneWalker<PROFILE> walker;
    walker.begin(coefficient(x[31]), coefficient(x[30]), lane);
    u32 all0 = 0, all1 = 0, all2 = 0, least = ALL, most = 0;
    // By twos: some devices find the least of three at once.
    UNROLL for (u32 i = 0; i < 32; i += 2) {
        if (EXACT) {
            const bool first = FULL || i < inside, second = FULL || i + 1 < inside;
            const u32 u = framed_f32(x[i]), v = framed_f32(x[i + 1]);
            least = min(least, min(first ? u : ALL, second ? v : ALL));
            // Outside there are zeros.
            most = max(most, max(u, v));
        }
        UNROLL for (u32 j = i; j < i + 2; j++) {
            const u32 q = coefficient(x[j]);
            all0 |= folded(q);
            walker.next(q, x[j], twice[j]);
            if (!FULL) {
                x[j] = j < inside ? x[j] : 0;
                twice[j] = j < inside ? twice[j] : 0;
            }
            all1 |= folded(x[j]);
            all2 |= folded(twice[j]);
        }
    }
    least = FULL || inside ? least : 0;
    LaneWidths found = {{width_of(all0), width_of(all1), width_of(all2)},
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

// Numbers of at most 16 bits as planes of bits; the upper ones are left.
DEVICE void narrow_planes(u32 (&x)[32]) {
    u32 parts[16];
    UNROLL for (int k = 0; k < 16; k++) parts[k] = __byte_perm(x[k], x[k + 16], 0x5410);
    transpose(parts);
    UNROLL for (int k = 0; k < 16; k++) x[k] = parts[k];
}

// A chunk's kind and words, without those of outliers; of the lane's block where it begins, its
// width, dense words, and the mask of the numbers that are not 0. Its numbers are planes of bits.
struct LaneBlock {
    u32 kind, words, before, width, dense, mask, least;
};

// Makes planes of the numbers of a kind.
DEVICE LaneBlock planes_of(u32 (&x)[32], const Choice &choice, const LaneWidths &found, u32 lane) {
    const u32 width = choice.width;
    const bool frame = EXACT && choice.kind == 5, narrow = __all_sync(ALL, width <= 16);
    u32 mask = 0, sign;
    if (narrow) {
        narrow_planes(x);
        sign = x[15];
    } else {
        transpose(x);
        sign = x[31];
    }
    UNROLL for (int k = 0; k < 16; k++) mask |= x[k];
    if (!narrow) {
        UNROLL for (int k = 16; k < 32; k++) mask |= x[k];
    }
    if (!frame) {
        UNROLL for (int k = 31; k > 0; k--) x[k] = x[k - 1] ^ sign;
        x[0] = sign;
    }
    const u32 words = frame ? frame_words(found) : cost_of(width, __popc(mask)).words;
    const u32 before = exclusive_sum(words, lane);
    LaneBlock own = {choice.kind, 9 + __shfl_sync(ALL, before + words, 31), before, width,
                     !frame && words < width ? 0 : width, mask, found.least};
    return own;
}

// Writes a chunk to shared memory, but for its outliers.
DEVICE void write_planes_of(u32 *to, u32 (&planes)[32], const LaneBlock &own, u32 outliers,
                            u32 lane) {
    const bool sparse = own.dense < own.width;
    const bool some = EXACT && own.kind == 5 && (own.mask | own.least) != 0;
    write_head(to, own.kind, outliers, own.width | (sparse || some ? 0x80u : 0), lane);
    to += 9 + own.before;
    if (some) *to++ = own.least;
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (i < own.dense) to[i] = planes[i];
    }
    if (sparse) {
        UNROLL for (u32 i = 0; i < 32; i++) planes[i] = i < own.width ? planes[i] : 0;
        transpose(planes);
        write_sparse(to, planes, own.width);
    }
}

// ---- A chunk -----------------------------------------------------------------------------------

// The coefficients of a lane that are not those of zeros, and what the chunk's errors are.
struct LaneValues {
    FloatErrors errors;
    u32 bad;       // values that are outliers
    u32 outliers;  // of the chunk
};

#if QUICK
// Adds those of a chunk.
DEVICE void note_lane_errors(LaneErrors &errors, const FloatErrors &found) {
    errors.largest = fmaxf(errors.largest, found.largest);
    errors.sum += __fmul_rn(found.sum, 0x1p-8f);
}

// Adds the errors of a lane to those of the warp.
DEVICE void keep_lane_errors(Shared &shared, LaneErrors &own, u32 warp, u32 lane) {
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
DEVICE LaneValues quantise_lane(u32 (&x)[32], const u32 *mine, const Step32 &step, u32 inside) {
    LaneValues own = {{0, 0, 0}, 0, 0};
    const float scale = scale_of(step);
    const bool whole = quantise_whole((i32(&)[32])x, own.errors, step, scale);
    if (__all_sync(ALL, whole)) return own;
    if (!whole) own.bad = quantise_some((i32(&)[32])x, mine, own.errors, step, scale);
    if (inside < 32) own.bad &= (1u << inside) - 1;
    own.outliers = sum_of_warp((u32)__popc(own.bad));
    return own;
}

// Adds the errors of a chunk that is coded.
DEVICE void note_errors_of(Shared &shared, LaneErrors &errors, const LaneValues &own,
                           const u32 *mine, const Step32 &step, u32 warp, u32 lane) {
    const float scale = scale_of(step);
    if (!__any_sync(ALL, vanishes(own.errors, scale))) return note_lane_errors(errors, own.errors);
    Errors found = errors_of(own.errors, mine, own.bad, step, scale);
    keep_errors(shared, found, 0, warp, lane);
}

// Whether all values of a chunk are the same.
DEVICE bool are_same(const u32 *stage, u32 inside, u32 lane) {
    const u32 first = stage[0], *mine = stage + FETCHED_STRIDE * lane;
    u32 differ = 0;
    UNROLL8 for (u32 i = 0; i < 32; i++) differ |= i < inside ? mine[i] ^ first : 0;
    return !__any_sync(ALL, differ != 0);
}
#endif

// The numbers of kinds 0 and 5, from the values.
DEVICE void numbers_from(u32 (&x)[32], const u32 *stage, u32 kind, u32 least, const Step32 &step,
                         u32 bad, u32 inside, u32 lane) {
    // Read again, or each value would keep a register from the first time on.
    __syncwarp();
    read_fetched(stage, x, lane);
#if QUICK
    UNROLL for (u32 i = 0; i < 32; i++) {
        const u32 q = (u32)__float2int_rn(__fmul_rn(__uint_as_float(x[i]), step.inv));
        x[i] = bad >> i & 1 ? 0 : q;
    }
#else
    if (kind == 5) {
        UNROLL for (u32 i = 0; i < 32; i++) x[i] = i < inside ? framed_f32(x[i]) - least : 0;
    } else {
        UNROLL for (int i = 0; i < 32; i++) x[i] = ordered_f32(x[i]);
    }
#endif
}

// Encodes a chunk that was fetched, in shared memory; gives its words.
DEVICE u32 encode_fetched(Shared &shared, LaneErrors &errors, u32 warp, u32 lane) {
    const int profile = FORM >> 16 & 0xff;
    const Window &w = shared.windows[warp];
    u32 *stage = shared.stage[warp];
    u32 x[32], twice[32], some = 0;
    read_fetched(stage, x, lane);
    UNROLL for (int i = 0; i < 32; i++) some |= x[i];
    const u32 inside = inside_of_block(w, lane);
    const bool has_some = __any_sync(ALL, some != 0);
#if MEASURES
    if (shared.work == WORK_MEASURE) {
        measure_staged(shared, stage + FETCHED_STRIDE * lane, inside, warp, lane);
        return 0;
    }
    if (!has_some && measures(shared)) measure_zeros(shared, w.m, warp, lane);
#endif
    if (!has_some) return 0;
    LaneValues own = {{0, 0, 0}, 0, 0};
    Step32 step = {0, 0, 0};
#if QUICK
    step = narrow_step(shared.step);
    own = quantise_lane(x, stage + FETCHED_STRIDE * lane, step, inside);
#endif
#if MEASURES
    const bool finite = own.outliers == 0;
    if (measures(shared)) measure_fetched(shared, finite, own.errors.most, inside, warp, lane);
#endif
    const LaneWidths found = w.m == 1024 ? lane_residuals<profile, true>(x, twice, 32, lane)
                                         : lane_residuals<profile, false>(x, twice, inside, lane);
    const u32 first = stage[0];
#if EXACT
    const bool is_first = found.is_one && found.least == framed_f32(first);
    const bool same = __all_sync(ALL, is_first || inside == 0);
#else
    // With the first coefficient alone all are the same, and perhaps the values are.
    const bool same = __all_sync(ALL, lane == 0 || found.widths[1] == 0) &&
                      are_same(stage, inside, lane);
#endif
    if (same) return stage_constant(stage, first, 32, lane);
    if (QUICK && lane == 0) shared.outliers[warp] += own.outliers;
    const Choice choice = choose_kind(found);
#if QUICK
    if ((choice.words | own.outliers) == 0) {
        note_errors_of(shared, errors, own, stage + FETCHED_STRIDE * lane, step, warp, lane);
        return 0;
    }
#endif
    if (choice.kind == 2) {
        UNROLL for (int i = 0; i < 32; i++) x[i] = twice[i];
    } else if (choice.kind != 1) {
        numbers_from(x, stage, choice.kind, found.least, step, own.bad, inside, lane);
    }
    const LaneBlock block = planes_of(x, choice, found, lane);
    const u32 words = block.words + (own.outliers + 1) / 2 + own.outliers;
    if (own.outliers > 256 || words >= raw_words(w.m, 32)) return stage_raw(stage, w, lane);
#if QUICK
    note_errors_of(shared, errors, own, stage + FETCHED_STRIDE * lane, step, warp, lane);
#endif
    write_planes_of(stage, x, block, own.outliers, lane);
#if QUICK
    if (own.outliers) {
        const u32 before = exclusive_sum(__popc(own.bad), lane);
        write_outliers<u32>(stage + block.words, own.outliers, before, own.bad, lane, shared.job, w);
    }
#endif
    __syncwarp();
    return words;
}
#endif

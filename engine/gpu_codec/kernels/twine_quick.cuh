// Full chunks of float32 in mode 1 whose coefficients are small and have no outlier, as nearly all
// are. Whole numbers below 2^22 and their differences are exact as floats, and a multiprocessor has
// twice as many lanes for these as for integers: coefficients stay floats until their bits are
// packed. What does not fit goes the general way, which gives the same bytes.

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

#if QUICK
#define QUICK_ROUND 12582912.0f  // 1.5 * 2^23: what is added to it loses its fraction
#define QUICK_BITS 8388607.5f    // 2^23 - 0.5: a residual z as z + 0.5 added to it is 2^23 + z
#define QUICK_PROFILE (FORM >> 16 & 0xff)
// Coefficients twice as large give residuals below 2^22 in every kind.
#define QUICK_LIMIT (QUICK_PROFILE == 3 ? 0x1p15f : 0x1p17f)

// Goes through a lane's coefficients, from the first to the last. A residual d is given as
// 2 d + 0.5, whose magnitude is 0.5 more than its zig-zag form.
template <int PROFILE>
struct QuickWalker {
    // Of the coefficient before: profile 1 itself and 2 L + 0.5, else the differences across rows,
    // once and twice, and L of the latter.
    float q1, d1, e1;
    // -1 where there is a row above, or a plane before.
    float row, plane;

    DEVICE_MEMBER void begin(const float (&q)[32], u32 lane) {
        q1 = d1 = e1 = 0;
        if (PROFILE == 1) {
            float last = __shfl_up_sync(ALL, q[31], 1), other = __shfl_up_sync(ALL, q[30], 1);
            q1 = lane ? last : 0.0f;
            d1 = lane ? __fmaf_rn(__fsub_rn(last, other), 2.0f, 0.5f) : 0.5f;
        }
        row = (PROFILE == 3 ? lane & 7 : lane) ? -1.0f : 0.0f;
        plane = lane >= 8 ? -1.0f : 0.0f;
    }

    DEVICE_MEMBER float across(float q) const {
        float d = __fmaf_rn(__shfl_up_sync(ALL, q, 1), row, q);
        return PROFILE == 3 ? __fmaf_rn(__shfl_up_sync(ALL, d, 8), plane, d) : d;
    }

    // No prediction, L, and L twice; ASKED says which of them are needed.
    template <int ASKED>
    DEVICE_MEMBER void next(float q, float (&t)[3]) {
        if (PROFILE == 1) {
            t[0] = __fmaf_rn(q, 2.0f, 0.5f);
            t[1] = __fmaf_rn(q1, -2.0f, t[0]);
            t[2] = __fadd_rn(__fsub_rn(t[1], d1), 0.5f);
            q1 = q;
            d1 = t[1];
            return;
        }
        t[0] = __fmaf_rn(q, 2.0f, 0.5f);
        if (!(ASKED & 6)) return;
        float once = across(q);
        t[1] = __fmaf_rn(q1, -2.0f, __fmaf_rn(once, 2.0f, 0.5f));
        q1 = once;
        if (!(ASKED & 4)) return;
        float twice = across(once), d = __fsub_rn(twice, d1);
        t[2] = __fmaf_rn(__fsub_rn(d, e1), 2.0f, 0.5f);
        d1 = twice;
        e1 = d;
    }
};

// Replaces coefficients by the residuals of a kind.
template <int PROFILE, int KIND>
DEVICE void quick_residuals(float (&q)[32], u32 lane) {
    QuickWalker<PROFILE> walker;
    walker.begin(q, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        float t[3];
        walker.template next<1 << KIND>(q[i], t);
        q[i] = t[KIND];
    }
}

// z + 0.5 of the largest residual, as its width: its exponent says it, for 0.5 as well.
DEVICE u32 quick_width(float most) { return (__float_as_uint(most) >> 23) - 126; }

// The widths of the lane's block in kinds 0, 1, 2, and twice its largest coefficient and 0.5 at
// least; false if the coefficients are too large.
template <int PROFILE>
DEVICE bool quick_widths(const float (&q)[32], u32 lane, u32 (&widths)[3], float &twice) {
    QuickWalker<PROFILE> walker;
    walker.begin(q, lane);
    float most[3] = {0.5f, 0.5f, 0.5f};
    UNROLL for (int i = 0; i < 32; i++) {
        float t[3];
        walker.template next<7>(q[i], t);
        UNROLL for (int k = 0; k < 3; k++) most[k] = fmaxf(most[k], fabsf(t[k]));
    }
    UNROLL for (int k = 0; k < 3; k++) widths[k] = quick_width(most[k]);
    twice = __fadd_rn(most[0], 0.5f);
    return most[0] < 2 * QUICK_LIMIT;
}

DEVICE float sum_of_warp(float x) {
    UNROLL for (u32 d = 16; d; d >>= 1) x = __fadd_rn(x, __shfl_xor_sync(ALL, x, d));
    return x;
}

// Coefficients and errors of a lane's values; false if one fails. Says whether any is not 0.
DEVICE bool quick_coefficients(float (&q)[32], const Step32 &step, float scale, float &largest,
                               float &sum, bool &some) {
    largest = sum = 0;
    u32 bits = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = q[i];
        q[i] = __fsub_rn(__fadd_rn(__fmul_rn(x, step.inv), QUICK_ROUND), QUICK_ROUND);
        float error = __fsub_rn(x, __fmul_rn(q[i], step.step));
        largest = fmaxf(largest, fabsf(error));
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
        bits |= __float_as_uint(q[i]);
    }
    some = bits != 0;
    // A NaN is passed over by the largest one, but not by the sum. Errors so far below the step
    // that they vanish in the sum are for the general way.
    bool summed = largest == 0 || __fmul_rn(largest, scale) >= 0x1p-50f;
    return largest <= step.e && sum == sum && summed;
}

// Adds those of a chunk.
DEVICE void note_lane_errors(LaneErrors &errors, float largest, float sum) {
    errors.largest = fmaxf(errors.largest, largest);
    errors.sum += __fmul_rn(sum, 0x1p-8f);
}

// Adds the errors of a lane to those of the warp.
DEVICE void keep_lane_errors(Shared &shared, LaneErrors &own, u32 warp, u32 lane) {
    const u32 most = max_of_warp(__float_as_uint(own.largest));
    const double sum = sum_of_warp(own.sum);
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

// Residuals of up to N bits side by side: residual k + j N is part j of word k.
template <int N>
DEVICE void quick_parts(const float (&t)[32], u32 (&parts)[N]) {
    UNROLL for (int k = 0; k < N; k++) {
        float low = __fadd_rn(fabsf(t[k]), QUICK_BITS);
        float high = __fadd_rn(fabsf(t[k + 16]), QUICK_BITS);
        if (N == 8) {
            low = __fmaf_rn(__fsub_rn(fabsf(t[k + 8]), 0.5f), 256.0f, low);
            high = __fmaf_rn(__fsub_rn(fabsf(t[k + 24 & 31]), 0.5f), 256.0f, high);
        }
        parts[k] = __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410);
    }
}

// Writes a chunk whose residuals have at most N bits to shared memory; gives its words.
template <int N>
DEVICE u32 quick_pack(u32 *stage, const float (&t)[32], u32 kind, u32 width, u32 lane) {
    u32 parts[N], planes[N], mask = 0;
    quick_parts<N>(t, parts);
    UNROLL for (int k = 0; k < N; k++) planes[k] = parts[k];
    transpose(planes);
    UNROLL for (int k = 0; k < N; k++) mask |= planes[k];
    const Cost cost = cost_of(width, __popc(mask));
    const bool sparse = cost.words < width;
    const u32 before = exclusive_sum(cost.words, lane);
    write_head(stage, kind, 0, width | (sparse ? 0x80u : 0), lane);
    u32 *to = stage + 9 + before;
    const u32 dense = sparse ? 0 : width;
    UNROLL for (u32 i = 0; i < N; i++) {
        if (i < dense) to[i] = planes[i];
    }
    if (sparse) {
        to[0] = mask;
        write_sparse_parts<N>(to + 1, parts, mask, width);
    }
    return 9 + __shfl_sync(ALL, before + cost.words, 31);
}

// Encodes a full chunk that was fetched, in shared memory, and gives its words; false if it has to
// go the general way. Says whether the chunk has been measured.
DEVICE bool encode_quick(Shared &shared, LaneErrors &errors, u32 warp, u32 lane, u32 &words,
                         bool &measured) {
    const Step32 step = narrow_step(shared.step);
    u32 *stage = shared.stage[warp];
    float q[32];
    read_fetched(stage, q, lane);
#if MEASURES
    Measured<float> found;
    const bool summed = (shared.job.rule & 0xff) == RULE_RMS;
    if (measures(shared) && summed) found = measure_finite(q);
#endif
    const float scale = scale_of(step);
    float largest, sum, twice = 0.5f;
    u32 widths[3];
    bool some;
    bool fits = quick_coefficients(q, step, scale, largest, sum, some);
    if (!__all_sync(ALL, fits)) return false;
    const bool nothing = !__any_sync(ALL, some);
    if (!nothing) fits = quick_widths<QUICK_PROFILE>(q, lane, widths, twice);
    if (!__all_sync(ALL, fits)) return false;
#if MEASURES
    if (measures(shared)) {
        if (summed) {
            note_measured(shared, found, warp, lane);
        } else if (may_extend(shared, step, twice, warp)) {
            note_measured(shared, measure_extremes(stage, lane), warp, lane);
        }
        measured = true;
    }
#endif
    words = 0;
    if (nothing) {
        if (stage[0] && are_same(stage, lane)) {
            words = stage_constant(stage, stage[0], 32, lane);
        } else {
            note_lane_errors(errors, largest, sum);
        }
        return true;
    }
    // Below 23 each, so that the sums do not run into each other.
    const u32 sums = sum_of_warp(widths[0] | widths[1] << 10 | widths[2] << 20);
    const u32 words0 = sums & 0x3ff, words1 = sums >> 10 & 0x3ff, words2 = sums >> 20;
    // With the first coefficient alone all are the same, and perhaps the values are.
    if (words1 == __shfl_sync(ALL, widths[1], 0)) return false;
    u32 kind = 0, least_words = words0, width = widths[0];
    if (words1 < least_words) kind = 1, least_words = words1, width = widths[1];
    if (words2 < least_words) kind = 2, width = widths[2];
    const bool narrower = __all_sync(ALL, width <= 8);
    if (!narrower && !__all_sync(ALL, width <= 16)) return false;
    note_lane_errors(errors, largest, sum);
    if (kind == 0) quick_residuals<QUICK_PROFILE, 0>(q, lane);
    if (kind == 1) quick_residuals<QUICK_PROFILE, 1>(q, lane);
    if (kind == 2) quick_residuals<QUICK_PROFILE, 2>(q, lane);
    words = narrower ? quick_pack<8>(stage, q, kind, width, lane)
                     : quick_pack<16>(stage, q, kind, width, lane);
    __syncwarp();
    return true;
}
#else
DEVICE void keep_lane_errors(Shared &, LaneErrors &, u32, u32) {}
#endif

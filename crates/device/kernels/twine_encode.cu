// Encodes arrays as Twine streams, and copies others, one behind the other. A warp has a chunk and a
// lane a block of it; a block of threads has a tile, as many chunks as it has warps.

#define WORD_EPOCH 37  // status words: epoch (27 bits), state (2), value (35)
#define WORD_SUM (1ull << 35)   // the value is that of the tile or job alone
#define WORD_ALL (2ull << 35)   // the value is that of all up to it
#define WORD_VALUE ((1ull << 35) - 1)

#define UNIT 64  // jobs begin at multiples of so many bytes
#define HEADER_BYTES 64
#define RAW_BYTES 8192  // bytes that a warp copies

#if WIDE
typedef u64 Coeff;
#else
typedef u32 Coeff;
#endif

// What a chunk becomes.
#define CHUNK_EMPTY 0
#define CHUNK_RAW 1
#define CHUNK_CONSTANT 2
#define CHUNK_CODED 3

// What is found out about a chunk, the same in all lanes.
struct Chunk {
    u32 what, words;
    u64 pattern;
};

// Errors of the values of a lane.
struct Errors {
    double sum_sq;
    u64 max_bits;  // as the bits of a double
    u32 outliers;
};

struct Shared {
    Coeff stage[WARPS][32 * STRIDE + 8];
    Job job;
    Entry entry;
    Window windows[WARPS];
    u64 max_bits[WARPS];
    double sum_sq[WARPS];
    u32 words[WARPS];
    u32 outliers[WARPS];
    u64 before;  // words of the tiles before, of the same job
    u64 start;   // where the job begins
    u32 tile, number;
    u32 header[16];
};

DEVICE const Job *job_at(const EncodeLaunch &a, u32 j) {
    return a.job_table ? (const Job *)a.job_table + j : &a.inline_jobs[j];
}

DEVICE const Entry *entry_at(const EncodeLaunch &a, u32 e) {
    return a.entry_table ? (const Entry *)a.entry_table + e : &a.inline_entries[e];
}

DEVICE Sum *sum_at(const EncodeLaunch &a, u32 j) { return (Sum *)a.sums + j; }

// The job of a tile: the last one that does not begin behind it. By a whole warp.
DEVICE u32 find_job(const EncodeLaunch &a, u32 tile, u32 lane) {
    u32 low = 0, count = a.jobs;
    while (count > 1) {
        u32 step = (count + 31) / 32, at = lane * step;
        bool begun = at < count && job_at(a, low + at)->tile0 <= tile;
        u32 last = 31 - __clz((int)__ballot_sync(ALL, begun));
        low += last * step;
        count = min(step, count - last * step);
    }
    return low;
}

// ---- Values into shared memory -----------------------------------------------------------------

DEVICE u32 staged(u32 position) { return (position >> 5) * STRIDE + (position & 31); }

// Where value e of a full chunk of profile 1 is.
DEVICE u32 position_in_full(const Window &w, u32 e) {
    return w.components == 2 ? (e & 1) * 512 + (e >> 1) : e;
}

template <typename T, typename U>
DEVICE void stage_vectors(U *stage, const T *values, const Window &w, u32 lane) {
    const int per = 16 / sizeof(T);
    UNROLL for (int j = 0; j < 1024 / 32 / per; j++) {
        uint4 four = __ldcs((const uint4 *)values + j * 32 + lane);
        u32 words[4] = {four.x, four.y, four.z, four.w};
        u32 e = (j * 32 + lane) * per;
        UNROLL for (int i = 0; i < per; i++) {
            U value;
            if (sizeof(T) == 8) {
                value = (U)((u64)words[2 * i & 3] | (u64)words[(2 * i + 1) & 3] << 32);
            } else {
                const int bits = 8 * sizeof(T) & 31;
                u32 word = words[i * sizeof(T) / 4];
                value = bits == 0 ? word : word >> (i * bits & 31) & ((1u << bits) - 1);
            }
            stage[staged(position_in_full(w, e + i))] = value;
        }
    }
}

template <typename T, typename U>
DEVICE void stage_values(U *stage, const T *source, const Window &w, u32 lane) {
    if (w.profile != 1) {
        UNROLL for (u32 block = 0; block < 32; block++) {
            bool inside = lane < inside_of_block(w, block);
            stage[block * STRIDE + lane] = inside ? (U)__ldcs(source + row_of(w, block) + lane) : 0;
        }
        return;
    }
    const T *values = source + w.base;
    if (w.m == 1024 && ((u64)values & 15) == 0) return stage_vectors<T, U>(stage, values, w, lane);
    for (u32 p = lane; p < 1024; p += 32) {
        stage[staged(p)] = p < w.m ? (U)__ldcs(source + index_of(w, p)) : 0;
    }
}

// The bits of a value, from the array itself.
DEVICE u64 read_value(const Job &job, u64 index) {
    switch (bits_of(job.cut)) {
        case 8: return ((const u8 *)job.source)[index];
        case 16: return ((const u16 *)job.source)[index];
        case 32: return ((const u32 *)job.source)[index];
        default: return ((const u64 *)job.source)[index];
    }
}

// ---- Modes 1 and 2 -----------------------------------------------------------------------------

struct Step32 {
    float e, step, inv;
};

// The step of a job: the host's, or what the launch before has found.
DEVICE Step step_of(const EncodeLaunch &a, const Job &job, u32 number) {
    u32 rule = job.rule & 0xff;
    if (rule == RULE_RANGE || rule == RULE_RMS) return ((const Step *)a.steps)[number];
    Step step = {job.bound, job.e, job.step, job.inv};
    return step;
}

DEVICE float quiet_nan() { return __uint_as_float(0x7fffffff); }

DEVICE Step32 narrow_step(const Step &step) {
    // A step of 0 passes nothing: no comparison with NaN holds.
    Step32 s = {(float)step.e, (float)step.step, step.e > 0 ? (float)step.inv : quiet_nan()};
    return s;
}

// Mode 1 for float32: q and the error of every value of the lane. Returns which of them fail.
DEVICE u32 quantise_f32(i32 (&q)[32], Errors &errors, const Step32 &step) {
    // Errors are summed in units in which their squares neither vanish nor overflow.
    const float scale = step.inv < 0x1p60f ? __fmul_rn(step.inv, 0x1p60f) : 0x1p120f;
    u32 bad = 0;
    float largest = 0, sum = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = __int_as_float(q[i]);
        float s = __fmul_rn(x, step.inv);
        bool ok = fabsf(s) < 1e9f;
        i32 code = __float2int_rn(ok ? s : 0.0f);
        float error = fabsf(__fsub_rn(x, __fmul_rn(__int2float_rn(code), step.step)));
        ok = ok && error <= step.e;
        q[i] = ok ? code : 0;
        error = ok ? error : 0.0f;
        largest = fmaxf(largest, error);
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
        bad |= (ok ? 0u : 1u) << i;
    }
    errors.max_bits = (u64)__double_as_longlong((double)largest);
    errors.sum_sq = (double)sum / ((double)scale * (double)scale);
    return bad;
}

// A value in mode 2: its code, whether it is none, and the bits that come back.
struct Code {
    u64 magnitude, back;
    bool ok;
};

DEVICE Code relative_code(u64 bits, const Job &job) {
    u32 kind = kind_of(job.cut);
    u64 infinity = infinity_of(kind), magnitude = bits & (2 * infinity - 1);
    magnitude = bits & ((1ull << (bits_of(job.cut) - 1)) - 1);
    Code code = {0, 0, true};
    if (magnitude > infinity) {
        code.ok = false;
    } else if (magnitude >= job.floor_bits && magnitude != 0) {
        u32 s = job.shift;
        u64 rounded = s ? (magnitude + (1ull << (s - 1))) >> s : magnitude;
        bool subnormal = magnitude < (1ull << mantissa_of(kind));
        code.ok = magnitude != infinity && !subnormal && (rounded << s) < infinity;
        code.magnitude = rounded;
        code.back = rounded << s | (bits ^ magnitude);
    }
    if (!code.ok) code.magnitude = 0;
    return code;
}

// One value of up to 32 bits in mode 1 or 2: its coefficient and its error.
DEVICE bool quantise_one(u32 bits, const Job &job, const Step32 &step, i32 &q, float &error) {
    u32 kind = kind_of(job.cut);
    float x = widen(kind, bits);
    if ((job.rule & 0xff) == RULE_RELATIVE) {
        Code code = relative_code(bits, job);
        bool negative = bits >> (bits_of(job.cut) - 1);
        q = negative ? -(i32)(u32)code.magnitude : (i32)(u32)code.magnitude;
        error = fabsf(__fsub_rn(x, code.magnitude ? widen(kind, (u32)code.back) : 0.0f));
        return code.ok;
    }
    float s = __fmul_rn(x, step.inv);
    bool ok = fabsf(s) < 1e9f;
    q = __float2int_rn(ok ? s : 0.0f);
    float r = __fmul_rn(__int2float_rn(q), step.step);
    if (kind != KIND_F32) r = widen(kind, narrow(kind, r));
    error = fabsf(__fsub_rn(x, r));
    return ok && error <= step.e;
}

// The same for float64.
DEVICE bool quantise_wide(u64 bits, const Job &job, const Step &step, i64 &q, double &error) {
    double x = __longlong_as_double((i64)bits);
    if ((job.rule & 0xff) == RULE_RELATIVE) {
        Code code = relative_code(bits, job);
        q = (i64)bits < 0 ? -(i64)code.magnitude : (i64)code.magnitude;
        double back = code.magnitude ? __longlong_as_double((i64)code.back) : 0.0;
        error = fabs(__dsub_rn(x, back));
        return code.ok;
    }
    double s = __dmul_rn(x, step.inv);
    bool ok = step.e > 0 && fabs(s) < 4503599627370496.0;
    q = __double2ll_rn(ok ? s : 0.0);
    error = fabs(__dsub_rn(x, __dmul_rn(__ll2double_rn(q), step.step)));
    return ok && error <= step.e;
}

DEVICE bool quantise_any(u32 &value, const Job &job, const Step &step, double &error) {
    i32 q;
    float e;
    bool ok = quantise_one(value, job, narrow_step(step), q, e);
    value = ok ? (u32)q : 0;
    error = e;
    return ok;
}

DEVICE bool quantise_any(u64 &value, const Job &job, const Step &step, double &error) {
    i64 q;
    bool ok = quantise_wide(value, job, step, q, error);
    value = ok ? (u64)q : 0;
    return ok;
}

// Modes 1 and 2 for all types: replaces the values of the lane in shared memory by coefficients.
template <typename U>
DEVICE u32 quantise_staged(U *mine, u32 inside, const Job &job, const Step &step, Errors &errors) {
    u32 bad = 0;
    for (u32 i = 0; i < inside; i++) {
        U value = mine[i];
        double error;
        bool ok = quantise_any(value, job, step, error);
        mine[i] = value;
        if (!ok) {
            bad |= 1u << i;
            continue;
        }
        u64 bits = (u64)__double_as_longlong(error);
        errors.max_bits = bits > errors.max_bits ? bits : errors.max_bits;
        errors.sum_sq += error * error;
    }
    return bad;
}

// ---- Mode 0 ------------------------------------------------------------------------------------

DEVICE u32 sign_extended(u32 bits, u32 width) {
    u32 s = 32 - width;
    return (u32)((i32)(bits << s) >> s);
}

// The ordered integer of a float, or back: only the bits below the sign change.
DEVICE u32 ordered(u32 b, u32 width) { return b ^ ((u32)((i32)b >> 31) & ((1u << (width - 1)) - 1)); }
DEVICE u64 ordered(u64 b, u32) { return b ^ ((u64)((i64)b >> 63) & 0x7fffffffffffffffull); }

// Coefficients of mode 0, from the bits of the values.
DEVICE void order(u32 (&q)[32], u32 width, bool is_float) {
    UNROLL for (int i = 0; i < 32; i++) {
        u32 b = sign_extended(q[i], width);
        q[i] = is_float ? ordered(b, width) : b;
    }
}

DEVICE void order(u64 (&q)[32], u32 width, bool is_float) {
    if (!is_float) return;
    UNROLL for (int i = 0; i < 32; i++) q[i] = ordered(q[i], width);
}

// What FOR packs, from a coefficient of mode 0.
DEVICE u32 framed(u32 q, u32 width, u32 kind) {
    u32 mask = width == 32 ? ALL : (1u << width) - 1;
    if (kind < KIND_SIGNED) {
        u32 b = ordered(q, width) & mask;
        return ((b << 1) | (b >> (width - 1))) & mask;
    }
    return (q ^ (kind == KIND_SIGNED ? 1u << (width - 1) : 0)) & mask;
}

DEVICE u64 framed(u64 q, u32 width, u32 kind) {
    if (kind < KIND_SIGNED) {
        u64 b = ordered(q, width);
        return b << 1 | b >> 63;
    }
    return q ^ (kind == KIND_SIGNED ? 1ull << 63 : 0);
}

// ---- Prediction --------------------------------------------------------------------------------

DEVICE u32 zigzag(u32 d) { return d << 1 ^ (u32)((i32)d >> 31); }
DEVICE u64 zigzag(u64 d) { return d << 1 ^ (u64)((i64)d >> 63); }

// The difference to the row above, and in profile 3 that of these to the plane before.
template <int PROFILE, typename U>
DEVICE U across_rows(U a, u32 lane) {
    U above = __shfl_up_sync(ALL, a, 1);
    U d = (PROFILE == 2 ? lane : lane & 7) ? a - above : a;
    if (PROFILE == 3) {
        U before = __shfl_up_sync(ALL, d, 8);
        d = lane >= 8 ? d - before : d;
    }
    return d;
}

// Goes through the differences of a lane's coefficients: L and L twice.
template <int PROFILE, typename U>
struct Walker {
    U q1, d1;
    u32 lane;

    DEVICE_MEMBER void begin(const U (&q)[32], u32 at) {
        lane = at;
        q1 = d1 = 0;
        if (PROFILE == 1) {
            U last = __shfl_up_sync(ALL, q[31], 1), other = __shfl_up_sync(ALL, q[30], 1);
            q1 = lane ? last : 0;
            d1 = lane ? last - other : 0;
        }
    }

    DEVICE_MEMBER void next(U q, U &once, U &twice) {
        once = q - q1;
        q1 = q;
        if (PROFILE != 1) once = across_rows<PROFILE, U>(once, lane);
        twice = once - d1;
        d1 = once;
        if (PROFILE != 1) twice = across_rows<PROFILE, U>(twice, lane);
    }
};

// Width, and words of a block, of residuals whose bits together are `all`.
struct Cost {
    u32 width, words;
};

template <typename U>
DEVICE Cost cost_of(U all, u32 count, u32 cut) {
    Cost c;
    c.width = width_of((U)(all >> cut));
    u32 sparse = 1 + (count * c.width + 31) / 32;
    c.words = min(c.width, sparse);
    return c;
}

// The costs of kinds 0, 1, 2. The coefficients are shifted up by `cut`, so that they wrap as those
// of fewer bits do.
template <int PROFILE, bool FULL, typename U>
DEVICE void costs_of(const U (&q)[32], u32 inside, u32 lane, u32 cut, Cost (&costs)[3]) {
    Walker<PROFILE, U> walker;
    walker.begin(q, lane);
    U all0 = 0, all1 = 0, all2 = 0;
    u32 n0 = 0, n1 = 0, n2 = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        U once, twice;
        walker.next(q[i], once, twice);
        if (!FULL) {
            once = i < inside ? once : 0;
            twice = i < inside ? twice : 0;
        }
        all0 |= zigzag(q[i]);
        all1 |= zigzag(once);
        all2 |= zigzag(twice);
        n0 += q[i] != 0;
        n1 += once != 0;
        n2 += twice != 0;
    }
    costs[0] = cost_of(all0, n0, cut);
    costs[1] = cost_of(all1, n1, cut);
    costs[2] = cost_of(all2, n2, cut);
}

// Replaces coefficients by the residuals of a kind.
template <int PROFILE, typename U>
DEVICE void residuals(U (&q)[32], u32 inside, u32 lane, u32 cut, u32 kind) {
    Walker<PROFILE, U> walker;
    walker.begin(q, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        U once, twice;
        walker.next(q[i], once, twice);
        U d = kind == 0 ? q[i] : kind == 1 ? once : twice;
        q[i] = i < inside ? zigzag(d) >> cut : 0;
    }
}

template <typename U>
DEVICE void costs_any(const U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut,
                      Cost (&costs)[3]) {
    if (w.profile == 1) {
        if (w.m == 1024) return costs_of<1, true, U>(q, inside, lane, cut, costs);
        return costs_of<1, false, U>(q, inside, lane, cut, costs);
    }
    if (w.profile == 2) return costs_of<2, false, U>(q, inside, lane, cut, costs);
    costs_of<3, false, U>(q, inside, lane, cut, costs);
}

template <typename U>
DEVICE void residuals_any(U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut, u32 kind) {
    if (w.profile == 1) return residuals<1, U>(q, inside, lane, cut, kind);
    if (w.profile == 2) return residuals<2, U>(q, inside, lane, cut, kind);
    residuals<3, U>(q, inside, lane, cut, kind);
}

// The cost of FOR, and its minimum.
template <typename U>
DEVICE Cost frame_of(const U (&q)[32], u32 inside, u32 width, u32 kind, U &least) {
    U most = 0;
    least = ~(U)0;
    UNROLL for (int i = 0; i < 32; i++) {
        U u = framed(q[i], width, kind);
        least = i < inside && u < least ? u : least;
        most = i < inside && u > most ? u : most;
    }
    Cost c = {0, 0};
    if (inside == 0 || most == 0) {
        least = 0;
        return c;
    }
    c.width = width_of((U)(most - least));
    c.words = c.width + sizeof(U) / 4;
    return c;
}

// ---- Packing -----------------------------------------------------------------------------------

DEVICE void write_planes(u32 *to, u32 (&z)[32], u32 width) {
    transpose(z);
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (i < width) to[i] = z[i];
    }
}

DEVICE void write_dense(u32 *to, u32 (&z)[32], u32 width) { write_planes(to, z, width); }

DEVICE void write_dense(u32 *to, u64 (&z)[32], u32 width) {
    u32 half[32];
    UNROLL for (int i = 0; i < 32; i++) half[i] = (u32)z[i];
    write_planes(to, half, min(width, 32u));
    if (width > 32) {
        UNROLL for (int i = 0; i < 32; i++) half[i] = (u32)(z[i] >> 32);
        write_planes(to + 32, half, width - 32);
    }
}

// A stream of bits, written word by word.
struct Packer {
    u32 *to;
    u64 held;
    u32 bits;

    DEVICE_MEMBER void put32(u32 value, u32 width) {
        held |= (u64)value << bits;
        bits += width;
        if (bits >= 32) {
            *to++ = (u32)held;
            held >>= 32;
            bits -= 32;
        }
    }

    DEVICE_MEMBER void put(u32 value, u32 width) { put32(value, width); }

    DEVICE_MEMBER void put(u64 value, u32 width) {
        put32((u32)value, min(width, 32u));
        if (width > 32) put32((u32)(value >> 32), width - 32);
    }

    DEVICE_MEMBER void end() {
        if (bits) *to = (u32)held;
    }
};

template <typename U>
DEVICE void write_sparse(u32 *to, const U (&z)[32], u32 width) {
    u32 mask = 0;
    UNROLL for (int i = 0; i < 32; i++) mask |= (z[i] != 0 ? 1u : 0u) << i;
    to[0] = mask;
    Packer packer = {to + 1, 0, 0};
    UNROLL for (int i = 0; i < 32; i++) {
        if (z[i] != 0) packer.put(z[i], width);
    }
    packer.end();
}

// Positions and bits of the outliers, behind the blocks.
template <typename U>
DEVICE void write_outliers(u32 *to, u32 count, u32 before, u32 bad, u32 lane, const Job &job,
                           const Window &w) {
    u16 *positions = (u16 *)to;
    u32 *values = to + (count + 1) / 2;
    if (lane == 0 && (count & 1)) positions[count] = 0;
    for (u32 at = before; bad; at++, bad &= bad - 1) {
        u32 position = 32 * lane + __ffs((int)bad) - 1;
        positions[at] = (u16)position;
        u64 bits = read_value(job, index_of(w, position));
        if (sizeof(U) == 8) {
            values[2 * at] = (u32)bits;
            values[2 * at + 1] = (u32)(bits >> 32);
        } else {
            values[at] = (u32)bits;
        }
    }
}

// The whole of a coded chunk, in shared memory. `q` are its coefficients, `cost` is that of the
// lane's block in the kind that was chosen.
template <typename U>
DEVICE void pack(u32 *stage, U (&q)[32], const Window &w, const Job &job, u32 lane, u32 inside,
                 u32 kind, Cost cost, u32 block_words, u32 bad, U least) {
    const u32 width = bits_of(job.cut), cut = (job.rule & 0xff) == RULE_EXACT
                                                  ? 8 * sizeof(U) - width : 0;
    bool frame = kind == 5;
    if (frame) {
        UNROLL for (int i = 0; i < 32; i++) {
            q[i] = i < inside ? framed(q[i], width, kind_of(job.cut)) - least : 0;
        }
    } else {
        UNROLL for (int i = 0; i < 32; i++) q[i] <<= cut;
        residuals_any(q, w, inside, lane, cut, kind);
    }
    const u32 outliers = __popc(bad), all = sum_of_warp(outliers);
    const bool sparse = !frame && cost.words < cost.width, some = frame && cost.words;
    const u32 at = 9 + exclusive_sum(cost.words, lane), before = exclusive_sum(outliers, lane);
    u32 descriptors = (cost.width | (sparse || some ? 0x80u : 0)) << 8 * (lane & 3);
    descriptors |= __shfl_xor_sync(ALL, descriptors, 1);
    descriptors |= __shfl_xor_sync(ALL, descriptors, 2);
    // All lanes have read their values.
    __syncwarp();
    if (lane == 0) stage[0] = kind | all << 16;
    if ((lane & 3) == 0) stage[1 + (lane >> 2)] = descriptors;
    if (some) {
        stage[at] = (u32)least;
        if (sizeof(U) == 8) stage[at + 1] = (u32)((u64)least >> 32);
    }
    if (sparse) {
        write_sparse(stage + at, q, cost.width);
    } else {
        write_dense(stage + at + (some ? sizeof(U) / 4 : 0), q, cost.width);
    }
    if (all) write_outliers<U>(stage + 9 + block_words, all, before, bad, lane, job, w);
}

// ---- A chunk -----------------------------------------------------------------------------------

// Keeps the errors of a chunk for the tile; gives the number of its outliers.
DEVICE u32 keep_errors(Shared &shared, const Errors &errors, u32 warp, u32 lane) {
    u64 max_bits = max_of_warp(errors.max_bits);
    double sum_sq = sum_of_warp(errors.sum_sq);
    u32 outliers = sum_of_warp(errors.outliers);
    if (lane == 0) {
        shared.max_bits[warp] = max_bits;
        shared.sum_sq[warp] = sum_sq;
        shared.outliers[warp] = outliers;
    }
    return outliers;
}

// From values in shared memory to what the chunk becomes, packed there if it is coded.
template <typename U>
DEVICE Chunk encode_staged(const EncodeLaunch &a, Shared &shared, U *stage, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const Window &w = shared.windows[warp];
    U q[32], differ = 0;
    const U first = stage[0];
    const u32 inside = inside_of_block(w, lane), rule = job.rule & 0xff, width = bits_of(job.cut);
    U *mine = stage + lane * STRIDE;
    UNROLL for (int i = 0; i < 32; i++) {
        q[i] = mine[i];
        differ |= i < inside ? q[i] ^ first : 0;
    }
    Chunk chunk = {CHUNK_EMPTY, 0, first};
    if (!__any_sync(ALL, differ != 0)) {
        if (first == 0) return chunk;
        chunk.what = CHUNK_CONSTANT;
        chunk.words = 1 + (width == 64 ? 2 : 1);
        return chunk;
    }
    u32 bad = 0;
    Errors errors = {0, 0, 0};
    if (rule == RULE_EXACT) {
        order(q, width, kind_of(job.cut) < KIND_SIGNED);
    } else if (sizeof(U) == 4 && rule != RULE_RELATIVE && kind_of(job.cut) == KIND_F32) {
        bad = quantise_f32((i32(&)[32])q, errors, narrow_step(step_of(a, job, shared.number)));
    } else {
        __syncwarp();
        bad = quantise_staged<U>(mine, inside, job, step_of(a, job, shared.number), errors);
        UNROLL for (int i = 0; i < 32; i++) q[i] = mine[i];
    }
    if (inside < 32) bad &= (1u << inside) - 1;
    errors.outliers = __popc(bad);
    const u32 outliers = rule == RULE_EXACT ? 0 : keep_errors(shared, errors, warp, lane);
    const u32 cut = rule == RULE_EXACT ? 8 * sizeof(U) - width : 0;
    Cost costs[3], best;
    if (cut) {
        UNROLL for (int i = 0; i < 32; i++) q[i] <<= cut;
    }
    costs_any(q, w, inside, lane, cut, costs);
    if (cut) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = (U)((i32)q[i] >> cut);
    }
    u32 kind = 1, words = sum_of_warp(costs[1].words);
    best = costs[1];
    const u32 words0 = sum_of_warp(costs[0].words), words2 = sum_of_warp(costs[2].words);
    if (words0 < words) kind = 0, words = words0, best = costs[0];
    if (words2 < words) kind = 2, words = words2, best = costs[2];
    U least = 0;
    if (rule == RULE_EXACT) {
        Cost frame = frame_of(q, inside, width, kind_of(job.cut), least);
        u32 words5 = sum_of_warp(frame.words);
        if (words5 < words) kind = 5, words = words5, best = frame;
    }
    if (words == 0 && outliers == 0) return chunk;
    const u32 raw = raw_words(w.m, width);
    chunk.words = 9 + words + (outliers + 1) / 2 + outliers * (width == 64 ? 2 : 1);
    if (outliers > 256 || chunk.words >= raw) {
        chunk.what = CHUNK_RAW;
        chunk.words = raw;
        if (lane == 0) {
            shared.max_bits[warp] = 0;
            shared.sum_sq[warp] = 0;
        }
        return chunk;
    }
    chunk.what = CHUNK_CODED;
    pack<U>((u32 *)stage, q, w, job, lane, inside, kind, best, words, bad, least);
    __syncwarp();
    return chunk;
}

DEVICE Chunk encode_chunk(const EncodeLaunch &a, Shared &shared, u32 warp, u32 lane) {
    Coeff *stage = shared.stage[warp];
    const Job &job = shared.job;
    const Window &w = shared.windows[warp];
#if WIDE
    if (bits_of(job.cut) == 64) {
        stage_values<u64, u64>(stage, (const u64 *)job.source, w, lane);
        __syncwarp();
        return encode_staged<u64>(a, shared, stage, warp, lane);
    }
#endif
    u32 *narrow = (u32 *)stage;
    switch (bits_of(job.cut)) {
        case 8: stage_values<u8, u32>(narrow, (const u8 *)job.source, w, lane); break;
        case 16: stage_values<u16, u32>(narrow, (const u16 *)job.source, w, lane); break;
        default: stage_values<u32, u32>(narrow, (const u32 *)job.source, w, lane);
    }
    __syncwarp();
    return encode_staged<u32>(a, shared, narrow, warp, lane);
}

// ---- Places ------------------------------------------------------------------------------------

DEVICE u64 word_of(const EncodeLaunch &a, u64 state, u64 value) {
    return (u64)a.epoch << WORD_EPOCH | state | value;
}

// Waits for the word of another tile or job, which has begun.
DEVICE u64 wait_for(const EncodeLaunch &a, const u64 *word) {
    u64 found = load_acquire(word);
    while (found >> WORD_EPOCH != a.epoch) {
        pause();
        found = load_acquire(word);
    }
    return found;
}

// Words of the tiles of the job before this one. By a whole warp.
DEVICE u64 look_back(const EncodeLaunch &a, u32 tile, u32 tile0, u64 own, u32 lane) {
    u64 *status = (u64 *)a.status;
    if (tile == tile0) {
        if (lane == 0) store_release(status + tile, word_of(a, WORD_ALL, own));
        return 0;
    }
    if (lane == 0) store_release(status + tile, word_of(a, WORD_SUM, own));
    u64 sum = 0;
    for (i64 at = (i64)tile - 1;; at -= 32) {
        i64 other = at - lane;
        // Before the first tile there is nothing, and all of it is known.
        u64 word = other >= (i64)tile0 ? wait_for(a, status + other) : WORD_ALL;
        u32 whole = __ballot_sync(ALL, (word & WORD_ALL) != 0);
        u32 last = whole ? __ffs((int)whole) - 1 : 31;
        sum += sum_of_warp(lane <= last ? word & WORD_VALUE : 0);
        if (whole) break;
    }
    if (lane == 0) store_release(status + tile, word_of(a, WORD_ALL, sum + own));
    return sum;
}

// The address that a chain of checkpoints begins at.
DEVICE u64 chain_begin(const Entry &head) {
    if (head.how != HOW_AFTER) return head.start;
    return align_up(*(volatile const u64 *)head.start, head.align);
}

// The end of a job in units: no checkpoint ends beyond its limit as far as the next one knows.
DEVICE u64 end_of(u64 begin, u64 end, const Job &job, u32 number, const Entry &entry) {
    u64 most = align_up(entry.limit, UNIT);
    bool last = number + 1 == entry.job0 + entry.jobs;
    u64 address = begin + end * UNIT;
    return last && address > most ? (most > begin ? (most - begin) / UNIT : 0) : end;
}

// Where a job begins, given where the one before it ends, both in units behind `begin`.
DEVICE u64 begin_of(u64 begin, u64 end, u32 number, const Entry &entry) {
    if (number != entry.job0) return end;
    return (align_up(begin + end * UNIT, entry.align) - begin) / UNIT;
}

// Where a job begins, in units behind the begin of its chain. By a whole warp.
DEVICE u64 find_begin(const EncodeLaunch &a, u32 number, u64 begin, u32 head0, u32 lane) {
    if (number == head0) return 0;
    const u64 *totals = (const u64 *)a.totals;
    // Lane l has the job l + 1 before; one that is not of the chain stands for its begin.
    bool has = number >= head0 + 1 + lane;
    u32 other = has ? number - 1 - lane : head0;
    const Job *job = job_at(a, other);
    const Entry *entry = entry_at(a, job->entry);
    u64 word = 0;
    u32 whole, missing;
    do {
        if (!has) {
            word = (u64)a.epoch << WORD_EPOCH | WORD_ALL;
        } else if (!(word >> WORD_EPOCH == a.epoch && (word & WORD_ALL))) {
            word = load_acquire(totals + other);
        }
        bool there = word >> WORD_EPOCH == a.epoch;
        whole = __ballot_sync(ALL, there && (word & WORD_ALL));
        missing = __ballot_sync(ALL, !there);
        // Those between this job and the nearest whole one have to be there.
    } while (!whole || (missing && __ffs((int)missing) < __ffs((int)whole)));
    u32 at = __ffs((int)whole) - 1;
    u64 end = __shfl_sync(ALL, word & WORD_VALUE, at);
    while (at-- > 0) {
        // The lane that has the job knows its checkpoint.
        u64 next = 0;
        if (lane == at) {
            next = begin_of(begin, end, other, *entry) + (word & WORD_VALUE);
            next = end_of(begin, next, *job, other, *entry);
        }
        end = __shfl_sync(ALL, next, at);
    }
    const Entry *own = entry_at(a, job_at(a, number)->entry);
    return begin_of(begin, end, number, *own);
}

// ---- Out ---------------------------------------------------------------------------------------

// Copies what is in shared memory, or the values themselves, to where the chunk belongs.
DEVICE void write_chunk(u32 *to, const u32 *stage, const Chunk &chunk, const Window &w,
                        const Job &job, u32 lane) {
    if (chunk.what == CHUNK_CODED) {
        for (u32 i = lane; i < chunk.words; i += 32) __stcs(to + i, stage[i]);
        return;
    }
    const u32 bits = bits_of(job.cut);
    if (chunk.what == CHUNK_CONSTANT) {
        if (lane == 0) {
            to[0] = 4;
            to[1] = (u32)chunk.pattern;
            if (bits == 64) to[2] = (u32)(chunk.pattern >> 32);
        }
        return;
    }
    if (chunk.what != CHUNK_RAW) return;
    if (lane == 0) to[0] = 3;
    for (u32 i = lane; i + 1 < chunk.words; i += 32) {
        u32 word;
        if (bits == 64) {
            u64 value = read_value(job, index_of(w, position_of(w, i / 2)));
            word = (u32)(i & 1 ? value >> 32 : value);
        } else {
            u32 per = 32 / bits;
            word = 0;
            for (u32 k = 0; k < per && i * per + k < w.m; k++) {
                u64 index = index_of(w, position_of(w, i * per + k));
                word |= (u32)read_value(job, index) << (k * bits);
            }
        }
        __stcs(to + 1 + i, word);
    }
}

// The part of a raw job that a warp copies.
DEVICE void copy_part(const Job &job, u64 to, u64 limit, u64 part, u32 lane) {
    u64 offset = part * RAW_BYTES;
    if (offset >= job.n) return;
    u64 left = min(job.n - offset, (u64)RAW_BYTES);
    to += offset;
    left = to >= limit ? 0 : min(left, limit - to);
    const u8 *from = (const u8 *)job.source + offset;
    u32 len = (u32)left, done = 0;
    if (((u64)from & 15) == 0) {
        done = len & ~15u;
        for (u32 i = lane * 16; i < done; i += 512) {
            __stcs((uint4 *)(to + i), __ldcs((const uint4 *)(from + i)));
        }
    } else if (((u64)from & 3) == 0) {
        done = len & ~3u;
        for (u32 i = lane * 4; i < done; i += 128) {
            __stcs((u32 *)(to + i), __ldcs((const u32 *)(from + i)));
        }
    } else {
        done = len & ~3u;
        for (u32 i = lane * 4; i < done; i += 128) {
            u32 word = from[i] | from[i + 1] << 8 | from[i + 2] << 16 | (u32)from[i + 3] << 24;
            __stcs((u32 *)(to + i), word);
        }
    }
    for (u32 i = done + lane; i < len; i += 32) ((u8 *)to)[i] = from[i];
}

// ---- The end -----------------------------------------------------------------------------------

// Below the smallest normal number an error counts as none.
DEVICE u64 settled_error(u64 max_bits, const Job &job) {
    u64 tiny = bits_of(job.cut) == 64 ? 1ull << 52 : (u64)(1023 - 126) << 52;
    return max_bits < tiny ? 0 : max_bits;
}

DEVICE void write_header(const EncodeLaunch &a, Shared &shared, u64 start, u64 payload,
                         u64 max_bits, u32 lane) {
    const Job &job = shared.job;
    if (lane == 0) {
        const Step step = step_of(a, job, shared.number);
        u32 rule = job.rule & 0xff, mode = rule == RULE_EXACT ? 0 : rule == RULE_RELATIVE ? 2 : 1;
        double bound = mode == 1 && !(step.e > 0) ? 0.0 : step.bound;
        u64 words[8] = {
            (u64)MAGIC | (u64)(1 | (job.rule >> 8 & 0xff) << 8 | mode << 16 |
                               profile_of(job.cut) << 24) << 32,
            job.n,
            mode ? (u64)__double_as_longlong(bound) : 0,
            mode ? (u64)__double_as_longlong(step.step) : 0,
            (u64)job.kept | (u64)job.cut.n_chunks << 32,
            (u64)job.cut.nx | (u64)job.cut.ny << 32,
            (u64)job.cut.nz | payload << 32,
            settled_error(max_bits, job),
        };
        for (u32 i = 0; i < 16; i++) shared.header[i] = (u32)(words[i / 2] >> 32 * (i & 1));
    }
    __syncwarp();
    u32 *to = (u32 *)start + lane;
    if (lane < 16 && (u64)(to + 1) <= shared.entry.limit) *to = shared.header[lane];
}

// All tiles of a job are done: its header, and the zeros up to the next job. By a whole warp.
DEVICE void end_job(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Job &job = shared.job;
    Sum *sum = sum_at(a, shared.number);
    u64 start = *(volatile u64 *)&sum->start, stored = job.n;
    if ((job.rule & 0xff) != RULE_RAW) {
        const u64 *status = (const u64 *)a.status;
        u64 payload = load_acquire(status + job.tile0 + job.tiles - 1) & WORD_VALUE;
        u64 max_bits = *(volatile u64 *)&sum->max_bits;
        stored = HEADER_BYTES + 4 * ((u64)job.cut.n_chunks + 1 + payload);
        write_header(a, shared, start, payload, max_bits, lane);
    }
    if (lane == 0) {
        *(volatile u64 *)&sum->stored = stored;
        *(volatile u32 *)&sum->done = 0;
    }
    if (shared.number + 1 < shared.entry.job0 + shared.entry.jobs) {
        u64 end = start + stored, next = min(align_up(end, UNIT), shared.entry.limit);
        for (u64 at = end + lane; at < next; at += 32) *(u8 *)at = 0;
    }
}

// All jobs of a checkpoint are done: its result. By a whole warp.
DEVICE void end_entry(const EncodeLaunch &a, const Entry &entry, u32 lane) {
    u64 *slot = (u64 *)entry.slot, *record = (u64 *)entry.record;
    const u64 start = *(volatile u64 *)&sum_at(a, entry.job0)->start;
    const Sum *last = sum_at(a, entry.job0 + entry.jobs - 1);
    const u64 end = *(volatile u64 *)&last->start + *(volatile u64 *)&last->stored;
    __syncwarp();
    for (u32 j = lane; j < entry.jobs; j += 32) {
        const Job *job = job_at(a, entry.job0 + j);
        Sum *sum = sum_at(a, entry.job0 + j);
        bool raw = (job->rule & 0xff) == RULE_RAW;
        u64 *words = slot + 4 + 6 * j;
        words[0] = *(volatile u64 *)&sum->start - start;
        words[1] = *(volatile u64 *)&sum->stored;
        words[2] = settled_error(*(volatile u64 *)&sum->max_bits, *job);
        words[3] = *(volatile u64 *)&sum->sum_sq;
        words[4] = raw ? 0 : job->n;
        words[5] = *(volatile u64 *)&sum->outliers;
        *(volatile u64 *)&sum->max_bits = 0;
        *(volatile u64 *)&sum->sum_sq = 0;
        *(volatile u64 *)&sum->outliers = 0;
    }
    if (lane == 0) {
        bool fits = end <= entry.limit;
        slot[1] = fits ? STATUS_DONE : STATUS_OVERFLOW;
        slot[2] = start;
        slot[3] = end - start;
        record[0] = fits ? end : entry.limit;
        record[1] = start;
        record[2] = slot[1];
    }
    __threadfence_system();
    __syncwarp();
    if (lane == 0) store_for_host(slot, entry.sequence);
}

// Counts one more of `all`; whether that was the last. The counter is 0 again then.
DEVICE bool is_last(u32 *count, u32 all, u32 lane) {
    u32 found = 0;
    if (lane == 0) {
        __threadfence();
        found = atomicAdd(count, 1u);
        __threadfence();
    }
    return __shfl_sync(ALL, found, 0) + 1 == all;
}

// A tile is done. By the first warp, when all others are.
DEVICE void end_tile(const EncodeLaunch &a, Shared &shared, u32 lane) {
    Sum *sum = sum_at(a, shared.number);
    if (lane == 0 && (shared.job.rule & 0xff) > RULE_EXACT) {
        u64 max_bits = 0, outliers = 0;
        double sum_sq = 0;
        for (u32 i = 0; i < WARPS; i++) {
            max_bits = max(max_bits, shared.max_bits[i]);
            sum_sq += shared.sum_sq[i];
            outliers += shared.outliers[i];
        }
        if (max_bits) atomicMax(&sum->max_bits, max_bits);
        if (sum_sq > 0) atomicAdd(&sum->sum_sq, sum_sq);
        if (outliers) atomicAdd(&sum->outliers, outliers);
    }
    if (!is_last(&sum->done, shared.job.tiles, lane)) return;
    end_job(a, shared, lane);
    __syncwarp();
    u32 *count = (u32 *)a.counts + shared.job.entry;
    if (!is_last(count, shared.entry.jobs, lane)) return;
    if (lane == 0) *(volatile u32 *)count = 0;
    end_entry(a, shared.entry, lane);
}

// ---- The kernel --------------------------------------------------------------------------------

// The tile of this block, its job and its checkpoint.
DEVICE void take_tile(const EncodeLaunch &a, Shared &shared, u32 lane) {
    u32 ticket = 0;
    if (lane == 0) ticket = atomicAdd((u32 *)a.ticket, 1u) - a.first_ticket;
    const u32 tile = __shfl_sync(ALL, ticket, 0), number = find_job(a, tile, lane);
    const u32 *job = (const u32 *)job_at(a, number);
    ((u32 *)&shared.job)[lane] = job[lane];
    __syncwarp();
    const u32 *entry = (const u32 *)entry_at(a, shared.job.entry);
    if (lane < 16) ((u32 *)&shared.entry)[lane] = entry[lane];
    if (lane == 0) {
        shared.tile = tile;
        shared.number = number;
    }
}

// Publishes the size of a job and where it ends. `begin` is that of its chain.
DEVICE void publish_size(const EncodeLaunch &a, const Shared &shared, u64 bytes) {
    u64 *total = (u64 *)a.totals + shared.number;
    store_release(total, word_of(a, WORD_SUM, align_up(bytes, UNIT) / UNIT));
}

DEVICE void publish_end(const EncodeLaunch &a, const Shared &shared, u64 bytes) {
    const Entry *head = entry_at(a, shared.entry.head);
    u64 begin = chain_begin(*head), end = (shared.start - begin) / UNIT + align_up(bytes, UNIT) / UNIT;
    end = end_of(begin, end, shared.job, shared.number, shared.entry);
    store_release((u64 *)a.totals + shared.number, word_of(a, WORD_ALL, end));
}

// Where the job begins. By the second warp.
DEVICE void find_start(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Entry *head = entry_at(a, shared.entry.head);
    u64 begin = chain_begin(*head);
    u64 units = find_begin(a, shared.number, begin, head->job0, lane);
    if (lane == 0) shared.start = begin + units * UNIT;
}

DEVICE void copy_tile(const EncodeLaunch &a, Shared &shared, u32 warp, u32 lane) {
    const bool is_first = shared.tile == shared.job.tile0;
    if (warp == 1) {
        if (is_first && lane == 0) publish_size(a, shared, shared.job.n);
        find_start(a, shared, lane);
    }
    __syncthreads();
    if (is_first && warp == 0 && lane == 0) {
        publish_end(a, shared, shared.job.n);
        *(volatile u64 *)&sum_at(a, shared.number)->start = shared.start;
    }
    u64 part = (u64)(shared.tile - shared.job.tile0) * WARPS + warp;
    copy_part(shared.job, shared.start, shared.entry.limit, part, lane);
}

DEVICE void encode_tile(const EncodeLaunch &a, Shared &shared, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const u32 tile = shared.tile, c = (tile - job.tile0) * WARPS + warp;
    const bool has = c < job.cut.n_chunks;
    const Window &w = shared.windows[warp];
    Chunk chunk = {CHUNK_EMPTY, 0, 0};
    if (lane == 0) {
        if (has) shared.windows[warp] = window_of(job.cut, job.n, c);
        shared.max_bits[warp] = 0;
        shared.sum_sq[warp] = 0;
        shared.outliers[warp] = 0;
    }
    __syncwarp();
    if (has) chunk = encode_chunk(a, shared, warp, lane);
    if (lane == 0) shared.words[warp] = chunk.words;
    __syncthreads();
    u32 all = 0, before = 0;
    UNROLL for (u32 i = 0; i < WARPS; i++) {
        u32 words = shared.words[i];
        before += i < warp ? words : 0;
        all += words;
    }
    const bool is_end = tile + 1 == job.tile0 + job.tiles;
    const u64 head = HEADER_BYTES + 4 * ((u64)job.cut.n_chunks + 1);
    if (warp == 0) {
        u64 sum = look_back(a, tile, job.tile0, all, lane);
        if (lane == 0) {
            shared.before = sum;
            if (is_end) publish_size(a, shared, head + 4 * (sum + all));
        }
    } else if (warp == 1) {
        find_start(a, shared, lane);
    }
    __syncthreads();
    const u64 start = shared.start, limit = shared.entry.limit;
    if (warp == 0 && lane == 0) {
        if (is_end) publish_end(a, shared, head + 4 * (shared.before + all));
        if (tile == job.tile0) {
            *(volatile u64 *)&sum_at(a, shared.number)->start = start;
            if (start + HEADER_BYTES + 4 <= limit) *(u32 *)(start + HEADER_BYTES) = 0;
        }
    }
    if (!has) return;
    const u64 first = shared.before + before, to = start + head + 4 * first;
    u32 *offset = (u32 *)(start + HEADER_BYTES) + c + 1;
    if (lane == 0 && (u64)(offset + 1) <= limit) *offset = (u32)(first + chunk.words);
    if (to + 4 * chunk.words <= limit) {
        write_chunk((u32 *)to, (const u32 *)shared.stage[warp], chunk, w, job, lane);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
twine_encode(const __grid_constant__ EncodeLaunch a) {
    __shared__ Shared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (warp == 0) take_tile(a, shared, lane);
    __syncthreads();
    if ((shared.job.rule & 0xff) == RULE_RAW) {
        copy_tile(a, shared, warp, lane);
    } else {
        encode_tile(a, shared, warp, lane);
    }
    __syncthreads();
    if (warp == 0) end_tile(a, shared, lane);
}

// The encoder's part for one chunk: values into shared memory, coefficients, the kind of prediction
// that takes the fewest words, and the words themselves. A warp has a chunk, a lane a block of it.

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

// How the values of all arrays of the launch are coded where it is known when this is compiled: as
// mode 0 or 1 of the format.
#ifdef MODE
DEVICE bool is_exact(const Job &) { return MODE == 0; }
DEVICE bool is_relative(const Job &) { return false; }
#else
DEVICE bool is_exact(const Job &job) { return (job.rule & 0xff) == RULE_EXACT; }
DEVICE bool is_relative(const Job &job) { return (job.rule & 0xff) == RULE_RELATIVE; }
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

// The values of 16 bytes to places one after the other, which do not cross a block.
template <typename T, typename U>
DEVICE void unpack(U *to, uint4 four) {
    const u32 words[4] = {four.x, four.y, four.z, four.w};
    const int per = 16 / sizeof(T);
    UNROLL for (int i = 0; i < per; i++) {
        if (sizeof(T) == 8) {
            to[i] = (U)((u64)words[2 * i & 3] | (u64)words[(2 * i + 1) & 3] << 32);
        } else {
            const int bits = 8 * sizeof(T) & 31;
            u32 word = words[i * sizeof(T) / 4];
            to[i] = bits == 0 ? word : word >> (i * bits & 31) & ((1u << bits) - 1);
        }
    }
}

// A full chunk of profile 1.
template <typename T, typename U>
DEVICE void stage_vectors(U *stage, const T *values, u32 lane) {
    const u32 per = 16 / sizeof(T);
    UNROLL for (u32 j = 0; j < 32 / per; j++) {
        uint4 four = __ldcs((const uint4 *)values + j * 32 + lane);
        unpack<T, U>(stage + staged((j * 32 + lane) * per), four);
    }
}

// Rows of a full patch or box whose addresses are multiples of 16.
template <typename T, typename U>
DEVICE void stage_rows(U *stage, const T *first, const Window &w, u32 lane) {
    const u32 per = 16 / sizeof(T), lanes = 32 / per, rows = 32 / lanes;
    UNROLL for (u32 j = 0; j < lanes; j++) {
        u32 block = j * rows + lane / lanes, column = lane % lanes * per;
        u64 row = profile_of(w) == 2 ? (u64)block : (u64)(block >> 3) * w.ny + (block & 7);
        uint4 four = __ldcs((const uint4 *)(first + row * w.nx + column));
        unpack<T, U>(stage + block * STRIDE + column, four);
    }
}

template <typename T, typename U>
DEVICE void stage_values(U *stage, const T *source, const Window &w, u32 lane) {
    const T *values = source + w.base;
    const bool full = w.m == 1024 && ((u64)values & 15) == 0;
    if (profile_of(w) != 1) {
        if (full && w.nx % (16 / sizeof(T)) == 0) return stage_rows<T, U>(stage, values, w, lane);
        UNROLL8 for (u32 block = 0; block < 32; block++) {
            bool inside = lane < inside_of_block(w, block);
            stage[block * STRIDE + lane] = inside ? (U)__ldcs(source + row_of(w, block) + lane) : 0;
        }
        return;
    }
    if (full && components_of(w) == 1) return stage_vectors<T, U>(stage, values, lane);
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

// The errors of a lane, from the largest one and a sum in units of 1 / scale.
DEVICE void note_errors(Errors &errors, float largest, float sum, float scale) {
    errors.max_bits = (u64)__double_as_longlong((double)largest);
    errors.sum_sq = (double)sum / ((double)scale * (double)scale);
}

// Mode 1 for float32 where no value fails: q and the errors of every value of the lane. False when
// one fails; then what it has left in q is of no use.
DEVICE bool quantise_whole(i32 (&q)[32], Errors &errors, const Step32 &step, float scale) {
    float largest = 0, sum = 0, most = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = __int_as_float(q[i]), s = __fmul_rn(x, step.inv);
        most = fmaxf(most, fabsf(s));
        q[i] = __float2int_rn(s);
        float error = __fsub_rn(x, __fmul_rn(__int2float_rn(q[i]), step.step));
        largest = fmaxf(largest, fabsf(error));
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
    }
    note_errors(errors, largest, sum, scale);
    // A NaN is passed over by the largest ones, but not by the sum. A step of 0 passes nothing, not
    // even a 0.
    return step.e > 0 && most < 1e9f && largest <= step.e && sum == sum;
}

// The same where some fail: returns which. The values are those in shared memory.
DEVICE u32 quantise_some(i32 (&q)[32], const u32 *mine, Errors &errors, const Step32 &step,
                         float scale) {
    u32 bad = 0;
    float largest = 0, sum = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = __uint_as_float(mine[i]), s = __fmul_rn(x, step.inv);
        i32 code = __float2int_rn(s);
        float error = fabsf(__fsub_rn(x, __fmul_rn(__int2float_rn(code), step.step)));
        bool ok = fabsf(s) < 1e9f && error <= step.e;
        q[i] = ok ? code : 0;
        error = ok ? error : 0.0f;
        largest = fmaxf(largest, error);
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
        bad |= (ok ? 0u : 1u) << i;
    }
    note_errors(errors, largest, sum, scale);
    return bad;
}

// The sum of the squares where errors are so far below the step that they vanish in its units.
DEVICE double sum_of_small(const u32 *mine, u32 bad, const Step32 &step) {
    double sum = 0;
    UNROLL1 for (u32 i = 0; i < 32; i++) {
        float x = __uint_as_float(mine[i]);
        i32 code = __float2int_rn(__fmul_rn(x, step.inv));
        double error = (double)__fsub_rn(x, __fmul_rn(__int2float_rn(code), step.step));
        if (!(bad >> i & 1)) sum = __dadd_rn(sum, __dmul_rn(error, error));
    }
    return sum;
}

DEVICE u32 quantise_f32(i32 (&q)[32], const u32 *mine, Errors &errors, const Step32 &step) {
    // Errors are summed in units in which their squares neither vanish nor overflow.
    const float scale = step.inv < 0x1p60f ? __fmul_rn(step.inv, 0x1p60f) : 0x1p120f;
    u32 bad = 0;
    if (!quantise_whole(q, errors, step, scale)) {
        bad = quantise_some(q, mine, errors, step, scale);
    }
    const double largest = __longlong_as_double((i64)errors.max_bits);
    if (largest > 0 && largest * (double)scale < 0x1p-50) {
        errors.sum_sq = sum_of_small(mine, bad, step);
    }
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
    if (is_relative(job)) {
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
    if (is_relative(job)) {
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
DEVICE u32 ordered(u32 b, u32 width) {
    return b ^ ((u32)((i32)b >> 31) & ((1u << (width - 1)) - 1));
}
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

// What FOR packs, from the bits of a value.
DEVICE u32 framed(u32 b, u32 width, u32 kind) {
    if (kind >= KIND_SIGNED) return kind == KIND_SIGNED ? b ^ 1u << (width - 1) : b;
    u32 mask = width == 32 ? ALL : (1u << width) - 1;
    return (b << 1 | b >> (width - 1)) & mask;
}

DEVICE u64 framed(u64 b, u32, u32 kind) {
    if (kind >= KIND_SIGNED) return kind == KIND_SIGNED ? b ^ 1ull << 63 : b;
    return b << 1 | b >> 63;
}

// ---- Prediction --------------------------------------------------------------------------------

DEVICE u32 zigzag(u32 d) { return d << 1 ^ (u32)((i32)d >> 31); }
DEVICE u64 zigzag(u64 d) { return d << 1 ^ (u64)((i64)d >> 63); }

// The bits that tell how wide a number is, whatever its sign.
DEVICE u32 unsigned_of(u32 d) { return d ^ (u32)((i32)d >> 31); }
DEVICE u64 unsigned_of(u64 d) { return d ^ (u64)((i64)d >> 63); }

// 1 of what is not 0.
DEVICE u32 one_of(u32 d) { return min(d, 1u); }
DEVICE u32 one_of(u64 d) { return d != 0; }

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

    // The next coefficient's L.
    DEVICE_MEMBER U once(U q) {
        U d = q - q1;
        q1 = q;
        return PROFILE != 1 ? across_rows<PROFILE, U>(d, lane) : d;
    }

    // L of that, once for each.
    DEVICE_MEMBER U twice(U d) {
        U dd = d - d1;
        d1 = d;
        return PROFILE != 1 ? across_rows<PROFILE, U>(dd, lane) : dd;
    }
};

// Width, and words of a block.
struct Cost {
    u32 width, words;
};

// Of residuals of which `count` are not 0, and whose bits together are `all`, those of negative
// ones flipped: a residual in zig-zag form has one bit more.
template <typename U>
DEVICE Cost cost_of(U all, u32 count, u32 cut) {
    Cost c;
    c.width = count ? width_of((U)(all >> cut)) + 1 : 0;
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
        U once = walker.once(q[i]), twice = walker.twice(once);
        if (!FULL) {
            once = i < inside ? once : 0;
            twice = i < inside ? twice : 0;
        }
        all0 |= unsigned_of(q[i]);
        all1 |= unsigned_of(once);
        all2 |= unsigned_of(twice);
        n0 += one_of(q[i]);
        n1 += one_of(once);
        n2 += one_of(twice);
    }
    costs[0] = cost_of(all0, n0, cut);
    costs[1] = cost_of(all1, n1, cut);
    costs[2] = cost_of(all2, n2, cut);
}

// Replaces coefficients by their residuals in zig-zag form: L as often as TIMES says.
template <int PROFILE, int TIMES, typename U>
DEVICE void residuals(U (&q)[32], u32 inside, u32 lane, u32 cut) {
    Walker<PROFILE, U> walker;
    walker.begin(q, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        U d = TIMES == 0 ? q[i] : TIMES == 1 ? walker.once(q[i]) : walker.twice(walker.once(q[i]));
        q[i] = zigzag(d) >> cut;
    }
    if (inside < 32) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = i < inside ? q[i] : 0;
    }
}

template <int PROFILE, typename U>
DEVICE void residuals_of(U (&q)[32], u32 inside, u32 lane, u32 cut, u32 kind) {
    if (kind == 1) return residuals<PROFILE, 1, U>(q, inside, lane, cut);
    if (kind == 2) return residuals<PROFILE, 2, U>(q, inside, lane, cut);
    residuals<PROFILE, 0, U>(q, inside, lane, cut);
}

template <int PROFILE, typename U>
DEVICE void costs_in(const U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut,
                     Cost (&costs)[3]) {
    if (w.m == 1024) return costs_of<PROFILE, true, U>(q, inside, lane, cut, costs);
    costs_of<PROFILE, false, U>(q, inside, lane, cut, costs);
}

template <typename U>
DEVICE void costs_any(const U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut,
                      Cost (&costs)[3]) {
    if (profile_of(w) == 1) return costs_in<1, U>(q, w, inside, lane, cut, costs);
    if (profile_of(w) == 2) return costs_in<2, U>(q, w, inside, lane, cut, costs);
    costs_in<3, U>(q, w, inside, lane, cut, costs);
}

template <typename U>
DEVICE void residuals_any(U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut, u32 kind) {
    if (profile_of(w) == 1) return residuals_of<1, U>(q, inside, lane, cut, kind);
    if (profile_of(w) == 2) return residuals_of<2, U>(q, inside, lane, cut, kind);
    residuals_of<3, U>(q, inside, lane, cut, kind);
}

// The cost of FOR, and its minimum, from the values in shared memory.
template <typename U>
DEVICE Cost frame_of(const U *mine, u32 inside, u32 width, u32 kind, U &least) {
    U most = 0;
    least = ~(U)0;
    UNROLL for (int i = 0; i < 32; i++) {
        U u = framed(mine[i], width, kind);
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
    const u32 width = bits_of(job.cut), cut = is_exact(job) ? 8 * sizeof(U) - width : 0;
    const U *mine = (const U *)stage + lane * STRIDE;
    bool frame = kind == 5;
    if (frame) {
        __syncwarp();
        UNROLL for (int i = 0; i < 32; i++) {
            q[i] = i < inside ? framed(mine[i], width, kind_of(job.cut)) - least : 0;
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
    const u32 inside = inside_of_block(w, lane), width = bits_of(job.cut);
    const bool exact = is_exact(job);
    U *mine = stage + lane * STRIDE;
    if (w.m == 1024) {
        UNROLL for (int i = 0; i < 32; i++) {
            q[i] = mine[i];
            differ |= q[i] ^ first;
        }
    } else {
        UNROLL for (int i = 0; i < 32; i++) {
            q[i] = mine[i];
            differ |= i < inside ? q[i] ^ first : 0;
        }
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
    if (exact) {
        order(q, width, kind_of(job.cut) < KIND_SIGNED);
    } else if (sizeof(U) == 4 && !is_relative(job) && kind_of(job.cut) == KIND_F32) {
        bad = quantise_f32((i32(&)[32])q, (const u32 *)mine, errors, narrow_step(step_of(a, job, shared.number)));
    } else {
        __syncwarp();
        bad = quantise_staged<U>(mine, inside, job, step_of(a, job, shared.number), errors);
        UNROLL for (int i = 0; i < 32; i++) q[i] = mine[i];
    }
    if (inside < 32) bad &= (1u << inside) - 1;
    errors.outliers = __popc(bad);
    const u32 outliers = exact ? 0 : keep_errors(shared, errors, warp, lane);
    const u32 cut = exact ? 8 * sizeof(U) - width : 0;
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
    if (exact) {
        // Read again, or each value would keep a register from the first time on.
        __syncwarp();
        Cost frame = frame_of(mine, inside, width, kind_of(job.cut), least);
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

// The encoder's part for one chunk, first half: values into shared memory, and coefficients. A warp
// has a chunk, a lane a block of it.

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

// Whether there may be bounds that depend on the values: known where the mode is.
#ifndef MEASURES
#define MEASURES 1
#endif

// What a launch does with the values of a job.
#define WORK_ENCODE 0
#define WORK_MEASURE_TOO 1  // and encode with a guess of the bound
#define WORK_MEASURE 2
#define WORK_NOTHING 3      // the launch after this one encodes

// Errors of the values of a lane.
struct Errors {
    double sum_sq;
    u64 max_bits;  // as the bits of a double
};

// Words of its chunks that a warp keeps until their places are known.
#ifndef KEPT
#define KEPT 1
#endif

// Chunks of wide values are rarely short enough to be kept: a block that waits with one should not
// have the next yet.
#define LATE WIDE

#define SCANNED 4  // tiles whose words a lane adds up at once

// What a block has.
struct Shared {
    alignas(16) Coeff stage[WARPS][FETCHES ? 32 * FETCHED_STRIDE : 32 * STRIDE + 8];
    u32 kept[WARPS][KEPT];
    Job job;
    Entry entry;
    Window windows[WARPS];
    // Of what the block has done of its job.
    u64 max_bits[WARPS];
    double sum_sq[WARPS];
    u32 outliers[WARPS];
    u32 done;
    u32 words[2][WARPS];
    u64 parts[WARPS];
    u32 nearest[WARPS];
    u64 begin;  // of the chain of the job
    u64 start;  // of the job; 0 while it is not known
    u32 next[2], number;
    u32 header[16];
    Step step;  // of the job, or a guess
    u32 work;   // WORK_...
#if MEASURES
    // What is found out about the values of the job. The bits of the guess that is used, 0 for none;
    // of the warps: as in `Found`, and sums of squares that belong to a bin.
    u64 used;
    u64 high[WARPS], low[WARPS], squares[WARPS];
    u32 finite[WARPS], bin[WARPS];
#endif
};

DEVICE bool measures(const Shared &shared) {
    return MEASURES && (shared.work == WORK_MEASURE_TOO || shared.work == WORK_MEASURE);
}

DEVICE const Job *job_at(const EncodeLaunch &a, u32 j) {
    return a.job_table ? (const Job *)a.job_table + j : &a.inline_jobs[j];
}

DEVICE const Entry *entry_at(const EncodeLaunch &a, u32 e) {
    return a.entry_table ? (const Entry *)a.entry_table + e : &a.inline_entries[e];
}

DEVICE Sum *first_sum_at(const EncodeLaunch &a, u32 j) { return &((Tally *)a.sums + j)->first; }

// What the launch sums up of a job.
DEVICE Sum *sum_at(const EncodeLaunch &a, u32 j) {
    return first_sum_at(a, j) + (a.pass == PASS_SECOND ? 1 : 0);
}

DEVICE Found *found_at(const EncodeLaunch &a, u32 j) { return &((Tally *)a.sums + j)->found; }

// The job of a tile: the last one that does not begin after it. By a whole warp.
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

#define PITCH (FETCHES ? FETCHED_STRIDE : STRIDE)  // of a block in it

// The values of 16 bytes to places one after the other, which do not cross a block. Returns 0 if
// all are.
template <typename T, typename U>
DEVICE u32 unpack(U *to, uint4 four) {
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
    return four.x | four.y | four.z | four.w;
}

// Loads that a lane has under way at once. Those that follow a store to shared memory would each
// wait for the one before: the compiler takes the store for one to where they load from.
#define LOADS 8

// Whether rows begin at multiples of 16 bytes, and end there.
template <typename T>
DEVICE bool has_parts(const T *first, const Window &w) {
    const Rows rows = rows_of(w);
    const bool even = profile_of(w) == 1 ? components_of(w) == 1 && w.m == 1024
                                         : (w.wx | rows.row | rows.plane) % (16 / sizeof(T)) == 0;
    return even && ((u64)first & 15) == 0;
}

// A chunk whose rows have parts of 16 bytes; 0 where nothing is inside. Returns 0 if all values of
// the lane are.
template <typename T, typename U>
DEVICE u32 stage_parts(U *stage, const T *first, const Window &w, u32 lane) {
    const u32 per = 16 / sizeof(T), lanes = 32 / per, rows = 32 / lanes;
    const u32 group = lanes < LOADS ? lanes : LOADS, column = lane % lanes * per;
    const Rows steps = rows_of(w);
    const u32 inside = rows_inside(w, column) >> lane / lanes;
    const uint4 zeros = {0, 0, 0, 0};
    u32 some = 0;
    UNROLL for (u32 begin = 0; begin < lanes; begin += group) {
        uint4 parts[group];
        UNROLL for (u32 j = 0; j < group; j++) {
            const u32 row = (begin + j) * rows + lane / lanes;
            const T *from = first + offset_of(steps, row) + column;
            const bool has = inside >> (begin + j) * rows & 1;
            parts[j] = has ? __ldcs((const uint4 *)from) : zeros;
        }
        UNROLL for (u32 j = 0; j < group; j++) {
            const u32 row = (begin + j) * rows + lane / lanes;
            some |= unpack<T, U>(stage + row * PITCH + column, parts[j]);
        }
    }
    return some;
}

// A chunk whose rows lie next to each other, of which a lane has one. Returns 0 if all values of the
// lane are.
template <typename T, typename U>
DEVICE u32 stage_rows(U *stage, const T *source, const Window &w, u32 lane) {
    const T *values = source + row_of(w, lane);
    const u64 step = w.x;
    const u32 inside = inside_of_block(w, lane);
    u32 some = 0;
    UNROLL1 for (u32 begin = 0; begin < 32; begin += LOADS) {
        U row[LOADS];
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            row[j] = begin + j < inside ? (U)values[(begin + j) * step] : 0;
        }
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            stage[lane * PITCH + begin + j] = row[j];
            some |= (u32)row[j] | (u32)((u64)row[j] >> 32);
        }
    }
    return some;
}

// Returns 0 if all values of the lane are.
template <typename T, typename U>
DEVICE u32 stage_values(U *stage, const T *source, const Window &w, u32 lane) {
    if (lie_apart(w)) return stage_rows<T, U>(stage, source, w, lane);
    const T *first = source + w.base;
    if (has_parts(first, w)) return stage_parts<T, U>(stage, first, w, lane);
    const Window own = w;
    const u32 inside = rows_inside(w, lane);
    u32 some = 0;
    UNROLL1 for (u32 begin = 0; begin < 32; begin += LOADS) {
        U values[LOADS];
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            const u64 index = index_of(own, 32 * (begin + j) + lane);
            values[j] = inside >> (begin + j) & 1 ? (U)__ldcs(source + index) : 0;
        }
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            stage[(begin + j) * PITCH + lane] = values[j];
            some |= (u32)values[j] | (u32)((u64)values[j] >> 32);
        }
    }
    return some;
}

#if FETCHES
// The parts of a chunk whose rows have parts of 16 bytes: four rows at a time, of which a lane has a
// part. A warp that has nothing else to do meanwhile takes them itself.
template <bool FULL>
DEVICE void fetch_parts(u32 *to, const u32 *values, const Window &w, u32 lane) {
    const Rows rows = rows_of(w);
    const u32 row = lane / 8, column = lane % 8 * 4;
    const u32 inside = FULL ? ALL : rows_inside(w, column) >> row;
    const uint4 zeros = {0, 0, 0, 0};
    uint4 parts[8];
    values += row * rows.row + column;
    to += FETCHED_STRIDE * row + column;
    UNROLL for (u32 j = 0; j < 8; j++) {
        const bool has = inside >> 4 * j & 1;
        if (ONCE) {
            parts[j] = has ? __ldcs((const uint4 *)values) : zeros;
        } else if (has) {
            fetch16(place_in_shared(to), 4 * FETCHED_STRIDE * j, values);
        } else {
            *(uint4 *)(to + 4 * FETCHED_STRIDE * j) = zeros;
        }
        values += 4 * rows.row + (j & 1 ? rows.plane : 0);
    }
    if (!ONCE) return;
    UNROLL for (u32 j = 0; j < 8; j++) *(uint4 *)(to + 4 * FETCHED_STRIDE * j) = parts[j];
}

// The same, one by one.
template <bool FULL>
DEVICE void fetch_each(u32 *to, const u32 *values, const Window &w, u32 lane) {
    const Rows rows = rows_of(w);
    const u32 inside = FULL ? ALL : rows_inside(w, lane);
    values += lane;
    to += lane;
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (inside >> i & 1) {
            fetch4(place_in_shared(to), FETCHED_STRIDE * i, values);
        } else {
            to[FETCHED_STRIDE * i] = 0;
        }
        values += rows.row + ((i & 7) == 7 ? rows.plane : 0);
    }
}

template <bool FULL>
DEVICE void fetch_some(u32 *to, const u32 *values, const Window &w, u32 lane) {
    if (has_parts(values, w)) return fetch_parts<FULL>(to, values, w, lane);
    fetch_each<FULL>(to, values, w, lane);
}

// The same where rows lie next to each other: a lane has one.
DEVICE void fetch_rows(u32 *to, const u32 *source, const Window &w, u32 lane) {
    const u32 *values = source + row_of(w, lane);
    const u64 step = w.x;
    const u32 inside = inside_of_block(w, lane);
    to += FETCHED_STRIDE * lane;
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (i < inside) {
            fetch4(place_in_shared(to), i, values);
        } else {
            to[i] = 0;
        }
        values += step;
    }
}

// Asks for the values of a chunk; zeros where nothing is inside.
DEVICE void fetch_values(u32 *to, const u32 *source, const Window &w, u32 lane) {
    if (lie_apart(w)) return fetch_rows(to, source, w, lane);
    if (w.m == 1024) return fetch_some<true>(to, source + w.base, w, lane);
    fetch_some<false>(to, source + w.base, w, lane);
}

// Starts to put the values of a chunk into shared memory, each as 32 bits.
DEVICE void fetch_chunk(u32 *stage, const Job &job, const Window &w, u32 lane) {
    switch (FORM & 0xff) {
        case 8: stage_values<u8, u32>(stage, (const u8 *)job.source, w, lane); break;
        case 16: stage_values<u16, u32>(stage, (const u16 *)job.source, w, lane); break;
        default: fetch_values(stage, (const u32 *)job.source, w, lane);
    }
}

// The bits of a lane's values.
DEVICE void read_fetched(const u32 *values, u32 (&x)[32], u32 lane) {
    const uint4 *mine = (const uint4 *)(values + FETCHED_STRIDE * lane);
    UNROLL for (int i = 0; i < 8; i++) {
        uint4 four = mine[i];
        x[4 * i] = four.x, x[4 * i + 1] = four.y, x[4 * i + 2] = four.z, x[4 * i + 3] = four.w;
    }
}
#endif

// A chunk all of whose values are the same; gives its words.
DEVICE u32 stage_constant(u32 *stage, u64 pattern, u32 bits, u32 lane) {
    // Others may still be reading values.
    __syncwarp();
    if (lane == 0) {
        stage[0] = 4;
        stage[1] = (u32)pattern;
        if (bits == 64) stage[2] = (u32)(pattern >> 32);
    }
    __syncwarp();
    return bits == 64 ? 3 : 2;
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

template <typename T>
DEVICE void put_raw(u32 *to, u32 rank, T value) {
    ((T *)to)[rank] = value;
}

// Words of a stream begin at multiples of 4 bytes.
DEVICE void put_raw(u32 *to, u32 rank, u64 value) {
    to[2 * rank] = (u32)value;
    to[2 * rank + 1] = (u32)(value >> 32);
}

// The values inside of a chunk one after the other, of which a lane has a row.
template <typename T>
DEVICE void stage_row(u32 *to, const T *source, const Window &w, u32 lane) {
    const T *values = source + row_of(w, lane);
    const u32 inside = inside_of_block(w, lane);
    const u32 before = profile_of(w) == 2 ? lane : (lane >> 3) * w.hy + (lane & 7);
    UNROLL1 for (u32 i = 0; i < inside; i++) put_raw(to, before * w.wx + i, values[i * w.x]);
}

// The same, of which a lane has a column.
template <typename T>
DEVICE void stage_column(u32 *to, const T *source, const Window &w, u32 lane) {
    if (lie_apart(w)) return stage_row(to, source, w, lane);
    const u32 inside = rows_inside(w, lane), begun = rows_inside(w, 0);
    u32 rank = lane;
    UNROLL1 for (u32 begin = 0; begin < 32; begin += LOADS) {
        T values[LOADS];
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            const bool has = inside >> (begin + j) & 1;
            values[j] = has ? source[index_of(w, 32 * (begin + j) + lane)] : 0;
        }
        UNROLL for (u32 j = 0; j < LOADS; j++) {
            if (inside >> (begin + j) & 1) put_raw(to, rank, values[j]);
            rank += begun >> (begin + j) & 1 ? w.wx : 0;
        }
    }
}

// A chunk as it is, in shared memory, from the array itself; gives its words.
DEVICE u32 stage_values_of(u32 *stage, const Job &job, const Window &w, u32 lane) {
    const u32 bits = bits_of(job.cut), words = raw_words(w.m, bits);
    // Others may still be reading values.
    __syncwarp();
    if (lane == 0) {
        // The last word may have no more than some bytes.
        stage[words - 1] = 0;
        stage[0] = 3;
    }
    __syncwarp();
    switch (bits) {
        case 8: stage_column(stage + 1, (const u8 *)job.source, w, lane); break;
        case 16: stage_column(stage + 1, (const u16 *)job.source, w, lane); break;
        case 32: stage_column(stage + 1, (const u32 *)job.source, w, lane); break;
        default: stage_column(stage + 1, (const u64 *)job.source, w, lane);
    }
    __syncwarp();
    return words;
}

#if FETCHES
// The same of a full chunk that was fetched.
DEVICE u32 stage_full(u32 *stage, u32 lane) {
    const u32 bits = FORM & 0xff, per = 32 / bits;
    u32 words[bits];
    UNROLL for (u32 k = 0; k < bits; k++) {
        const u32 first = (32 * k + lane) * per;
        const u32 *from = stage + (first >> 5) * FETCHED_STRIDE + (first & 31);
        words[k] = 0;
        UNROLL for (u32 j = 0; j < per; j++) words[k] |= from[j] << (bits * j & 31);
    }
    __syncwarp();
    if (lane == 0) stage[0] = 3;
    UNROLL for (u32 k = 0; k < bits; k++) stage[1 + 32 * k + lane] = words[k];
    __syncwarp();
    return 1 + 32 * bits;
}

// The same of one of 32 bits that is not full: a fifth faster than from the array.
DEVICE u32 stage_part(u32 *stage, const Window &w, u32 lane) {
    u32 column[32];
    UNROLL for (int i = 0; i < 32; i++) column[i] = stage[FETCHED_STRIDE * i + lane];
    __syncwarp();
    if (lane == 0) stage[0] = 3;
    const u32 inside = rows_inside(w, lane), begun = rows_inside(w, 0);
    u32 *to = stage + 1 + lane;
    UNROLL for (int i = 0; i < 32; i++) {
        if (inside >> i & 1) *to = column[i];
        to += begun >> i & 1 ? w.wx : 0;
    }
    __syncwarp();
    return raw_words(w.m, 32);
}

DEVICE u32 stage_raw(u32 *stage, const Job &job, const Window &w, u32 lane) {
    if (w.m == 1024) return stage_full(stage, lane);
    if ((FORM & 0xff) == 32) return stage_part(stage, w, lane);
    return stage_values_of(stage, job, w, lane);
}
#endif

// ---- Modes 1 and 2 -----------------------------------------------------------------------------

struct Step32 {
    float e, step, inv;
};

DEVICE float quiet_nan() { return __uint_as_float(0x7fffffff); }

DEVICE Step32 narrow_step(const Step &step) {
    // A step of 0 passes nothing: no comparison with NaN holds.
    Step32 s = {(float)step.e, (float)step.step, step.e > 0 ? (float)step.inv : quiet_nan()};
    return s;
}

// The largest of a lane's values: as an unsigned number, 0 where all bits are 0, and in magnitude,
// NaN where there is one.
struct Largest {
    u32 bits;
    float magnitude;
};

DEVICE Largest largest_of(const u32 (&x)[32]) {
    u32 bits = 0;
    i32 positive = 0;
    // By twos: some devices find the largest of three at once.
    UNROLL for (int i = 0; i < 32; i += 2) {
        bits = max(bits, max(x[i], x[i + 1]));
        positive = max(positive, max((i32)x[i], (i32)x[i + 1]));
    }
    Largest found = {bits, __uint_as_float(max((u32)positive, bits & 0x7fffffffu))};
    return found;
}

// Of the values of a lane: the largest error, and the sum of the squares in units of 1 / scale^2.
struct FloatErrors {
    float largest, sum;
};

// What a coefficient stands for, in the precision of a kind.
DEVICE float stepped(u32 kind, i32 code, const Step32 &step) {
    const float x = __fmul_rn(__int2float_rn(code), step.step);
    return kind == KIND_F32 ? x : widen(kind, narrow(kind, x));
}

// Mode 1 for values up to 32 bits, as float32, where none fails; `most` is the largest magnitude: q
// and the errors of every value of the lane. False when one fails; then what it has left in q is of
// no use.
DEVICE bool quantise_whole(u32 (&q)[32], float most, FloatErrors &errors, u32 kind,
                           const Step32 &step, float scale) {
    float largest = 0, sum = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = __uint_as_float(q[i]);
        i32 code = __float2int_rn(__fmul_rn(x, step.inv));
        float error = __fsub_rn(x, stepped(kind, code, step));
        q[i] = (u32)code;
        largest = fmaxf(largest, fabsf(error));
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
    }
    errors.largest = largest;
    errors.sum = sum;
    // A step of 0 passes nothing, not even a 0.
    return step.e > 0 && __fmul_rn(most, step.inv) < 1e9f && largest <= step.e;
}

// The same where some fail: returns which. The bits of the values are those in shared memory.
DEVICE u32 quantise_some(u32 (&q)[32], const u32 *mine, FloatErrors &errors, u32 kind,
                         const Step32 &step, float scale) {
    u32 bad = 0;
    float largest = 0, sum = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        float x = widen(kind, mine[i]), s = __fmul_rn(x, step.inv);
        i32 code = __float2int_rn(s);
        float error = fabsf(__fsub_rn(x, stepped(kind, code, step)));
        bool ok = fabsf(s) < 1e9f && error <= step.e;
        q[i] = ok ? (u32)code : 0;
        error = ok ? error : 0.0f;
        largest = fmaxf(largest, error);
        float unit = __fmul_rn(error, scale);
        sum = __fmaf_rn(unit, unit, sum);
        bad |= (ok ? 0u : 1u) << i;
    }
    errors.largest = largest;
    errors.sum = sum;
    return bad;
}

// The sum of the squares where errors are so far below the step that they vanish in its units, of
// the values that `coded` says.
template <typename Read>
DEVICE double sum_of_small(u32 coded, u32 kind, const Step32 &step, Read read) {
    double sum = 0;
    UNROLL1 for (; coded; coded &= coded - 1) {
        float x = widen(kind, read(__ffs((int)coded) - 1));
        i32 code = __float2int_rn(__fmul_rn(x, step.inv));
        double error = (double)__fsub_rn(x, stepped(kind, code, step));
        sum = __dadd_rn(sum, __dmul_rn(error, error));
    }
    return sum;
}

// Errors are summed in units in which their squares neither vanish nor overflow.
DEVICE float scale_of(const Step32 &step) {
    return step.inv < 0x1p60f ? __fmul_rn(step.inv, 0x1p60f) : 0x1p120f;
}

// Whether they do vanish.
DEVICE bool vanishes(const FloatErrors &found, float scale) {
    return found.largest > 0 && __fmul_rn(found.largest, scale) < 0x1p-50f;
}

// The errors of the values of a lane that `coded` says, of which `read` gives the bits.
template <typename Read>
DEVICE Errors errors_of(const FloatErrors &found, u32 coded, u32 kind, const Step32 &step,
                        float scale, Read read) {
    const double unit = scale;
    Errors errors = {(double)found.sum / (unit * unit),
                     (u64)__double_as_longlong((double)found.largest)};
    if (vanishes(found, scale)) errors.sum_sq = sum_of_small(coded, kind, step, read);
    return errors;
}

// Adds the errors of a chunk to those of the warp.
DEVICE void keep_errors(Shared &shared, const Errors &errors, u32 outliers, u32 warp, u32 lane) {
    u64 max_bits = max_of_warp(errors.max_bits);
    double sum_sq = sum_of_warp(errors.sum_sq);
    if (lane == 0) {
        shared.max_bits[warp] = max(shared.max_bits[warp], max_bits);
        shared.sum_sq[warp] += sum_sq;
        shared.outliers[warp] += outliers;
    }
}

DEVICE u32 quantise_f32(u32 (&q)[32], const u32 *mine, Errors &errors, const Step32 &step) {
    const float scale = scale_of(step);
    FloatErrors found;
    u32 bad = 0;
    if (!quantise_whole(q, largest_of(q).magnitude, found, KIND_F32, step, scale)) {
        bad = quantise_some(q, mine, found, KIND_F32, step, scale);
    }
    const auto read = [&](u32 i) { return mine[i]; };
    errors = errors_of(found, ~bad, KIND_F32, step, scale, read);
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
    error = fabsf(__fsub_rn(x, stepped(kind, q, step)));
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


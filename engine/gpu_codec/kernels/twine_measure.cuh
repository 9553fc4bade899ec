// The bounds that depend on the values: the extremes and the sum of squares of an array, found out
// while its chunks are encoded with a guess of the bound, or without encoding them where there is
// no guess to rely on. docs/reference/twine.md ("Bounds") says what is computed. A call with such
// bounds has two launches: the second one encodes again where a guess was wrong, and else reports.

#define BINS 128     // of the sums of squares, of 16 powers of two each
#define WEIGHTY 8    // bins that count, from the highest one with something in it on
#define DOUBTFUL 2   // the doubt about a call from which on nothing is guessed
#define MOST_DOUBT 3

DEVICE double least(double a, double b) { return b < a ? b : a; }

// The step of an absolute bound.
DEVICE Step step_for(u32 kind, double eb) {
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    Step step = {eb, 0, 0, 0};
    bool usable = eb > 0 && eb < infinite;
    if (kind == KIND_F64) {
        double smallest = __longlong_as_double((1023ll - 900) << 52);
        double largest = __longlong_as_double((1023ll + 1021) << 52);
        double e = __dmul_rn(eb, 1.0 - 3.552713678800501e-15);  // 2^-48
        step.e = usable && !(e < smallest) ? least(e, largest) : 0;
        step.step = 2 * step.e;
        step.inv = __ddiv_rn(1.0, step.step);
    } else {
        float smallest = __uint_as_float((127 - 100) << 23);
        float largest = __uint_as_float((127 + 125) << 23);
        float e = __double2float_rd(__dmul_rn(eb, 1.0 - 4.76837158203125e-7));  // 2^-21
        e = e > largest ? largest : e;
        step.e = usable && !(e < smallest) ? (double)e : 0;
        step.step = 2 * step.e;
        step.inv = (double)__fdiv_rn(1.0f, (float)step.step);
    }
    if (!(step.e > 0)) step.bound = 0;
    return step;
}

// The bound of the grid that is not above `eb`, as its bits.
DEVICE u64 on_grid(double eb) { return (u64)__double_as_longlong(eb) >> 49 << 49; }

// The epoch of the last launch after which all has to be encoded again, and of the last one with a
// guess that was not right.
DEVICE volatile u32 *again_at(const EncodeLaunch &a) { return (volatile u32 *)a.ticket + 2; }
DEVICE volatile u32 *missed_at(const EncodeLaunch &a) { return (volatile u32 *)a.ticket + 3; }

// The second launch of a call changes how much its guesses are doubted. By one thread of it.
DEVICE void note_guesses(const EncodeLaunch &a) {
    const u32 doubt = min(*(volatile u32 *)a.doubt, (u32)MOST_DOUBT);
    const bool missed = *missed_at(a) == a.epoch - 1;
    *(volatile u32 *)a.doubt = missed ? min(doubt + 1, (u32)MOST_DOUBT) : doubt ? doubt - 1 : 0;
}

DEVICE bool depends_on_values(const Job &job) {
    const u32 rule = job.rule & 0xff;
    return rule == RULE_RANGE || rule == RULE_RMS;
}

// The step of the block's job, and what is done with its values. The guess may be written by other
// launches at any time, so that blocks may have read different ones. By one lane.
DEVICE void take_step(const EncodeLaunch &a, Shared &shared) {
    const Job &job = shared.job;
    const bool doubted = a.pass == PASS_FIRST && *(const volatile u32 *)a.doubt >= DOUBTFUL;
    Step known = {job.bound, job.e, job.step, job.inv};
    shared.step = known;
    shared.work = doubted ? WORK_NOTHING : WORK_ENCODE;
#if MEASURES
    if (!depends_on_values(job)) return;
    if (a.pass == PASS_SECOND) {
        shared.step = ((const Step *)a.steps)[shared.number];
        return;
    }
    const u64 bits = *(const volatile u64 *)job.guess;
    shared.used = doubted ? 0 : bits;
    shared.work = shared.used ? WORK_MEASURE_TOO : WORK_MEASURE;
    shared.step = step_for(kind_of(job.cut), __longlong_as_double((i64)shared.used));
#endif
}

#if MEASURES
// The order of floats as unsigned numbers above 0, which stands for none.
DEVICE u32 rising(float x) {
    u32 b = __float_as_uint(x);
    return b >> 31 ? ~b : b | 1u << 31;
}
DEVICE u64 rising(double x) {
    u64 b = (u64)__double_as_longlong(x);
    return b >> 63 ? ~b : b | 1ull << 63;
}

// What is found out about a lane's values, in their arithmetic type.
template <typename T>
struct Measured {
    T low, high;
    double squares;
    u32 finite;
};

template <typename T>
DEVICE Measured<T> nothing_measured() {
    const T infinite = (T)__uint_as_float(0x7f800000);
    Measured<T> none = {infinite, -infinite, 0, 0};
    return none;
}

// Sum j has the squares of the values 4 i + j of a lane.
struct Squares {
    double sums[4];
};

DEVICE double sum_of(const Squares &own) {
    return __dadd_rn(__dadd_rn(own.sums[0], own.sums[2]), __dadd_rn(own.sums[1], own.sums[3]));
}

// The square of a float is exact in double precision.
DEVICE double plus_square(double sum, float x) {
    return __fma_rn((double)x, (double)x, sum);
}
DEVICE double plus_square(double sum, double x) { return __dadd_rn(sum, __dmul_rn(x, x)); }

DEVICE float without_negligible(float x) { return without_subnormal(x); }
DEVICE double without_negligible(double x) {
    return fabs(x) < __longlong_as_double((1023ll - 500) << 52) ? 0.0 : x;
}

DEVICE float lower(float a, float b) { return fminf(a, b); }
DEVICE float higher(float a, float b) { return fmaxf(a, b); }
DEVICE double lower(double a, double b) { return b < a ? b : a; }
DEVICE double higher(double a, double b) { return b > a ? b : a; }

template <typename T>
DEVICE void measure_value(Measured<T> &own, Squares &squares, T x, u32 i, bool summed) {
    if (!(fabs(x) < (T)__uint_as_float(0x7f800000))) return;
    own.finite++;
    own.low = lower(own.low, x);
    own.high = higher(own.high, x);
    double &sum = squares.sums[i & 3];
    if (summed) sum = plus_square(sum, without_negligible(x));
}

// What the warp has kept of the squares, to the job's bins. By one lane.
DEVICE void add_squares(Shared &shared, u32 warp) {
    u64 *bins = (u64 *)shared.job.bins;
    if (shared.squares[warp]) atomicAdd(bins + shared.bin[warp], shared.squares[warp]);
    shared.squares[warp] = 0;
}

// The sum of the squares of a chunk. By one lane.
DEVICE void note_squares(Shared &shared, double sum, u32 warp) {
    const u64 bits = (u64)__double_as_longlong(sum);
    const u32 exponent = (u32)(bits >> 52), bin = exponent / 16;
    if (exponent == 0) return;
    if (bin != shared.bin[warp]) {
        add_squares(shared, warp);
        shared.bin[warp] = bin;
    }
    const u64 leading = ((bits & ((1ull << 52) - 1)) | 1ull << 52) >> 36;
    shared.squares[warp] += leading << (exponent % 16);
}

// Adds what the lanes have of a chunk to what the warp knows.
template <typename T>
DEVICE void note_measured(Shared &shared, const Measured<T> &own, u32 warp, u32 lane) {
    const bool some = own.finite != 0;
    const auto high = max_of_warp(some ? rising(own.high) : 0);
    const auto low = max_of_warp(some ? ~rising(own.low) : 0);
    const u32 finite = sum_of_warp(own.finite);
    double sum = own.squares;
    if ((shared.job.rule & 0xff) == RULE_RMS) {
        UNROLL for (u32 d = 16; d; d >>= 1) sum = __dadd_rn(sum, __shfl_xor_sync(ALL, sum, d));
    }
    if (lane != 0) return;
    shared.high[warp] = max(shared.high[warp], (u64)high);
    shared.low[warp] = max(shared.low[warp], (u64)low);
    shared.finite[warp] += finite;
    note_squares(shared, sum, warp);
}

// A chunk whose values are in shared memory as their bits.
DEVICE void measure_staged(Shared &shared, const u32 *mine, u32 inside, u32 warp, u32 lane) {
    const u32 kind = kind_of(shared.job.cut);
    const bool summed = (shared.job.rule & 0xff) == RULE_RMS;
    Measured<float> own = nothing_measured<float>();
    Squares squares = {{0, 0, 0, 0}};
    UNROLL1 for (u32 i = 0; i < inside; i += 4) {
        UNROLL for (u32 j = 0; j < 4; j++) {
            if (i + j < inside) measure_value(own, squares, widen(kind, mine[i + j]), j, summed);
        }
    }
    own.squares = sum_of(squares);
    note_measured(shared, own, warp, lane);
}
DEVICE void measure_staged(Shared &shared, const u64 *mine, u32 inside, u32 warp, u32 lane) {
    const bool summed = (shared.job.rule & 0xff) == RULE_RMS;
    Measured<double> own = nothing_measured<double>();
    Squares squares = {{0, 0, 0, 0}};
    UNROLL1 for (u32 i = 0; i < inside; i += 4) {
        UNROLL for (u32 j = 0; j < 4; j++) {
            if (i + j >= inside) continue;
            measure_value(own, squares, __longlong_as_double((i64)mine[i + j]), j, summed);
        }
    }
    own.squares = sum_of(squares);
    note_measured(shared, own, warp, lane);
}

// A chunk of m zeros.
DEVICE void measure_zeros(Shared &shared, u32 m, u32 warp, u32 lane) {
    if (lane != 0) return;
    const bool wide = kind_of(shared.job.cut) == KIND_F64;
    const u64 high = wide ? rising(0.0) : rising(0.0f);
    const u64 low = wide ? ~rising(0.0) : ~rising(0.0f);
    shared.high[warp] = max(shared.high[warp], high);
    shared.low[warp] = max(shared.low[warp], low);
    shared.finite[warp] += m;
}

#if FETCHES
// The squares of the values of a lane, of which `inside` are not zeros outside; all are finite.
DEVICE Measured<float> measure_squares(const u32 *stage, u32 kind, u32 inside, u32 lane) {
    Measured<float> own = {0, 0, 0, inside};
    Squares squares = {{0, 0, 0, 0}};
    u32 bits[32];
    read_fetched(stage, bits, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        const float x = without_subnormal(widen(kind, bits[i]));
        squares.sums[i & 3] = plus_square(squares.sums[i & 3], x);
    }
    own.squares = sum_of(squares);
    return own;
}

// Whether a chunk may have values beyond those that the warp has seen: not if its largest ones are
// smaller in magnitude than both extremes.
DEVICE bool may_extend(const Shared &shared, float most, u32 warp) {
    const u32 high = (u32)shared.high[warp], low = ~(u32)shared.low[warp];
    // NaN while there are none.
    const float top = __uint_as_float(high >> 31 ? high & ~(1u << 31) : ~high);
    const float bottom = __uint_as_float(low >> 31 ? low & ~(1u << 31) : ~low);
    return __any_sync(ALL, !(most <= top && most <= -bottom));
}

// The extremes of a lane's values of a full chunk, which are finite.
DEVICE Measured<float> measure_extremes(const u32 *stage, u32 kind, u32 lane) {
    Measured<float> own = nothing_measured<float>();
    own.finite = 32;
    u32 bits[32];
    read_fetched(stage, bits, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        const float x = widen(kind, bits[i]);
        own.low = fminf(own.low, x);
        own.high = fmaxf(own.high, x);
    }
    return own;
}

// A chunk that was fetched; `most` is the largest value of the lane, if all of the chunk are
// finite.
DEVICE void measure_fetched(Shared &shared, bool finite, float most, u32 inside, u32 warp,
                            u32 lane) {
    const u32 *stage = shared.stage[warp];
    const bool summed = (shared.job.rule & 0xff) == RULE_RMS;
    const u32 kind = kind_of(shared.job.cut);
    if (finite && summed) {
        note_measured(shared, measure_squares(stage, kind, inside, lane), warp, lane);
    } else if (!finite || may_extend(shared, most, warp)) {
        if (finite && shared.windows[warp].m == 1024) {
            note_measured(shared, measure_extremes(stage, kind, lane), warp, lane);
        } else {
            measure_staged(shared, stage + FETCHED_STRIDE * lane, inside, warp, lane);
        }
    }
}
#endif

// Nothing is known of the block's job yet. By a warp.
DEVICE void begin_measuring(Shared &shared, u32 lane) {
    if (lane >= WARPS) return;
    shared.high[lane] = shared.low[lane] = shared.squares[lane] = 0;
    shared.finite[lane] = shared.bin[lane] = 0;
}

// Adds what the warps know of the block's job to what others do. By one lane.
DEVICE void add_measured(const EncodeLaunch &a, Shared &shared) {
    if (!measures(shared)) return;
    u64 high = 0, low = 0, finite = 0;
    for (u32 i = 0; i < WARPS; i++) {
        high = max(high, shared.high[i]);
        low = max(low, shared.low[i]);
        finite += shared.finite[i];
        add_squares(shared, i);
    }
    Found *found = found_at(a, shared.number);
    if (high) atomicMax(&found->high, high);
    if (low) atomicMax(&found->low, low);
    if (finite) atomicAdd(&found->finite, finite);
    atomicMax(&found->most_used, shared.used);
    atomicMax(&found->least_used, ~shared.used);
}

// The extremes as numbers. Those below Tiny count as 0.
DEVICE double extreme_of(u64 rising, u32 kind) {
    if (kind == KIND_F64) {
        u64 bits = rising >> 63 ? rising & ~(1ull << 63) : ~rising;
        return bits << 1 < 2ull << 52 ? 0.0 : __longlong_as_double((i64)bits);
    }
    u32 narrow = (u32)rising, bits = narrow >> 31 ? narrow & ~(1u << 31) : ~narrow;
    return bits << 1 < 2u << 23 ? 0.0 : (double)__uint_as_float(bits);
}

// The root of the mean of the squares; the bins are 0 again. By a whole warp.
DEVICE double root_of_mean(u64 *bins, u64 n, u32 lane) {
    u32 highest = 0;
    for (u32 g = lane; g < BINS; g += 32) highest = *(volatile u64 *)(bins + g) ? g + 1 : highest;
    highest = max_of_warp(highest);
    double root = 0;
    if (lane == 0 && highest) {
        double sum = 0;
        for (u32 g = highest > WEIGHTY ? highest - WEIGHTY : 0; g < highest; g++) {
            double own = __ull2double_rn(*(volatile u64 *)(bins + g));
            sum = __dadd_rn(__dmul_rn(sum, 0x1p-16), own);
        }
        // A unit is an odd power of two: half of it is a square.
        root = __dsqrt_rn(__ddiv_rn(2 * sum, __ull2double_rn(n)));
        root *= __longlong_as_double((i64)(1023 + 8 * (highest - 1) - 520) << 52);
    }
    __syncwarp();
    for (u32 g = lane; g < highest; g += 32) *(volatile u64 *)(bins + g) = 0;
    return root;
}

// All of the block's job has been measured: its bound, and whether all blocks have guessed that. By
// a whole warp.
DEVICE void settle_bound(const EncodeLaunch &a, Shared &shared, u32 lane) {
    if (!measures(shared)) return;
    const Job &job = shared.job;
    volatile Found *found = found_at(a, shared.number);
    const u64 finite = found->finite;
    double eb = 0;
    if ((job.rule & 0xff) == RULE_RMS) {
        eb = __dmul_rn(job.bound, root_of_mean((u64 *)job.bins, finite, lane));
    } else if (finite) {
        const u32 kind = kind_of(job.cut);
        eb = __dsub_rn(extreme_of(found->high, kind), extreme_of(~found->low, kind));
        eb = __dmul_rn(job.bound, eb);
    }
    if (lane == 0) {
        const u64 bits = on_grid(eb);
        const bool same = found->most_used == bits && found->least_used == ~bits;
        // A block without a guess has encoded nothing.
        const bool held = same && bits != 0;
        if (!held) *again_at(a) = a.epoch;
        ((Step *)a.steps)[shared.number] =
            step_for(kind_of(job.cut), __longlong_as_double((i64)bits));
        volatile u64 *guess = (volatile u64 *)job.guess;
        const u64 before = *guess;
        if (before != 0 && before != bits) *missed_at(a) = a.epoch;
        *guess = bits;
        found->high = found->low = found->finite = 0;
        found->most_used = found->least_used = 0;
    }
    __syncwarp();
}
#else
DEVICE void begin_measuring(Shared &, u32) {}
DEVICE void add_measured(const EncodeLaunch &, Shared &) {}
DEVICE void settle_bound(const EncodeLaunch &, Shared &, u32) {}
#endif

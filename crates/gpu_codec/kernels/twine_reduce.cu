// The bounds that depend on the values: smallest and largest finite value and the sum of squares,
// in the order that docs/reference/twine.md gives, and the step that follows. A warp has 1024
// values.

struct Part {
    double min, max;
    u64 finite;
};

// What the blocks of a job find together is kept in its `Sum`, where 0 stands for nothing, and is 0
// again afterwards. The order of doubles as unsigned numbers, moved so that 0 is below all of them.
DEVICE u64 rising(double x) {
    u64 b = (u64)__double_as_longlong(x);
    return (b >> 63 ? ~b : b | 1ull << 63);
}

DEVICE double unrisen(u64 r) {
    return __longlong_as_double((i64)(r >> 63 ? r & ~(1ull << 63) : ~r));
}

DEVICE const Job *reduced_job(const EncodeLaunch &a, u32 j) {
    return a.job_table ? (const Job *)a.job_table + j : &a.inline_jobs[j];
}

// The job of a tile. Those without tiles are passed over.
DEVICE u32 find_reduced(const EncodeLaunch &a, u32 tile) {
    for (u32 j = 0; j < a.jobs; j++) {
        const Job *job = reduced_job(a, j);
        if (job->reduces && tile - job->reduce0 < job->reduces) return j;
    }
    return 0;
}

DEVICE float narrow_value(const Job &job, u64 index) {
    if (kind_of(job.cut) == KIND_F32) return ((const float *)job.source)[index];
    return widen(kind_of(job.cut), ((const u16 *)job.source)[index]);
}

// The sum over the lanes in the order of the format: the same in all of them.
DEVICE double tree_sum(double s) {
    UNROLL for (u32 d = 16; d; d >>= 1) s = __dadd_rn(s, __shfl_xor_sync(ALL, s, d));
    return s;
}

DEVICE double least(double a, double b) { return b < a ? b : a; }

// A group of float64 values: its sum of squares, and what it adds to the rest. Below `tiny` a value
// counts as 0, below `negligible` its square does.
DEVICE double wide_group(const Job &job, u64 group, u32 lane, Part &part) {
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    const double tiny = __longlong_as_double(1ll << 52);
    const double negligible = __longlong_as_double((1023ll - 500) << 52);
    double s = 0;
    u64 at = group * 1024 + lane;
    UNROLL for (u32 i = 0; i < 32; i++, at += 32) {
        if (at >= job.n) continue;
        double x = ((const double *)job.source)[at], magnitude = fabs(x);
        if (!(magnitude < infinite)) continue;
        part.finite++;
        if (magnitude < tiny) x = 0;
        part.min = least(part.min, x);
        part.max = -least(-part.max, -x);
        if (!(magnitude < negligible)) s = __dadd_rn(s, __dmul_rn(x, x));
    }
    return tree_sum(s);
}

// The same for narrower values, in float32 but for the sum, which is taken only where it is needed.
DEVICE double narrow_group(const Job &job, u64 group, u32 lane, Part &part) {
    const float infinite = __uint_as_float(0x7f800000), tiny = __uint_as_float(1u << 23);
    const bool summed = (job.rule & 0xff) == RULE_RMS;
    float low = infinite, high = -infinite;
    double s = 0;
    u32 finite = 0;
    u64 at = group * 1024 + lane;
    float values[32];
    if (group * 1024 + 1024 <= job.n) {
        // All of them are on their way at once.
        UNROLL for (u32 i = 0; i < 32; i++) values[i] = narrow_value(job, at + 32 * i);
    } else {
        // Infinity stands for what is not there.
        UNROLL for (u32 i = 0; i < 32; i++) {
            values[i] = at + 32 * i < job.n ? narrow_value(job, at + 32 * i) : infinite;
        }
    }
    UNROLL for (u32 i = 0; i < 32; i++) {
        float x = values[i], magnitude = fabsf(x);
        if (!(magnitude < infinite)) continue;
        finite++;
        x = magnitude < tiny ? 0.0f : x;
        low = fminf(low, x);
        high = fmaxf(high, x);
        if (summed) s = __dadd_rn(s, __dmul_rn((double)x, (double)x));
    }
    part.finite += finite;
    part.min = least(part.min, (double)low);
    part.max = -least(-part.max, -(double)high);
    return summed ? tree_sum(s) : 0;
}

// A group of 1024 sums of the level below.
DEVICE double sum_of_sums(const volatile double *sums, u64 count, u64 group, u32 lane) {
    double s = 0;
    u64 at = group * 1024 + lane;
    for (u32 i = 0; i < 32 && at < count; i++, at += 32) s = __dadd_rn(s, sums[at]);
    return tree_sum(s);
}

// All sums of the groups to one. By a whole block; each level lies after the one below.
DEVICE double total_sum(volatile double *sums, u64 count, u32 warp, u32 lane) {
    while (count > 1) {
        volatile double *next = sums + count;
        u64 groups = (count + 1023) / 1024;
        for (u64 group = warp; group < groups; group += WARPS) {
            double s = sum_of_sums(sums, count, group, lane);
            if (lane == 0) next[group] = s;
        }
        __threadfence_block();
        __syncthreads();
        sums = next;
        count = groups;
    }
    return sums[0];
}

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


struct ReduceShared {
    double min[WARPS], max[WARPS];
    u64 finite[WARPS];
    u32 last;
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
twine_reduce(const __grid_constant__ EncodeLaunch a) {
    __shared__ ReduceShared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const double infinite = __longlong_as_double(0x7ff0000000000000ll);
    const u32 number = find_reduced(a, blockIdx.x);
    const Job job = *reduced_job(a, number);
    const u64 groups = (job.n + 1023) / 1024;
    // As many groups for every warp as there have to be.
    const u64 warps = (u64)job.reduces * WARPS, per = (groups + warps - 1) / warps;
    const u64 first = ((u64)(blockIdx.x - job.reduce0) * WARPS + warp) * per;
    double *sums = (double *)job.partials;
    Sum *sum = (Sum *)a.sums + number;
    Part part = {infinite, -infinite, 0};
    for (u64 group = first; group < min(first + per, groups); group++) {
        bool wide = kind_of(job.cut) == KIND_F64;
        double s = wide ? wide_group(job, group, lane, part) : narrow_group(job, group, lane, part);
        if (lane == 0) sums[group] = s;
    }
    UNROLL for (u32 d = 16; d; d >>= 1) {
        part.min = least(part.min, __shfl_xor_sync(ALL, part.min, d));
        part.max = -least(-part.max, -__shfl_xor_sync(ALL, part.max, d));
    }
    part.finite = sum_of_warp(part.finite);
    if (lane == 0) {
        shared.min[warp] = part.min;
        shared.max[warp] = part.max;
        shared.finite[warp] = part.finite;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 i = 1; i < WARPS; i++) {
            part.min = least(part.min, shared.min[i]);
            part.max = -least(-part.max, -shared.max[i]);
            part.finite += shared.finite[i];
        }
        if (part.finite) {
            atomicMax(&sum->max_bits, rising(part.max));
            // The smallest as the largest of the complement.
            atomicMax(&sum->start, ~rising(part.min));
            atomicAdd(&sum->outliers, part.finite);
        }
        __threadfence();
        shared.last = atomicAdd(&sum->done, 1u) + 1 == job.reduces;
        __threadfence();
    }
    __syncthreads();
    if (!shared.last) return;
    double total = 0;
    if ((job.rule & 0xff) == RULE_RMS && groups) total = total_sum(sums, groups, warp, lane);
    if (threadIdx.x != 0) return;
    volatile Sum *found = sum;
    u64 finite = found->outliers;
    double eb = 0;
    if (finite && (job.rule & 0xff) == RULE_RANGE) {
        double range = __dsub_rn(unrisen(found->max_bits), unrisen(~found->start));
        eb = __dmul_rn(job.bound, range);
    } else if (finite) {
        eb = __dmul_rn(job.bound, __dsqrt_rn(__ddiv_rn(total, (double)finite)));
    }
    ((Step *)a.steps)[number] = step_for(kind_of(job.cut), eb);
    found->max_bits = 0;
    found->start = 0;
    found->outliers = 0;
    found->done = 0;
}

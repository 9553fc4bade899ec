// From the values of a chunk to what becomes of it. A warp has a chunk, a lane a block of it.

// Measures a chunk from values in shared memory, if it is asked for. True if that is all.
template <typename U>
DEVICE bool only_measures(Shared &shared, U *stage, u32 warp, u32 lane) {
#if MEASURES
    if (!measures(shared)) return false;
    const u32 inside = inside_of_block(shared.windows[warp], lane);
    measure_staged(shared, stage + lane * STRIDE, inside, warp, lane);
    return shared.work == WORK_MEASURE;
#else
    return false;
#endif
}

// From values in shared memory to what the chunk becomes there; gives its words.
template <typename U>
DEVICE u32 encode_staged(Shared &shared, U *stage, u32 warp, u32 lane) {
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
    if (!__any_sync(ALL, differ != 0)) {
        return first ? stage_constant((u32 *)stage, first, width, lane) : 0;
    }
    u32 bad = 0;
    Errors errors = {0, 0};
    if (exact) {
        order(q, width, kind_of(job.cut) < KIND_SIGNED);
    } else if (sizeof(U) == 4 && !is_relative(job) && kind_of(job.cut) == KIND_F32) {
        const Step32 step = narrow_step(shared.step);
        bad = quantise_f32((u32(&)[32])q, (const u32 *)mine, errors, step);
    } else {
        __syncwarp();
        bad = quantise_staged<U>(mine, inside, job, shared.step, errors);
        UNROLL for (int i = 0; i < 32; i++) q[i] = mine[i];
    }
    if (inside < 32) bad &= (1u << inside) - 1;
    const u32 outliers = exact ? 0 : sum_of_warp((u32)__popc(bad));
    const u32 cut = exact ? 8 * sizeof(U) - width : 0;
    if (cut) {
        UNROLL for (int i = 0; i < 32; i++) q[i] <<= cut;
    }
    u32 widths[3];
    widths_any(q, w, inside, lane, cut, widths);
    if (cut) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = (U)((i32)q[i] >> cut);
    }
    u32 kind = 0, least_words = sum_of_warp(widths[0]);
    Cost cost = {widths[0], 0};
    const u32 words1 = sum_of_warp(widths[1]), words2 = sum_of_warp(widths[2]);
    if (words1 < least_words) kind = 1, least_words = words1, cost.width = widths[1];
    if (words2 < least_words) kind = 2, least_words = words2, cost.width = widths[2];
    U least = 0;
    if (exact) {
        // Read again, or each value would keep a register from the first time on.
        __syncwarp();
        Cost frame = frame_of(mine, inside, width, kind_of(job.cut), least);
        u32 words5 = sum_of_warp(frame.words);
        if (words5 < least_words) kind = 5, least_words = words5, cost = frame;
    }
    if (least_words == 0 && outliers == 0) {
        if (!exact) keep_errors(shared, errors, 0, warp, lane);
        return 0;
    }
    cost = numbers_of(q, mine, w, job, lane, inside, kind, cost, least);
    const u32 block_words = sum_of_warp(cost.words);
    const u32 words = 9 + block_words + (outliers + 1) / 2 + outliers * (width == 64 ? 2 : 1);
    if (outliers > 256 || words >= raw_words(w.m, width)) {
        if (lane == 0) shared.outliers[warp] += outliers;
        return stage_values_of((u32 *)stage, job, w, lane);
    }
    if (!exact) keep_errors(shared, errors, outliers, warp, lane);
    pack<U>((u32 *)stage, q, w, job, lane, kind, cost, block_words, bad, least);
    __syncwarp();
    return words;
}

// The chunk's window, and the values where they are fetched.
DEVICE void begin_chunk(Shared &shared, u32 c, u32 warp, u32 lane) {
    const Job &job = shared.job;
    Window &w = shared.windows[warp];
    // Other lanes may still be writing the chunk before.
    __syncwarp();
    if (lane == 0) w = window_of(job.cut, job.steps, job.n, c);
    __syncwarp();
#if FETCHES
    fetch_chunk(shared.stage[warp], job, w, lane);
    wait_for_fetched();
    __syncwarp();
#endif
}

#if !FETCHES
// A chunk of zeros: no words.
DEVICE u32 encode_zeros(Shared &shared, u32 warp, u32 lane) {
#if MEASURES
    if (measures(shared)) measure_zeros(shared, shared.windows[warp].m, warp, lane);
#endif
    return 0;
}

// From values in shared memory on; `some` is 0 if all of the lane's are.
template <typename U>
DEVICE u32 encode_some(Shared &shared, U *stage, u32 some, u32 warp, u32 lane) {
    if (!__any_sync(ALL, some != 0)) return encode_zeros(shared, warp, lane);
    __syncwarp();
    if (only_measures(shared, stage, warp, lane)) return 0;
    return encode_staged<U>(shared, stage, warp, lane);
}

// Values of T into shared memory.
template <typename T, typename U>
DEVICE u32 stage_chunk(Shared &shared, U *stage, u32 warp, u32 lane) {
    const T *source = (const T *)shared.job.source;
    return stage_values<T, U>(stage, source, shared.windows[warp], lane);
}

// The general way.
DEVICE u32 encode_any(Shared &shared, u32 warp, u32 lane) {
    const u32 bits = bits_of(shared.job.cut);
#if WIDE
    if (bits == 64) {
        u64 *stage = shared.stage[warp];
        const u32 some = stage_chunk<u64, u64>(shared, stage, warp, lane);
        return encode_some(shared, stage, some, warp, lane);
    }
#endif
    u32 *stage = (u32 *)shared.stage[warp], some;
    switch (bits) {
        case 8: some = stage_chunk<u8, u32>(shared, stage, warp, lane); break;
        case 16: some = stage_chunk<u16, u32>(shared, stage, warp, lane); break;
        default: some = stage_chunk<u32, u32>(shared, stage, warp, lane);
    }
    return encode_some(shared, stage, some, warp, lane);
}
#endif

// Encodes a chunk in shared memory; gives its words.
DEVICE u32 encode_chunk(Shared &shared, LaneErrors &errors, u32 warp, u32 lane) {
#if FETCHES
    return encode_fetched(shared, errors, warp, lane);
#else
    return encode_any(shared, warp, lane);
#endif
}

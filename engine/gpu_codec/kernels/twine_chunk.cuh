// From the values of a chunk to what becomes of it. A warp has a chunk, a lane a block of it.

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

// Measures a chunk from values in shared memory, if it is asked for. True if that is all.
template <typename U>
DEVICE bool only_measures(Shared &shared, U *stage, bool measured, u32 warp, u32 lane) {
#if MEASURES
    if (!measures(shared)) return false;
    const u32 inside = inside_of_block(shared.windows[warp], lane);
    if (!measured) measure_staged(shared, stage + lane * STRIDE, inside, warp, lane);
    return shared.work == WORK_MEASURE;
#else
    return false;
#endif
}

// From values in shared memory to what the chunk becomes, packed there if it is coded.
template <typename U>
DEVICE Chunk encode_staged(Shared &shared, U *stage, u32 warp, u32 lane) {
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
    Errors errors = {0, 0};
    if (exact) {
        order(q, width, kind_of(job.cut) < KIND_SIGNED);
    } else if (sizeof(U) == 4 && !is_relative(job) && kind_of(job.cut) == KIND_F32) {
        const Step32 step = narrow_step(shared.step);
        bad = quantise_f32((i32(&)[32])q, (const u32 *)mine, errors, step);
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
        return chunk;
    }
    cost = numbers_of(q, mine, w, job, lane, inside, kind, cost, least);
    const u32 words = sum_of_warp(cost.words), raw = raw_words(w.m, width);
    chunk.words = 9 + words + (outliers + 1) / 2 + outliers * (width == 64 ? 2 : 1);
    if (outliers > 256 || chunk.words >= raw) {
        chunk.what = CHUNK_RAW;
        chunk.words = raw;
        if (lane == 0) shared.outliers[warp] += outliers;
        return chunk;
    }
    if (!exact) keep_errors(shared, errors, outliers, warp, lane);
    chunk.what = CHUNK_CODED;
    pack<U>((u32 *)stage, q, w, job, lane, kind, cost, words, bad, least);
    __syncwarp();
    return chunk;
}

// The chunk's window, and the values of a full one if it can go the quick way. True then.
DEVICE bool begin_chunk(Shared &shared, u32 c, u32 warp, u32 lane) {
    const Job &job = shared.job;
    Window &w = shared.windows[warp];
    // Other lanes may still be writing the chunk before.
    __syncwarp();
    if (lane == 0) w = window_of(job.cut, job.n, c);
    __syncwarp();
#if FETCHES
    if (w.m != 1024) return false;
    fetch_values(shared.stage[warp], (const u32 *)job.source, w, lane);
    wait_for_fetched();
    __syncwarp();
    return true;
#else
    return false;
#endif
}

// A chunk of zeros.
DEVICE Chunk encode_zeros(Shared &shared, bool measured, u32 warp, u32 lane) {
#if MEASURES
    if (measures(shared) && !measured) measure_zeros(shared, shared.windows[warp].m, warp, lane);
#endif
    Chunk chunk = {CHUNK_EMPTY, 0, 0};
    return chunk;
}

// The general way; `measured` says whether the chunk has been measured before.
DEVICE Chunk encode_any(Shared &shared, bool measured, u32 warp, u32 lane) {
    Coeff *stage = shared.stage[warp];
    const Job &job = shared.job;
    const Window &w = shared.windows[warp];
    Chunk chunk = {CHUNK_EMPTY, 0, 0};
    u32 some;
#if WIDE
    if (bits_of(job.cut) == 64) {
        some = stage_values<u64, u64>(stage, (const u64 *)job.source, w, lane);
        if (!__any_sync(ALL, some != 0)) return encode_zeros(shared, measured, warp, lane);
        __syncwarp();
        if (only_measures(shared, stage, measured, warp, lane)) return chunk;
        return encode_staged<u64>(shared, stage, warp, lane);
    }
#endif
    u32 *narrow = (u32 *)stage;
    switch (bits_of(job.cut)) {
        case 8: some = stage_values<u8, u32>(narrow, (const u8 *)job.source, w, lane); break;
        case 16: some = stage_values<u16, u32>(narrow, (const u16 *)job.source, w, lane); break;
        default: some = stage_values<u32, u32>(narrow, (const u32 *)job.source, w, lane);
    }
    if (!__any_sync(ALL, some != 0)) return encode_zeros(shared, measured, warp, lane);
    __syncwarp();
    if (only_measures(shared, narrow, measured, warp, lane)) return chunk;
    return encode_staged<u32>(shared, narrow, warp, lane);
}

DEVICE Chunk encode_chunk(Shared &shared, LaneErrors &errors, bool fetched, u32 warp, u32 lane) {
    bool measured = false;
#if QUICK
    Chunk chunk = {CHUNK_EMPTY, 0, 0};
#if MEASURES
    if (fetched && shared.work == WORK_MEASURE) {
        measure_fetched(shared, warp, lane);
        return chunk;
    }
#endif
    if (fetched && encode_quick(shared, errors, warp, lane, chunk, measured)) return chunk;
    __syncwarp();
#elif EXACT
    if (fetched) return encode_exact(shared, warp, lane);
#endif
    return encode_any(shared, measured, warp, lane);
}

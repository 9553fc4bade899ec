// Encodes arrays as Twine streams, and copies others, one behind the other. A block of threads has
// a tile, as many chunks as it has warps; twine_chunk.cuh says what a warp does with one.

// ---- Places ------------------------------------------------------------------------------------

DEVICE u64 word_of(const EncodeLaunch &a, u64 state, u64 value) {
    return (u64)a.epoch << WORD_EPOCH | state | value;
}

// Waits for the word of another tile or job, which has begun.
DEVICE u64 wait_for(const EncodeLaunch &a, const u64 *word) {
    u64 found = look_at(word);
    while (found >> WORD_EPOCH != a.epoch) {
        pause();
        found = look_at(word);
    }
    return found;
}

// Words of the tiles of the job before this one. By a whole warp.
DEVICE u64 look_back(const EncodeLaunch &a, u32 tile, u32 tile0, u64 own, u32 lane) {
    u64 *status = (u64 *)a.status;
    if (tile == tile0) {
        if (lane == 0) publish(status + tile, word_of(a, WORD_ALL, own));
        return 0;
    }
    if (lane == 0) publish(status + tile, word_of(a, WORD_SUM, own));
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
    if (lane == 0) publish(status + tile, word_of(a, WORD_ALL, sum + own));
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
            word = look_at(totals + other);
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
        UNROLL4 for (u32 i = lane * 16; i < done; i += 512) {
            __stcs((uint4 *)(to + i), __ldcs((const uint4 *)(from + i)));
        }
    } else if (((u64)from & 3) == 0) {
        done = len & ~3u;
        UNROLL1 for (u32 i = lane * 4; i < done; i += 128) {
            __stcs((u32 *)(to + i), __ldcs((const u32 *)(from + i)));
        }
    } else {
        done = len & ~3u;
        UNROLL1 for (u32 i = lane * 4; i < done; i += 128) {
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
        u64 payload = look_at(status + job.tile0 + job.tiles - 1) & WORD_VALUE;
        u64 max_bits = *(volatile u64 *)&sum->max_bits;
        stored = HEADER_BYTES + 4 * ((u64)job.cut.n_chunks + 1 + payload);
        write_header(a, shared, start, payload, max_bits, lane);
    }
    if (lane == 0) *(volatile u64 *)&sum->stored = stored;
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

// Waits until a count has come so far; what it counts has begun. The counter is 0 again then.
DEVICE void wait_for_count(u32 *count, u32 all, u32 lane) {
    if (lane == 0) {
        while (load_acquire(count) != all) pause();
        *(volatile u32 *)count = 0;
    }
    __syncwarp();
}

// What this block has written is there for whoever sees the count.
DEVICE void raise_count(u32 *count) {
    __threadfence();
    atomicAdd(count, 1u);
}

// A tile is done. By the first warp, when all others are. The last tile of a job waits for the
// others and ends the job; that of the last job ends the checkpoint.
DEVICE void end_tile(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Job &job = shared.job;
    Sum *sum = sum_at(a, shared.number);
    if (lane == 0 && (job.rule & 0xff) > RULE_EXACT) {
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
    if (lane == 0) raise_count(&sum->done);
    if (shared.tile + 1 != job.tile0 + job.tiles) return;
    wait_for_count(&sum->done, job.tiles, lane);
    end_job(a, shared, lane);
    __syncwarp();
    u32 *count = (u32 *)a.counts + job.entry;
    if (lane == 0) raise_count(count);
    if (shared.number + 1 != shared.entry.job0 + shared.entry.jobs) return;
    wait_for_count(count, shared.entry.jobs, lane);
    end_entry(a, shared.entry, lane);
}

// ---- The kernel --------------------------------------------------------------------------------

DEVICE void take_job(const EncodeLaunch &a, Shared &shared, u32 number, u32 lane) {
    const u32 *job = (const u32 *)job_at(a, number);
    ((u32 *)&shared.job)[lane] = job[lane];
    __syncwarp();
    const u32 *entry = (const u32 *)entry_at(a, shared.job.entry);
    if (lane < 16) ((u32 *)&shared.entry)[lane] = entry[lane];
}

// The tile of this block, its job and its checkpoint.
DEVICE void take_tile(const EncodeLaunch &a, Shared &shared, u32 lane) {
    u32 ticket = 0, number = 0;
    if (lane == 0) ticket = atomicAdd((u32 *)a.ticket, 1u) - a.first_ticket;
    // A job that is the only one is read while the ticket is on its way.
    if (a.jobs == 1) take_job(a, shared, 0, lane);
    const u32 tile = __shfl_sync(ALL, ticket, 0);
    if (a.jobs != 1) {
        number = find_job(a, tile, lane);
        take_job(a, shared, number, lane);
    }
    if (lane == 0) {
        shared.tile = tile;
        shared.number = number;
    }
}

// Publishes the size of a job and where it ends. `begin` is that of its chain.
DEVICE void publish_size(const EncodeLaunch &a, const Shared &shared, u64 bytes) {
    u64 *total = (u64 *)a.totals + shared.number;
    publish(total, word_of(a, WORD_SUM, align_up(bytes, UNIT) / UNIT));
}

DEVICE void publish_end(const EncodeLaunch &a, const Shared &shared, u64 bytes) {
    const Entry *head = entry_at(a, shared.entry.head);
    u64 begin = chain_begin(*head);
    u64 end = (shared.start - begin + align_up(bytes, UNIT)) / UNIT;
    end = end_of(begin, end, shared.job, shared.number, shared.entry);
    publish((u64 *)a.totals + shared.number, word_of(a, WORD_ALL, end));
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

extern "C" __global__ void BOUNDS
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

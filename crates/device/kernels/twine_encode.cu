// Encodes arrays as Twine streams, and copies others, one behind the other. A block of threads
// takes one tile, or tiles in order until none is left: as many chunks, or parts of a raw job, as
// it has warps.
// twine_chunk.cuh says what a warp does with a chunk, twine_places.cuh where tiles go.

// ---- Out ---------------------------------------------------------------------------------------

// What is not kept in shared memory, to where the chunk belongs.
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

// Words of the chunks of the block's job, all of which are done.
DEVICE u64 payload_of(const EncodeLaunch &a, const Job &job) {
    if (job.cut.n_chunks == 0) return 0;
    return look_at((const u64 *)a.status + job.tile0 + job.tiles - 1) & WORD_VALUE;
}

// All of the block's job is done: its header, and the zeros up to the next job. By a whole warp.
DEVICE void end_job(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Job &job = shared.job;
    Sum *sum = sum_at(a, shared.number);
    u64 start = *(volatile u64 *)&sum->start, stored = job.n;
    if ((job.rule & 0xff) != RULE_RAW) {
        u64 payload = payload_of(a, job);
        u64 max_bits = *(volatile u64 *)&sum->max_bits;
        stored = table_end(job) + 4 * payload;
        write_header(a, shared, start, payload, max_bits, lane);
    }
    if (lane == 0) *(volatile u64 *)&sum->stored = stored;
    if (shared.number + 1 < shared.entry.job0 + shared.entry.jobs) {
        u64 end = start + stored, next = min(align_up(end, UNIT), shared.entry.limit);
        for (u64 at = end + lane; at < next; at += 32) *(u8 *)at = 0;
    }
    __syncwarp();
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

// Counts what this block has done: true for the one that completes it, who then sees what all have
// done, and for whom the counter is 0 again. By a whole warp.
DEVICE bool completes(u32 *count, u32 done, u32 all, u32 lane) {
    bool last = false;
    if (lane == 0) {
        __threadfence();
        last = atomicAdd(count, done) + done == all;
        if (last) *(volatile u32 *)count = 0;
        __threadfence();
    }
    __syncwarp();
    return __any_sync(ALL, last);
}

// Adds what the warps know of the block's job to what others do.
DEVICE void add_errors(const EncodeLaunch &a, const Shared &shared) {
    u64 max_bits = 0, outliers = 0;
    double sum_sq = 0;
    for (u32 i = 0; i < WARPS; i++) {
        max_bits = max(max_bits, shared.max_bits[i]);
        sum_sq += shared.sum_sq[i];
        outliers += shared.outliers[i];
    }
    Sum *sum = sum_at(a, shared.number);
    if (max_bits) atomicMax(&sum->max_bits, max_bits);
    if (sum_sq > 0) atomicAdd(&sum->sum_sq, sum_sq);
    if (outliers) atomicAdd(&sum->outliers, outliers);
}

// The block has done all that it had of its job. The last one ends the job, that of the last job
// the checkpoint. By the first warp, when the others are done.
DEVICE void end_tiles(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Job &job = shared.job;
    if (lane == 0) add_errors(a, shared);
    if (!completes(&sum_at(a, shared.number)->done, shared.done, job.tiles, lane)) return;
    end_job(a, shared, lane);
    const u32 jobs = shared.entry.jobs;
    if (jobs > 1 && !completes((u32 *)a.counts + job.entry, 1, jobs, lane)) return;
    end_entry(a, shared.entry, lane);
}

// ---- Tiles -------------------------------------------------------------------------------------

// A tile of the block whose place was not asked for yet, as a warp sees it: the words of the tile,
// those before the warp's chunk, and those of the chunk.
struct Waiting {
    u32 tile, all, before, words;
    bool is;
};

// Where the words of a warp's chunk go; 0 if they do not fit. Says where the tile ends, and writes
// the chunk's word of the table. By the whole block.
APART u64 place_of(const EncodeLaunch &a, Shared &shared, const Waiting &waiting, u32 warp,
                    u32 lane) {
    const Job &job = shared.job;
    const u32 tile = waiting.tile, c = (tile - job.tile0) * WARPS + warp;
    const bool is_first = tile == job.tile0, is_end = tile + 1 == job.tile0 + job.tiles;
    const u64 sum = is_first ? 0 : look_back(a, shared, tile, warp, lane);
    const u64 head = table_end(job), bytes = head + 4 * (sum + waiting.all);
    const bool speaks = warp == 0 && lane == 0;
    if (speaks && !is_first) {
        publish((u64 *)a.status + tile, word_of(a, WORD_ALL, sum + waiting.all));
    }
    if (speaks && is_end) say_size(a, shared, bytes);
    find_start(a, shared, warp, lane);
    const u64 start = shared.start, limit = shared.entry.limit;
    if (speaks && is_end) say_end(a, shared, bytes);
    if (speaks && is_first) {
        *(volatile u64 *)&sum_at(a, shared.number)->start = start;
        if (start + HEADER_BYTES + 4 <= limit) *(u32 *)(start + HEADER_BYTES) = 0;
    }
    if (c >= job.cut.n_chunks) return 0;
    const u64 first = sum + waiting.before, to = start + head + 4 * first;
    u32 *offset = (u32 *)(start + HEADER_BYTES) + c + 1;
    if (lane == 0 && (u64)(offset + 1) <= limit) *offset = (u32)(first + waiting.words);
    return to + 4 * (u64)waiting.words <= limit ? to : 0;
}

// Writes the tile that waits.
DEVICE void write_waiting(const EncodeLaunch &a, Shared &shared, Waiting &waiting, u32 warp,
                          u32 lane) {
    if (!waiting.is) return;
    waiting.is = false;
    u32 *to = (u32 *)place_of(a, shared, waiting, warp, lane);
    if (to == 0) return;
    const u32 *kept = shared.kept[warp];
    for (u32 i = lane; i < waiting.words; i += 32) __stcs(to + i, kept[i]);
}

DEVICE void copy_tile(const EncodeLaunch &a, Shared &shared, u32 tile, u32 warp, u32 lane) {
    const bool speaks = tile == shared.job.tile0 && warp == 0 && lane == 0;
    if (speaks) say_size(a, shared, shared.job.n);
    find_start(a, shared, warp, lane);
    if (speaks) {
        say_end(a, shared, shared.job.n);
        *(volatile u64 *)&sum_at(a, shared.number)->start = shared.start;
    }
    u64 part = (u64)(tile - shared.job.tile0) * WARPS + warp;
    copy_part(shared.job, shared.start, shared.entry.limit, part, lane);
}

// Whether every block has one tile. In small launches it is that of its own number: blocks are
// started in that order, as scans over a whole device commonly count on, so those before it have
// begun. They have a kernel that knows: what an instruction takes to be fetched is a part of their
// time.
#ifdef ONCE
DEVICE bool has_one_tile(const EncodeLaunch &) { return ONCE != 0; }
#else
#define ONCE 1
DEVICE bool has_one_tile(const EncodeLaunch &a) { return a.tiles <= gridDim.x; }
#endif

// Asks for the values of the tile that the block has next, as far as they are of the same job.
DEVICE void ask_for(const Shared &shared, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const u32 c = (shared.next - job.tile0) * WARPS + warp;
    if (c >= job.cut.n_chunks) return;
    const Window w = window_of(job.cut, job.n, c);
    const u64 bytes = bits_of(job.cut) / 8;
    if (profile_of(w) != 1) {
        if (inside_of_block(w, lane)) prefetch(job.source + row_of(w, lane) * bytes);
    } else if (32 * lane < w.m) {
        prefetch(job.source + (w.base + 32 * lane) * bytes);
    }
}

// Encodes a tile. If its words are few they are kept until the next tile is encoded: by then those
// before it are known.
DEVICE void encode_tile(const EncodeLaunch &a, Shared &shared, Waiting &waiting, u32 tile,
                        u32 ticket, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const u32 c = (tile - job.tile0) * WARPS + warp;
    const Window &w = shared.windows[warp];
    Chunk chunk = {CHUNK_EMPTY, 0, 0};
    if (c < job.cut.n_chunks) {
        if (lane == 0) shared.windows[warp] = window_of(job.cut, job.n, c);
        __syncwarp();
        chunk = encode_chunk(a, shared, warp, lane);
    }
    if (lane == 0) shared.words[warp] = chunk.words;
    if (threadIdx.x == 0) shared.next = ticket;
    const bool coded = chunk.what == CHUNK_CODED || chunk.what == CHUNK_EMPTY;
    const bool waits = __syncthreads_and(coded && chunk.words <= KEPT && !has_one_tile(a));
    Waiting own = {tile, 0, 0, chunk.words, true};
    UNROLL for (u32 i = 0; i < WARPS; i++) {
        own.before += i < warp ? shared.words[i] : 0;
        own.all += shared.words[i];
    }
    if (warp == 0 && lane == 0) {
        u64 state = tile == job.tile0 ? WORD_ALL : WORD_SUM;
        publish((u64 *)a.status + tile, word_of(a, state, own.all));
    }
    if (!has_one_tile(a)) {
        ask_for(shared, warp, lane);
        write_waiting(a, shared, waiting, warp, lane);
    }
    const u32 *stage = (const u32 *)shared.stage[warp];
    if (waits) {
        __syncwarp();
        for (u32 i = lane; i < chunk.words; i += 32) shared.kept[warp][i] = stage[i];
        waiting = own;
        return;
    }
    u32 *to = (u32 *)place_of(a, shared, own, warp, lane);
    if (to != 0 && chunk.what != CHUNK_EMPTY) write_chunk(to, stage, chunk, w, job, lane);
}

// ---- The kernel --------------------------------------------------------------------------------

// The job of a tile, for the block. By the first warp.
DEVICE void take_job(const EncodeLaunch &a, Shared &shared, u32 tile, u32 lane) {
    const u32 number = find_job(a, tile, lane);
    const u32 *job = (const u32 *)job_at(a, number);
    ((u32 *)&shared.job)[lane] = job[lane];
    __syncwarp();
    const Entry *entry = entry_at(a, shared.job.entry);
    if (lane < 16) ((u32 *)&shared.entry)[lane] = ((const u32 *)entry)[lane];
    if (lane < WARPS) {
        shared.max_bits[lane] = 0;
        shared.sum_sq[lane] = 0;
        shared.outliers[lane] = 0;
    }
    if (lane == 0) {
        const Entry *head = entry_at(a, entry->head);
        shared.number = number;
        shared.begin = chain_begin(*head);
        shared.start = number == head->job0 ? shared.begin : 0;
        shared.done = 0;
    }
}

// The block is done with its job, if it has one.
DEVICE void leave_job(const EncodeLaunch &a, Shared &shared, Waiting &waiting, u32 warp, u32 lane) {
    if (!has_one_tile(a)) write_waiting(a, shared, waiting, warp, lane);
    __syncthreads();
    if (warp == 0 && shared.done) end_tiles(a, shared, lane);
}

// A number in the order of those who ask. The first thread has it.
DEVICE u32 take_ticket(const EncodeLaunch &a) {
    return threadIdx.x == 0 ? atomicAdd((u32 *)a.ticket, 1u) - a.first_ticket : 0;
}

extern "C" __global__ void BOUNDS
twine_encode(const __grid_constant__ EncodeLaunch a) {
    __shared__ Shared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    Waiting waiting = {0, 0, 0, 0, false};
    const bool has_one = has_one_tile(a);
    u32 ticket = has_one && ONCE == 1 ? blockIdx.x : take_ticket(a);
    if (threadIdx.x == 0) shared.done = shared.job.tiles = shared.job.tile0 = 0;
    for (;;) {
        if (threadIdx.x == 0) shared.next = ticket;
        __syncthreads();
        const u32 tile = shared.next;
        const bool is_over = tile >= a.tiles;
        if (has_one || is_over || tile - shared.job.tile0 >= shared.job.tiles) {
            if (!has_one) leave_job(a, shared, waiting, warp, lane);
            if (is_over) return;
            if (warp == 0) take_job(a, shared, tile, lane);
        }
        __syncthreads();
        // The next one is on its way meanwhile.
        ticket = has_one ? a.tiles : take_ticket(a);
        if (threadIdx.x == 0) shared.done++;
        if ((shared.job.rule & 0xff) == RULE_RAW) {
            copy_tile(a, shared, tile, warp, lane);
        } else {
            encode_tile(a, shared, waiting, tile, ticket, warp, lane);
        }
        if (has_one) return leave_job(a, shared, waiting, warp, lane);
    }
}

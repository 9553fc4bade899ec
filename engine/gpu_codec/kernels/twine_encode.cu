// Encodes arrays as Twine streams, and copies others, one after the other. A block of threads
// takes one tile, or tiles in order until none is left: as many chunks, or parts of a raw job, as
// it has warps.
// twine_chunk.cuh says what a warp does with a chunk, twine_places.cuh where tiles go.

// ---- Out ---------------------------------------------------------------------------------------

// Moves the words of a chunk. A lane reads four before it writes them: the compiler takes a store
// for one to where it reads from, so that each word would wait for the one before.
template <typename Read, typename Write>
DEVICE void move_words(u32 words, u32 lane, Read read, Write write) {
    u32 i = lane;
    UNROLL1 for (; i + 96 < words; i += 128) {
        u32 some[4];
        UNROLL for (u32 j = 0; j < 4; j++) some[j] = read(i + 32 * j);
        UNROLL for (u32 j = 0; j < 4; j++) write(i + 32 * j, some[j]);
    }
    UNROLL1 for (; i < words; i += 32) write(i, read(i));
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

DEVICE void write_header(Shared &shared, u64 start, u64 payload, u64 max_bits, u32 lane) {
    const Job &job = shared.job;
    if (lane == 0) {
        const Step &step = shared.step;
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

// What is known of a job that is done.
struct Done {
    u64 start, stored, max_bits, sum_sq, outliers;
};

DEVICE Done look_at_done(Sum *sum) {
    volatile u64 *words = (volatile u64 *)sum;
    Done done = {*(volatile u64 *)&sum->start, *(volatile u64 *)&sum->stored, words[0], words[1],
                 words[2]};
    return done;
}

// All of the block's job is done: its header, and the zeros up to the next job. By a whole warp.
DEVICE Done end_job(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Job &job = shared.job;
    Sum *sum = sum_at(a, shared.number);
    Done done = look_at_done(sum);
    const bool is_raw = (job.rule & 0xff) == RULE_RAW;
    const u64 payload = is_raw ? 0 : payload_of(a, job);
    done.stored = is_raw ? job.n : table_end(job) + 4 * payload;
    if (!is_raw) write_header(shared, done.start, payload, done.max_bits, lane);
    if (lane == 0) *(volatile u64 *)&sum->stored = done.stored;
    if (shared.number + 1 < shared.entry.job0 + shared.entry.jobs) {
        u64 end = done.start + done.stored;
        u64 next = min(align_up(end, UNIT), shared.entry.limit);
        for (u64 at = end + lane; at < next; at += 32) *(u8 *)at = 0;
    }
    settle_bound(a, shared, lane);
    __syncwarp();
    return done;
}

// Nothing is known any more of the errors of a job.
DEVICE void clear(Sum *sum) {
    *(volatile u64 *)&sum->max_bits = 0;
    *(volatile u64 *)&sum->sum_sq = 0;
    *(volatile u64 *)&sum->outliers = 0;
}

// The result of a checkpoint all of whose jobs are done: its last one as `last` says, which is the
// only one where it has one. What is known of a job is in its first sums, or `after` those. By a
// whole warp.
DEVICE void end_entry(const EncodeLaunch &a, const Entry &entry, const Done &last, u32 after,
                    u32 lane) {
    u64 *slot = (u64 *)entry.slot, *record = (u64 *)entry.record;
    u64 start = last.start, end = last.start + last.stored;
    if (entry.jobs > 1) {
        const Sum *other = first_sum_at(a, entry.job0 + entry.jobs - 1) + after;
        start = *(volatile u64 *)&(first_sum_at(a, entry.job0) + after)->start;
        end = *(volatile u64 *)&other->start + *(volatile u64 *)&other->stored;
    }
    for (u32 j = lane; j < entry.jobs; j += 32) {
        const Job *job = job_at(a, entry.job0 + j);
        Sum *first = first_sum_at(a, entry.job0 + j);
        const Done done = entry.jobs > 1 ? look_at_done(first + after) : last;
        u64 *words = slot + 4 + 6 * j;
        words[0] = done.start - start;
        words[1] = done.stored;
        words[2] = settled_error(done.max_bits, *job);
        words[3] = done.sum_sq;
        words[4] = (job->rule & 0xff) == RULE_RAW ? 0 : job->n;
        words[5] = done.outliers;
        clear(first);
        clear(first + after);
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
    if (lane == 0) {
        add_errors(a, shared);
        add_measured(a, shared);
    }
    if (!completes(&sum_at(a, shared.number)->done, shared.done, job.tiles, lane)) return;
    const Done last = end_job(a, shared, lane);
    // The second launch reports what has been encoded with guesses.
    if (a.pass == PASS_FIRST) return;
    const u32 jobs = shared.entry.jobs;
    if (jobs > 1 && !completes((u32 *)a.counts + job.entry, 1, jobs, lane)) return;
    end_entry(a, shared.entry, last, a.pass == PASS_SECOND ? 1 : 0, lane);
}

// All guesses of the first launch were right: reports all checkpoints, and takes the tickets that
// the launch has not taken.
DEVICE void report_all(const EncodeLaunch &a, u32 lane) {
    if (blockIdx.x == 0 && lane == 0) *(volatile u32 *)a.ticket += a.tickets;
    const u32 entries = a.first_job == 0 ? a.entries : 0;
    for (u32 e = blockIdx.x; e < entries; e += gridDim.x) {
        const Entry &entry = *entry_at(a, e);
        end_entry(a, entry, look_at_done(first_sum_at(a, entry.job0)), 0, lane);
    }
}

// ---- Tiles -------------------------------------------------------------------------------------

// What a warp has: tiles whose places were not known yet, with the warp's words of them in a ring.
// A lane has one of the tiles: its number, the words of the tile from the warp's chunk on, those of
// the chunk, and where they are in the ring.
struct Own {
    u32 tile, rest, words, at;
    u64 seen;  // what is known of the lane's tile
    // The same in all lanes: the lane of the first tile, tiles, and words in the ring.
    u32 first, tiles, kept;
    u64 start;  // of the job; 0 while it is not known
    LaneErrors errors;
};

// Where the job begins.
DEVICE u64 start_of(const EncodeLaunch &a, Shared &shared, Own &own, u32 warp, u32 lane) {
    if (has_one_tile(a)) {
        find_start(a, shared, warp, lane);
        return shared.start;
    }
    if (own.start == 0) {
        u32 head0 = entry_at(a, shared.entry.head)->job0;
        own.start = shared.begin + UNIT * find_begin(a, shared.number, shared.begin, head0, lane);
    }
    return own.start;
}

// Where the words of the warp's chunk of a tile go, of which `rest` words of `sum` up to the tile's
// end are left; 0 if they do not fit. Says what the job takes and where it ends, if that is its
// last tile, and writes the chunk's word of the table.
DEVICE u64 place_of(const EncodeLaunch &a, Shared &shared, Own &own, u32 tile, u64 sum, u32 rest,
                    u32 words, u32 warp, u32 lane) {
    const Job &job = shared.job;
    const bool speaks = warp == 0 && lane == 0, is_end = tile + 1 == job.tile0 + job.tiles;
    const u64 head = table_end(job), limit = shared.entry.limit;
    if (speaks && is_end) say_size(a, shared, head + 4 * sum);
    const u64 start = start_of(a, shared, own, warp, lane);
    if (speaks && is_end) say_end(a, shared, start, head + 4 * sum);
    if (speaks && tile == job.tile0) {
        *(volatile u64 *)&sum_at(a, shared.number)->start = start;
        if (start + HEADER_BYTES + 4 <= limit) *(u32 *)(start + HEADER_BYTES) = 0;
    }
    const u64 first = sum - rest, to = start + head + 4 * first;
    const u32 c = (tile - job.tile0) * WARPS + warp;
    if (c >= job.cut.n_chunks) return 0;
    u32 *offset = (u32 *)(start + HEADER_BYTES) + c + 1;
    if (lane == 0 && (u64)(offset + 1) <= limit) *offset = (u32)(first + words);
    return to + 4 * (u64)words <= limit ? to : 0;
}

// Words of all tiles of the job up to this one, of which they are `all`. By the whole block where
// it has its own tile, else by a warp.
DEVICE u64 words_up_to(const EncodeLaunch &a, Shared &shared, u32 tile, u32 all, u32 warp,
                       u32 lane) {
    u64 *status = (u64 *)a.status + tile;
    if (!has_one_tile(a)) return wait_for_sum(a, status);
    if (tile == shared.job.tile0) return all;
    const u64 sum = look_back(a, shared, tile, warp, lane) + all;
    if (warp == 0 && lane == 0) publish(status, word_of(a, WORD_ALL, sum));
    return sum;
}

// A place in the ring.
DEVICE u32 in_ring(u32 at) { return at < KEPT ? at : at - KEPT; }

// Writes the first of the tiles that the warp has kept.
DEVICE void write_kept(const EncodeLaunch &a, Shared &shared, Own &own, u64 sum, u32 warp,
                       u32 lane) {
    const u32 tile = __shfl_sync(ALL, own.tile, own.first);
    const u32 rest = __shfl_sync(ALL, own.rest, own.first);
    const u32 words = __shfl_sync(ALL, own.words, own.first);
    u32 at = __shfl_sync(ALL, own.at, own.first);
    own.first = (own.first + 1) & 31;
    own.tiles--;
    own.kept -= words;
    u32 *to = (u32 *)place_of(a, shared, own, tile, sum, rest, words, warp, lane);
    if (to == 0) return;
    const u32 *kept = shared.kept[warp];
    move_words(
        words, lane, [&](u32 i) { return kept[in_ring(at + i)]; },
        [&](u32 i, u32 word) { __stcs(to + i, word); });
}

// Asks what is known of the tiles that the warp has kept.
DEVICE void look_at_kept(const EncodeLaunch &a, Own &own, u32 lane) {
    if (((lane - own.first) & 31) < own.tiles) own.seen = look_at((const u64 *)a.status + own.tile);
}

// Writes those of the tiles that the warp has kept whose places are known, and waits for others
// until so many words find room.
DEVICE void make_room(const EncodeLaunch &a, Shared &shared, Own &own, u32 words, u32 warp,
                      u32 lane) {
    while (own.tiles) {
        u64 word = __shfl_sync(ALL, own.seen, own.first);
        if (!is_sum(a, word)) {
            if (own.kept + words <= KEPT && own.tiles < 32) return;
            const u32 tile = __shfl_sync(ALL, own.tile, own.first);
            word = wait_for_sum(a, (const u64 *)a.status + tile);
            look_at_kept(a, own, lane);
        }
        write_kept(a, shared, own, word & WORD_VALUE, warp, lane);
    }
}

// Keeps the words of a chunk, for which there is room.
DEVICE void keep_words(Shared &shared, Own &own, u32 tile, u32 rest, u32 words, u32 warp,
                       u32 lane) {
    const u32 last = (own.first + own.tiles - 1) & 31;
    u32 at = __shfl_sync(ALL, own.at + own.words, last);
    at = own.tiles == 0 ? 0 : at < KEPT ? at : at - KEPT;
    if (lane == ((own.first + own.tiles) & 31)) {
        own.tile = tile;
        own.rest = rest;
        own.words = words;
        own.at = at;
        own.seen = 0;
    }
    own.tiles++;
    own.kept += words;
    const u32 *stage = (const u32 *)shared.stage[warp];
    u32 *kept = shared.kept[warp];
    // Other lanes may still be reading what was there.
    __syncwarp();
    move_words(
        words, lane, [&](u32 i) { return stage[i]; },
        [&](u32 i, u32 word) { kept[in_ring(at + i)] = word; });
}

// A tile of a raw job.
DEVICE void copy_tile(const EncodeLaunch &a, Shared &shared, Own &own, u32 tile, u32 warp,
                      u32 lane) {
    const bool speaks = tile == shared.job.tile0 && warp == 0 && lane == 0;
    if (speaks) say_size(a, shared, shared.job.n);
    const u64 start = start_of(a, shared, own, warp, lane);
    if (speaks) {
        say_end(a, shared, start, shared.job.n);
        *(volatile u64 *)&sum_at(a, shared.number)->start = start;
    }
    if (shared.work == WORK_NOTHING) return;
    u64 part = (u64)(tile - shared.job.tile0) * WARPS + warp;
    copy_part(shared.job, start, shared.entry.limit, part, lane);
}

// Encodes a tile. A block that has more of them keeps its words, where they are few enough, until
// those of all tiles before are known; in the meantime it encodes others.
DEVICE void encode_tile(const EncodeLaunch &a, Shared &shared, Own &own, u32 tile, u32 parity,
                        u32 warp, u32 lane) {
    const Job &job = shared.job;
    const u32 c = (tile - job.tile0) * WARPS + warp;
    const bool has_chunk = c < job.cut.n_chunks && shared.work != WORK_NOTHING;
    u32 words = 0;
    if (has_chunk) begin_chunk(shared, c, warp, lane);
    // Not before values are there: the later it is, the more places are known.
    if (!has_one_tile(a)) look_at_kept(a, own, lane);
    // The next one is on its way meanwhile. Not earlier: those after it wait for it.
    const u32 ticket = has_one_tile(a) || LATE ? a.end_tile : take_ticket(a);
    if (has_chunk) words = encode_chunk(shared, own.errors, warp, lane);
    if (lane == 0) shared.words[parity][warp] = words;
    if (threadIdx.x == 0) shared.next[parity] = ticket;
    __syncthreads();
    u32 all = 0, rest = 0;
    UNROLL for (u32 i = 0; i < WARPS; i++) {
        all += shared.words[parity][i];
        rest += i >= warp ? shared.words[parity][i] : 0;
    }
    if (warp == 0 && lane == 0) {
        u64 state = has_one_tile(a) && tile == job.tile0 ? WORD_ALL : WORD_SUM;
        publish((u64 *)a.status + tile, word_of(a, state, all));
    }
    if (has_one_tile(a)) {
        keep_lane_errors(shared, own.errors, warp, lane);
    } else {
        make_room(a, shared, own, words <= KEPT ? words : 0, warp, lane);
        // The first warp says where the tile ends, also that of an array without values.
        if (!has_chunk && warp != 0) return;
        if (words <= KEPT) return keep_words(shared, own, tile, rest, words, warp, lane);
    }
    const u64 sum = words_up_to(a, shared, tile, all, warp, lane);
    u32 *to = (u32 *)place_of(a, shared, own, tile, sum, rest, words, warp, lane);
    if (to == 0) return;
    const u32 *stage = (const u32 *)shared.stage[warp];
    move_words(
        words, lane, [&](u32 i) { return stage[i]; },
        [&](u32 i, u32 word) { __stcs(to + i, word); });
}

// ---- The kernel --------------------------------------------------------------------------------

// The job of a tile, for the block. By the first warp.
DEVICE void take_job(const EncodeLaunch &a, Shared &shared, u32 tile, u32 lane) {
    const u32 number = find_job(a, tile, lane);
    const u64 *job = (const u64 *)job_at(a, number);
    if (lane < sizeof(Job) / 8) ((u64 *)&shared.job)[lane] = job[lane];
    if (lane < WARPS) {
        shared.max_bits[lane] = 0;
        shared.sum_sq[lane] = 0;
        shared.outliers[lane] = 0;
    }
    begin_measuring(shared, lane);
    if (lane == 0) {
        shared.number = number;
        shared.done = 0;
    }
    __syncwarp();
    if (lane == 0) take_step(a, shared);
}

// What is asked for later: the checkpoint of the block's job, and where its chain begins. By one
// warp.
DEVICE void take_entry(const EncodeLaunch &a, Shared &shared, u32 lane) {
    const Entry *entry = entry_at(a, shared.job.entry);
    if (lane < 16) ((u32 *)&shared.entry)[lane] = ((const u32 *)entry)[lane];
    if (lane == 0) {
        const Entry *head = entry_at(a, entry->head);
        shared.begin = chain_begin(*head);
        shared.start = shared.number == head->job0 ? shared.begin : 0;
    }
}

// The block is done with its job, if it has one.
DEVICE void leave_job(const EncodeLaunch &a, Shared &shared, Own &own, u32 warp, u32 lane) {
    if (!has_one_tile(a)) {
        make_room(a, shared, own, KEPT + 1, warp, lane);
        keep_lane_errors(shared, own.errors, warp, lane);
        own.start = 0;
    }
    __syncthreads();
    if (warp == 0 && shared.done) end_tiles(a, shared, lane);
}

extern "C" __global__ void BOUNDS
twine_encode(const __grid_constant__ EncodeLaunch a) {
    __shared__ Shared shared;
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const bool has_one = has_one_tile(a);
    if (a.pass == PASS_SECOND) {
        if (a.first_job == 0 && blockIdx.x == 0 && threadIdx.x == 0) note_guesses(a);
        if (*again_at(a) != a.epoch - 1) {
            if (warp == 0) report_all(a, lane);
            return;
        }
    }
    Own own = {0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}};
    u32 tile = a.first_tile + blockIdx.x;
    if (!has_one) {
        if (threadIdx.x == 0) {
            shared.done = shared.job.tiles = shared.job.tile0 = 0;
            shared.next[1] = take_ticket(a);
        }
        __syncthreads();
        tile = shared.next[1];
        if (tile == ALL) {
            if (warp == 0) add_up(a, lane);
            return;
        }
    }
    for (u32 parity = 0;; parity ^= 1) {
        const bool is_over = tile >= a.end_tile;
        if (has_one || is_over || tile - shared.job.tile0 >= shared.job.tiles) {
            if (!has_one) leave_job(a, shared, own, warp, lane);
            if (is_over) return;
            if (warp == 0) take_job(a, shared, tile, lane);
            __syncthreads();
            if (warp == WARPS - 1) take_entry(a, shared, lane);
        }
        if (threadIdx.x == 0) shared.done++;
        if ((shared.job.rule & 0xff) == RULE_RAW) {
            if (threadIdx.x == 0 && !LATE) {
                shared.next[parity] = has_one ? a.end_tile : take_ticket(a);
            }
            __syncthreads();
            copy_tile(a, shared, own, tile, warp, lane);
            __syncthreads();
        } else {
            encode_tile(a, shared, own, tile, parity, warp, lane);
        }
        if (has_one) return leave_job(a, shared, own, warp, lane);
        if (LATE) {
            if (threadIdx.x == 0) shared.next[parity] = take_ticket(a);
            __syncthreads();
        }
        tile = shared.next[parity];
    }
}

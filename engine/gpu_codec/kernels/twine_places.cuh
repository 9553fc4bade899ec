// Where tiles and arrays go: by looking back at what those before have said of their words. A block
// that waits has said all that those after it can be waiting for.

DEVICE u64 word_of(const EncodeLaunch &a, u64 state, u64 value) {
    return (u64)a.epoch << WORD_EPOCH | state | value;
}

DEVICE bool is_there(const EncodeLaunch &a, u64 word) { return word >> WORD_EPOCH == a.epoch; }

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

// Where a job begins, given where the one before it ends, both in units after `begin`.
DEVICE u64 begin_of(u64 begin, u64 end, u32 number, const Entry &entry) {
    if (number != entry.job0) return end;
    return (align_up(begin + end * UNIT, entry.align) - begin) / UNIT;
}

// Where a job begins, in units after the begin of its chain. By a whole warp.
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
            word = word_of(a, WORD_ALL, 0);
        } else if (!(is_there(a, word) && (word & WORD_ALL))) {
            word = look_at(totals + other);
        }
        bool there = is_there(a, word);
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

// Bytes of a stream's header and table.
DEVICE u64 table_end(const Job &job) { return HEADER_BYTES + 4 * ((u64)job.cut.n_chunks + 1); }

// Words of the tiles of the job before this one. By the whole block, which looks at many at once:
// others may be far ahead of the last one that knows all of it.
DEVICE u64 look_back(const EncodeLaunch &a, Shared &shared, u32 tile, u32 warp, u32 lane) {
    const u64 *status = (const u64 *)a.status;
    const u32 own = 32 * warp + lane;
    u64 sum = 0;
    for (i64 at = (i64)tile - 1;; at -= 32 * WARPS) {
        // Before the first tile there is nothing, and all of it is known.
        u64 word = word_of(a, WORD_ALL, 0);
        if (at - own >= (i64)shared.job.tile0) {
            while (word = look_at(status + at - own), !is_there(a, word)) pause();
        }
        u32 near = min_of_warp(word & WORD_ALL ? own : ALL);
        if (lane == 0) shared.nearest[warp] = near;
        __syncthreads();
        UNROLL for (u32 i = 0; i < WARPS; i++) near = min(near, shared.nearest[i]);
        u64 part = sum_of_warp(own <= near ? word & WORD_VALUE : 0);
        if (lane == 0) shared.parts[warp] = part;
        __syncthreads();
        UNROLL for (u32 i = 0; i < WARPS; i++) sum += shared.parts[i];
        if (near != ALL) return sum;
    }
}

// Whether every block has one tile, which is so in small launches. It is that of its own number:
// blocks are started in that order, as scans over a whole device commonly count on, so those before
// it have begun. They have a kernel that knows: what an instruction takes to be fetched is a part
// of their time.
#ifdef ONCE
DEVICE bool has_one_tile(const EncodeLaunch &) { return ONCE; }
#else
DEVICE bool has_one_tile(const EncodeLaunch &a) { return a.end_tile - a.first_tile <= gridDim.x; }
#endif

// The next tile that nobody has; ALL for the first block to ask. The first thread has it.
DEVICE u32 take_ticket(const EncodeLaunch &a) {
    if (threadIdx.x != 0) return 0;
    const u32 ticket = atomicAdd((u32 *)a.ticket, 1u) - a.first_ticket;
    return ticket == 0 ? ALL : a.first_tile + ticket - 1;
}

// Words of a lane's tiles, one after the other; 0 after the last tile.
DEVICE void look_at_tiles(u64 (&words)[SCANNED], const u64 *status, u32 tile, u32 end) {
    UNROLL for (u32 k = 0; k < SCANNED; k++) {
        words[k] = tile + k < end ? look_at(status + tile + k) : 0;
    }
}

// Adds up the words of a job's tiles in their order, and tells each tile those up to its own as
// soon as they are known. By one warp.
DEVICE void add_up_tiles(const EncodeLaunch &a, const Job &job, u32 lane) {
    u64 *status = (u64 *)a.status;
    const u32 end = job.tile0 + job.tiles;
    u32 at = job.tile0 + SCANNED * lane, left = job.tiles;
    u64 words[SCANNED], sum = 0;
    look_at_tiles(words, status, at, end);
    while (left) {
        // Of the lane's, those that are known from its first on.
        u32 known = 0, own[SCANNED], all = 0;
        bool so_far = true;
        UNROLL for (u32 k = 0; k < SCANNED; k++) {
            so_far = so_far && at + k < end && is_there(a, words[k]);
            all += so_far ? (u32)(words[k] & WORD_VALUE) : 0;
            own[k] = all;
            known += so_far;
        }
        const u32 whole = __ballot_sync(ALL, known == SCANNED);
        const u32 first = whole == ALL ? 32 : (u32)__ffs((int)~whole) - 1;
        if (lane > first) known = all = 0;
        const u32 tile = at, tiles = sum_of_warp(known);
        at += tiles;
        left -= tiles;
        look_at_tiles(words, status, at, end);
        const u64 before = sum + exclusive_sum(all, lane);
        UNROLL for (u32 k = 0; k < SCANNED; k++) {
            if (k < known) publish(status + tile + k, word_of(a, WORD_ALL, before + own[k]));
        }
        sum += sum_of_warp(all);
    }
}

// What the block does that has no tiles: it adds up those of all jobs.
DEVICE void add_up(const EncodeLaunch &a, u32 lane) {
    for (u32 number = a.first_job; number < a.end_job; number++) {
        const Job *job = job_at(a, number);
        if ((job->rule & 0xff) != RULE_RAW) add_up_tiles(a, *job, lane);
    }
}

// Whether a tile's word says what those up to it have.
DEVICE bool is_sum(const EncodeLaunch &a, u64 word) {
    return is_there(a, word) && (word & WORD_ALL);
}

// Waits until it does.
DEVICE u64 wait_for_sum(const EncodeLaunch &a, const u64 *status) {
    u64 word = look_at(status);
    while (!is_sum(a, word)) {
        pause_long();
        word = look_at(status);
    }
    return word & WORD_VALUE;
}

// The size of the block's job in bytes, for those after it; then where it ends.
DEVICE void say_size(const EncodeLaunch &a, const Shared &shared, u64 bytes) {
    u64 units = align_up(bytes, UNIT) / UNIT;
    publish((u64 *)a.totals + shared.number, word_of(a, WORD_SUM, units));
}

DEVICE void say_end(const EncodeLaunch &a, const Shared &shared, u64 start, u64 bytes) {
    u64 end = (start - shared.begin + align_up(bytes, UNIT)) / UNIT;
    end = end_of(shared.begin, end, shared.job, shared.number, shared.entry);
    publish((u64 *)a.totals + shared.number, word_of(a, WORD_ALL, end));
}

// Finds out where the block's job begins. By the whole block.
DEVICE void find_start(const EncodeLaunch &a, Shared &shared, u32 warp, u32 lane) {
    if (shared.start) return;
    __syncthreads();
    if (warp == 0) {
        u32 head0 = entry_at(a, shared.entry.head)->job0;
        u64 units = find_begin(a, shared.number, shared.begin, head0, lane);
        if (lane == 0) shared.start = shared.begin + UNIT * units;
    }
    __syncthreads();
}

// What nvCOMP leaves to its callers: the chunks that it compressed are packed one after the other,
// in a container with a table and a sum, and taken out of it again. nvCOMP trusts what it decodes,
// so nothing is given to it before the sum of the container was found right; chunks of a damaged
// one are replaced by a chunk that is known to be whole.
//
// A container, all words little endian: 64 bytes of head (what it is; bytes; chunk bytes and count;
// a bound; stored bytes; sum; 1 if the values follow as they are; 0), then for each chunk where it
// begins in units of 16 bytes and how long it is (32 bits each), then the chunks. Table and chunks
// are filled up with zeros to multiples of 16. What would not get smaller is stored as it is.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

#define HEAD_BYTES 64

// Where a checkpoint begins: at `fixed`, or after the end that the record `before` tells.
struct Place {
    u64 fixed;
    const u64 *before;
    u64 align;
    u64 limit;             // nothing is written at or beyond it
    u64 bytes;
};

// The words of a head that are known beforehand: the first four.
struct Head {
    u64 words[4];
};

// An array in chunks.
struct Parts {
    u64 array;
    u64 bytes;
    u64 chunk;
    u64 count;
};

// What the kernels of one container tell each other; `sum` is 0 between two uses.
struct Control {
    u64 begin;
    u64 total;
    u64 status;
    u64 raw;
    u64 sum;
    u64 damaged;
};

// The status of a result, as src/pending/result.rs has it.
#define DONE 0
#define OVERFLOW 1
#define REFUSED 2

__device__ __forceinline__ u64 begin_of(const Place &place) {
    if (place.before == 0) return place.fixed;
    return (place.before[0] + place.align - 1) / place.align * place.align;
}

__device__ __forceinline__ u64 size_of(const Parts &parts, u64 i) {
    return i + 1 < parts.count ? parts.chunk : parts.bytes - i * parts.chunk;
}

__device__ __forceinline__ u64 units(u64 bytes) { return (bytes + 15) / 16; }

// What word number `index` after the head adds to the sum.
__device__ __forceinline__ u64 mixed(u64 word, u64 index) {
    u64 x = word + (index + 1) * 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
    return x ^ x >> 32;
}

__device__ __forceinline__ u64 thread_index() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

// The sum over a warp of which every lane takes part, in every lane.
__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int far = 16; far > 0; far /= 2) x += __shfl_xor_sync(~0u, x, far);
    return x;
}

__device__ __forceinline__ void add_to_sum(Control *control, u64 x) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0 && x != 0) atomicAdd(&control->sum, x);
}

// The arrays that nvCOMP wants: where the chunks are, how long they are, and where to put them. Not
// every format writes a status that is good.
extern "C" __global__ void nvcomp_arrays(Parts parts, u64 outputs, u64 stride, u64 *from,
                                         u64 *lengths, u64 *to, u32 *statuses) {
    u64 i = thread_index();
    if (i >= parts.count) return;
    from[i] = parts.array + i * parts.chunk;
    lengths[i] = size_of(parts, i);
    to[i] = outputs + i * stride;
    statuses[i] = 0;
}

#define SCAN 1024

// Sums over `SCAN` threads: what is before each, and all.
__device__ u64 scan(u64 x, u64 &all) {
    __shared__ u64 sums[SCAN];
    sums[threadIdx.x] = x;
    __syncthreads();
    for (u32 far = 1; far < SCAN; far *= 2) {
        u64 other = threadIdx.x >= far ? sums[threadIdx.x - far] : 0;
        __syncthreads();
        sums[threadIdx.x] += other;
        __syncthreads();
    }
    all = sums[SCAN - 1];
    u64 before = sums[threadIdx.x] - x;
    __syncthreads();
    return before;
}

// One block of `SCAN` threads: where each chunk comes, and whether the whole fits. Writes the head,
// but for the sum, and the table.
extern "C" __global__ void nvcomp_table(Place place, Head head, Parts parts, u64 stride,
                                        const u64 *lengths, const u32 *statuses,
                                        Control *control) {
    u64 each = (parts.count + SCAN - 1) / SCAN;
    u64 first = threadIdx.x * each;
    u64 end = first + each < parts.count ? first + each : parts.count;
    u64 mine = 0;
    int failed = 0;
    for (u64 i = first; i < end; i++) {
        failed |= statuses[i] != 0 || lengths[i] == 0 || lengths[i] > stride;
        mine += units(lengths[i]);
    }
    u64 all = 0;
    u64 at = HEAD_BYTES / 16 + units(8 * parts.count) + scan(mine, all);
    failed = __syncthreads_or(failed);
    u64 total = HEAD_BYTES + 16 * (units(8 * parts.count) + all);
    bool raw = failed || total >= HEAD_BYTES + parts.bytes;
    if (raw) total = HEAD_BYTES + parts.bytes;
    u64 begin = begin_of(place);
    bool fits = begin <= place.limit && total <= place.limit - begin;
    u64 *words = (u64 *)begin;
    if (threadIdx.x == 0) {
        control->begin = begin;
        control->total = total;
        control->status = fits ? DONE : OVERFLOW;
        control->raw = raw;
    }
    if (!fits) return;
    if (threadIdx.x < 8) {
        u64 known[8] = {head.words[0], head.words[1], head.words[2], head.words[3],
                        total,         0,             raw,           0};
        words[threadIdx.x] = known[threadIdx.x];
    }
    if (raw) return;
    u64 sum = 0;
    for (u64 i = first; i < end; i++) {
        u64 entry = at | lengths[i] << 32;
        words[8 + i] = entry;
        sum += mixed(entry, i);
        at += units(lengths[i]);
    }
    if (threadIdx.x == 0 && parts.count % 2 != 0) {
        words[8 + parts.count] = 0;
        sum += mixed(0, parts.count);
    }
    add_to_sum(control, sum);
}

// A word of `bytes` bytes at `from`, which need not be aligned.
__device__ __forceinline__ u64 word_at(const u8 *from, u64 bytes) {
    u64 word = 0;
    if (bytes >= 8 && (u64)from % 8 == 0) return *(const u64 *)from;
    for (u64 i = 0; i < 8 && i < bytes; i++) word |= (u64)from[i] << 8 * i;
    return word;
}

// A block for each chunk: puts it into its place, with zeros up to a multiple of 16.
extern "C" __global__ void nvcomp_pack(Parts parts, u64 outputs, u64 stride, const u64 *lengths,
                                       Control *control) {
    if (control->status != DONE) return;
    u64 i = blockIdx.x;
    u8 *begin = (u8 *)control->begin;
    if (control->raw) {
        const u8 *from = (const u8 *)(parts.array + i * parts.chunk);
        u8 *to = begin + HEAD_BYTES + i * parts.chunk;
        u64 bytes = size_of(parts, i);
        for (u64 w = threadIdx.x; w < bytes / 8; w += blockDim.x) {
            ((u64 *)to)[w] = word_at(from + 8 * w, 8);
        }
        for (u64 b = bytes / 8 * 8 + threadIdx.x; b < bytes; b += blockDim.x) to[b] = from[b];
        return;
    }
    u64 at = (((u64 *)begin)[8 + i] & 0xffffffffULL) * 2;
    const u8 *from = (const u8 *)(outputs + i * stride);
    u64 bytes = lengths[i];
    u64 sum = 0;
    for (u64 w = threadIdx.x; w < 2 * units(bytes); w += blockDim.x) {
        u64 word = 8 * w < bytes ? word_at(from + 8 * w, bytes - 8 * w) : 0;
        ((u64 *)begin)[at + w] = word;
        sum += mixed(word, at + w - 8);
    }
    add_to_sum(control, sum);
}

// Tells the result: of one array, with limits of its error.
extern "C" __global__ void nvcomp_finish(Place place, Control *control, u64 values, double largest,
                                         double squares, u64 *slot, u64 sequence, u64 *record) {
    if (control->status == DONE) ((u64 *)control->begin)[5] = control->sum;
    u64 end = control->begin + control->total;
    record[0] = control->status == DONE ? end : place.limit;
    record[1] = control->begin;
    record[2] = control->status;
    record[3] = 0;
    slot[1] = control->status;
    slot[2] = control->begin;
    slot[3] = control->total;
    slot[4] = 0;
    slot[5] = control->total;
    slot[6] = (u64)__double_as_longlong(control->raw ? 0.0 : largest);
    slot[7] = (u64)__double_as_longlong(control->raw ? 0.0 : squares);
    slot[8] = values;
    slot[9] = 0;
    control->sum = 0;
    __threadfence_system();
    *(volatile u64 *)slot = sequence;
}

__device__ __forceinline__ bool is_whole(const u64 *container, const Head &head, u64 stored,
                                         u64 raw, u64 sum) {
    bool whole = container[4] == stored && container[5] == sum && container[6] == raw;
    for (int i = 0; i < 4; i++) whole = whole && container[i] == head.words[i];
    return whole && container[7] == 0;
}

// Adds up the words after the head.
extern "C" __global__ void nvcomp_sum(const u64 *container, u64 stored, Control *control) {
    u64 sum = 0;
    u64 words = (stored - HEAD_BYTES) / 8;
    for (u64 i = thread_index(); i < words; i += (u64)gridDim.x * blockDim.x) {
        sum += mixed(container[8 + i], i);
    }
    add_to_sum(control, sum);
}

// Chunks that are known to be whole: of a chunk of zeros, and of the last chunk's length.
struct Spare {
    u64 chunks;
    u64 stride;
    const u64 *lengths;
};

// The arrays for decoding: where the chunks are, how long they are, how long their values are, and
// where these go. Anything wrong makes every chunk a spare one.
extern "C" __global__ void nvcomp_unpack(const u64 *container, u64 stored, Head head, Parts parts,
                                         Spare spare, u64 *from, u64 *lengths, u64 *rooms,
                                         u64 *to, u32 *statuses, Control *control) {
    u64 i = thread_index();
    if (i >= parts.count) return;
    u64 entry = container[8 + i];
    u64 first = HEAD_BYTES / 16 + units(8 * parts.count);
    u64 at = entry & 0xffffffffULL;
    u64 length = entry >> 32;
    bool whole = is_whole(container, head, stored, 0, control->sum) && at >= first &&
                 length > 0 && length <= spare.stride && 16 * at + length <= stored;
    u64 last = i + 1 < parts.count ? 0 : 1;
    from[i] = whole ? (u64)container + 16 * at : spare.chunks + last * spare.stride;
    lengths[i] = whole ? length : spare.lengths[last];
    rooms[i] = size_of(parts, i);
    to[i] = parts.array + i * parts.chunk;
    statuses[i] = 0;
    if (!whole) control->damaged = 1;
}

// One block: tells the result of a decoding.
extern "C" __global__ void nvcomp_decoded(u64 count, const u32 *statuses, const u64 *lengths,
                                          const u64 *rooms, Control *control, u64 *slot,
                                          u64 sequence) {
    int wrong = 0;
    for (u64 i = threadIdx.x; i < count; i += blockDim.x) {
        wrong |= statuses[i] != 0 || lengths[i] != rooms[i];
    }
    wrong = __syncthreads_or(wrong);
    if (threadIdx.x != 0) return;
    slot[1] = wrong || control->damaged ? REFUSED : DONE;
    slot[2] = 0;
    slot[3] = 0;
    control->sum = 0;
    control->damaged = 0;
    __threadfence_system();
    *(volatile u64 *)slot = sequence;
}

// Tells the result for a container of values as they are, which the driver copies.
extern "C" __global__ void nvcomp_copied(const u64 *container, u64 stored, Head head, u64 *slot,
                                         u64 sequence) {
    slot[1] = is_whole(container, head, stored, 1, 0) ? DONE : REFUSED;
    slot[2] = 0;
    slot[3] = 0;
    __threadfence_system();
    *(volatile u64 *)slot = sequence;
}

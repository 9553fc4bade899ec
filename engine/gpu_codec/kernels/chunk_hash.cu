// XXH3 with 128 bits and a seed, of every chunk of 64 KiB of some bytes: what the crate twox-hash
// computes on the host (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md). A block hashes a
// chunk. The last one may be shorter, but has more than 240 bytes: XXH3 has other ways for less.
//
// A chunk has blocks of 1 KiB, a block has 16 stripes of 64 bytes, and a stripe adds to eight sums
// of 64 bits. What the stripes of a block add does not depend on the sums before: warps take
// blocks, lanes take pairs of words that lie side by side, and add up what they have. Only then do
// eight lanes go through the blocks in order, as the sums are scrambled after each.

typedef unsigned int u32;
typedef unsigned long long u64;

// What is mixed with the bytes, made of the secret of XXH3 and the seed by the host.
struct Keys {
    // The words of the secret.
    u64 secret[24];
    // Those for the last stripe, for the low and for the high half of the hash, which lie across.
    u64 last[8], low[8], high[8];
};

struct HashLaunch {
    // At a multiple of 16.
    const unsigned char *from;
    u64 bytes;
    // Two words a chunk, the low half first.
    u64 *hashes;
    Keys keys;
};

static const u32 CHUNK = 65536, BLOCK = 1024, STRIPE = 64, STRIPES = BLOCK / STRIPE;
static const u32 WARPS_OF_CHUNK = 8;
// Blocks that a warp has in flight at once.
static const u32 AHEAD = 4;

static const u64 P32_1 = 0x9e3779b1, P32_2 = 0x85ebca77, P32_3 = 0xc2b2ae3d;
static const u64 P64_1 = 0x9e3779b185ebca87ull, P64_2 = 0xc2b2ae3d27d4eb4full;
static const u64 P64_3 = 0x165667b19e3779f9ull, P64_4 = 0x85ebca77c2b2ae63ull;
static const u64 P64_5 = 0x27d4eb2f165667c5ull;

// What the sums are at the beginning of a chunk.
static __device__ u64 first_sum(u32 i) {
    switch (i) {
        case 0: return P32_3;
        case 1: return P64_1;
        case 2: return P64_2;
        case 3: return P64_3;
        case 4: return P64_4;
        case 5: return P32_2;
        case 6: return P64_5;
        default: return P32_1;
    }
}

static __device__ u64 halves(u64 x) { return (x & 0xffffffff) * (x >> 32); }

static __device__ u64 word_at(const unsigned char *from) {
    u64 word = 0;
    for (u32 i = 0; i < 8; i++) word |= (u64)from[i] << (8 * i);
    return word;
}

static __device__ u64 folded(const u64 *sums, const u64 *keys, u64 start) {
    u64 sum = start;
    for (u32 i = 0; i < 8; i += 2) {
        u64 a = sums[i] ^ keys[i], b = sums[i + 1] ^ keys[i + 1];
        sum += (a * b) ^ __umul64hi(a, b);
    }
    sum ^= sum >> 37;
    sum *= 0x165667919e3779f9ull;
    return sum ^ sum >> 32;
}

extern "C" __global__ void __launch_bounds__(256, 4)
    chunk_hash(const __grid_constant__ HashLaunch a) {
    __shared__ u64 sums[CHUNK / BLOCK][8];
    const u64 begin = (u64)blockIdx.x * CHUNK;
    const unsigned char *from = a.from + begin;
    const u32 len = a.bytes - begin < CHUNK ? (u32)(a.bytes - begin) : CHUNK;
    // Blocks after which sums are scrambled, and stripes of the one that follows them.
    const u32 whole = (len - 1) / BLOCK, rest = (len - 1) % BLOCK / STRIPE;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // A lane has this pair of words of two stripes of a block.
    const u32 pair = lane % 4, stripe = lane / 4, other = stripe + STRIPES / 2;
    const u64 *key = a.keys.secret + 2 * pair;
    const u64 k0 = key[stripe], k1 = key[stripe + 1], k2 = key[other], k3 = key[other + 1];
    const u32 place = stripe * STRIPE + pair * 16;
    for (u32 first = warp; first <= whole; first += AHEAD * WARPS_OF_CHUNK) {
        uint4 words[AHEAD][2];
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            const u32 block = first + i * WARPS_OF_CHUNK;
            const unsigned char *at = from + block * BLOCK + place;
            const bool is_whole = block < whole, is_last = block == whole;
            if (is_whole || (is_last && stripe < rest)) words[i][0] = __ldcs((const uint4 *)at);
            if (is_whole || (is_last && other < rest)) {
                words[i][1] = __ldcs((const uint4 *)(at + BLOCK / 2));
            }
        }
#pragma unroll
        for (u32 i = 0; i < AHEAD; i++) {
            const u32 block = first + i * WARPS_OF_CHUNK;
            const bool is_whole = block < whole, is_last = block == whole;
            u64 even = 0, odd = 0;
            if (is_whole || (is_last && stripe < rest)) {
                const u64 x = words[i][0].x | (u64)words[i][0].y << 32;
                const u64 y = words[i][0].z | (u64)words[i][0].w << 32;
                even += y + halves(x ^ k0);
                odd += x + halves(y ^ k1);
            }
            if (is_whole || (is_last && other < rest)) {
                const u64 x = words[i][1].x | (u64)words[i][1].y << 32;
                const u64 y = words[i][1].z | (u64)words[i][1].w << 32;
                even += y + halves(x ^ k2);
                odd += x + halves(y ^ k3);
            }
            for (u32 apart = 4; apart < 32; apart *= 2) {
                even += __shfl_xor_sync(~0u, even, apart);
                odd += __shfl_xor_sync(~0u, odd, apart);
            }
            if (stripe == 0 && block <= whole) {
                sums[block][2 * pair] = even;
                sums[block][2 * pair + 1] = odd;
            }
        }
    }
    __syncthreads();
    if (warp > 0) return;
    const u32 i = lane % 8;
    u64 sum = first_sum(i);
    for (u32 block = 0; block < whole; block++) {
        sum += sums[block][i];
        sum = (sum ^ sum >> 47 ^ a.keys.secret[16 + i]) * P32_1;
    }
    sum += sums[whole][i];
    // The last stripe ends with the chunk, wherever the one before it does.
    const u64 own = word_at(from + len - STRIPE + 8 * i);
    sum += __shfl_xor_sync(~0u, own, 1) + halves(own ^ a.keys.last[i]);
    __syncwarp();
    if (lane < 8) sums[0][i] = sum;
    __syncwarp();
    u64 *to = a.hashes + 2 * (u64)blockIdx.x;
    if (lane == 0) to[0] = folded(sums[0], a.keys.low, len * P64_1);
    if (lane == 1) to[1] = folded(sums[0], a.keys.high, ~(len * P64_2));
}

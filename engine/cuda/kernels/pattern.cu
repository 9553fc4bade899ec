// A pattern that tells every byte of a transfer apart, for checks: the byte at position p of the
// stream of a seed is byte p % 8 of a mixed word number p / 8. The host computes the same
// (src/kernels/pattern.rs). Any address, any length.

typedef unsigned long long u64;

__device__ u64 mixed(u64 seed, u64 word) {
    u64 x = seed + (word + 1) * 0x9e3779b97f4a7c15ull;  // SplitMix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

__device__ unsigned char expected(u64 seed, u64 position) {
    return (unsigned char)(mixed(seed, position / 8) >> (8 * (position % 8)));
}

// Writes the bytes at positions first .. first + len to `to`.
extern "C" __global__ void fill_pattern(unsigned char *to, u64 len, u64 seed, u64 first) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += step) {
        to[i] = expected(seed, first + i);
    }
}

// Adds the number of bytes that differ from positions first .. first + len to `wrong`.
extern "C" __global__ void count_wrong(const unsigned char *bytes, u64 len, u64 seed, u64 first,
                                       u64 *wrong) {
    u64 step = (u64)gridDim.x * blockDim.x;
    u64 found = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += step) {
        found += bytes[i] != expected(seed, first + i);
    }
    if (found) {
        atomicAdd(wrong, found);
    }
}

// Copies items between two arrays of the same shape whose items lie apart, in either: the host
// (src/strided) merges and orders the dimensions and says how far apart the items of each are on
// both sides. An item here is a unit of 1 to 16 bytes to which both addresses and all distances are
// aligned. This text is C++ as well: a test compiles it for the processor and runs every thread in
// turn, so it uses nothing but its own index.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;

// Eight dimensions, and one for the units of a run of contiguous bytes.
#define MOST_DIMS 9

struct Walk {
    u64 units;             // the product of the sizes
    u64 dims;              // how many of the entries below count; the last one changes fastest
    u64 sizes[MOST_DIMS];
    i64 from[MOST_DIMS];   // bytes between neighbours
    i64 to[MOST_DIMS];
    u64 shifts[MOST_DIMS]; // of sizes that are powers of two, else 64
};

struct alignas(16) Sixteen {
    u64 low;
    u64 high;
};

// Copies unit number `index`: from the last dimension to the first, the rest of a division is the
// place along the dimension and the quotient goes on. `Index` holds the number of units.
template <typename Unit, typename Index>
__device__ void copy_unit(char *to, const char *from, const Walk &walk, Index index) {
    i64 from_at = 0;
    i64 to_at = 0;
    for (int dim = (int)walk.dims - 1; dim > 0; dim--) {
        Index size = (Index)walk.sizes[dim];
        // The same way for all threads, and much cheaper than a division.
        Index rest = walk.shifts[dim] < 64 ? index >> walk.shifts[dim] : index / size;
        i64 place = (i64)(index - rest * size);
        from_at += place * walk.from[dim];
        to_at += place * walk.to[dim];
        index = rest;
    }
    from_at += (i64)index * walk.from[0];
    to_at += (i64)index * walk.to[0];
    *(Unit *)(to + to_at) = *(const Unit *)(from + from_at);
}

template <typename Unit, typename Index>
__device__ void copy_units(char *to, const char *from, const Walk &walk) {
    Index step = (Index)gridDim.x * blockDim.x;
    Index units = (Index)walk.units;
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < units; i += step) {
        copy_unit<Unit, Index>(to, from, walk, i);
    }
}

#define KERNEL(bytes, Unit)                                                                        \
    extern "C" __global__ void copy_units_##bytes##_32(char *to, const char *from, Walk walk) {    \
        copy_units<Unit, u32>(to, from, walk);                                                     \
    }                                                                                              \
    extern "C" __global__ void copy_units_##bytes##_64(char *to, const char *from, Walk walk) {    \
        copy_units<Unit, u64>(to, from, walk);                                                     \
    }

KERNEL(1, unsigned char)
KERNEL(2, unsigned short)
KERNEL(4, u32)
KERNEL(8, u64)
KERNEL(16, Sixteen)

// Copies of dense bytes, many by one launch: a block copies one tile of one of them.
#define MOST_COPIES 168

struct Dense {
    u64 to;
    u64 from; // 0 for zeros
    u32 bytes;
    u32 tile; // the first one of the copy
};

struct Many {
    u32 copies;
    u32 tile_bytes; // a multiple of 16
    Dense all[MOST_COPIES];
};

// The copy with a tile: the last one that begins at that tile or before it.
__device__ u32 copy_of(const Many &many, u32 tile) {
    u32 first = 0;
    u32 end = many.copies;
    while (end - first > 1) {
        u32 middle = (first + end) / 2;
        if (many.all[middle].tile <= tile) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return first;
}

// Copies units of some bytes, this thread every `step`th from `first` on; returns the bytes that
// are in no unit. Four units are under way at a time, which a loop of a load and a store is not:
// for all that the compiler knows, the store writes what is loaded next.
template <typename Unit>
__device__ u32 copy_dense(char *to, const char *from, u32 bytes, u32 first, u32 step) {
    u32 units = bytes / sizeof(Unit);
    Unit *target = (Unit *)to;
    const Unit *source = (const Unit *)from;
    u32 i = first;
    for (; i + 3 * step < units; i += 4 * step) {
        Unit a = source[i];
        Unit b = source[i + step];
        Unit c = source[i + 2 * step];
        Unit d = source[i + 3 * step];
        target[i] = a;
        target[i + step] = b;
        target[i + 2 * step] = c;
        target[i + 3 * step] = d;
    }
    for (; i < units; i += step) {
        target[i] = source[i];
    }
    return bytes - units * (u32)sizeof(Unit);
}

extern "C" __global__ void copy_many(const __grid_constant__ Many many) {
    const Dense &copy = many.all[copy_of(many, blockIdx.x)];
    u32 at = (blockIdx.x - copy.tile) * many.tile_bytes;
    u32 bytes = copy.bytes - at < many.tile_bytes ? copy.bytes - at : many.tile_bytes;
    char *to = (char *)copy.to + at;
    if (copy.from == 0) {
        for (u32 i = threadIdx.x; i < bytes; i += blockDim.x) {
            to[i] = 0;
        }
        return;
    }
    const char *from = (const char *)copy.from + at;
    u64 places = copy.to | copy.from;
    u32 first = threadIdx.x;
    u32 step = blockDim.x;
    u32 rest = bytes;
    if (places % 16 == 0) {
        rest = copy_dense<Sixteen>(to, from, bytes, first, step);
    } else if (places % 8 == 0) {
        rest = copy_dense<u64>(to, from, bytes, first, step);
    } else if (places % 4 == 0) {
        rest = copy_dense<u32>(to, from, bytes, first, step);
    } else if (places % 2 == 0) {
        rest = copy_dense<unsigned short>(to, from, bytes, first, step);
    }
    u32 done = bytes - rest;
    copy_dense<char>(to + done, from + done, rest, first, step);
}

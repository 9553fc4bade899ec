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

// Copies of dense bytes, many by one launch: `blocks` blocks for each.
#define MOST_COPIES 128

struct Dense {
    u64 to;
    u64 from;
    u64 bytes;
};

struct Many {
    u64 blocks;
    Dense copies[MOST_COPIES];
};

// Copies the units `first`, `first + step`, ... of a copy; returns the bytes that are in no unit.
template <typename Unit>
__device__ u64 copy_dense(const Dense &copy, u64 first, u64 step) {
    u64 units = copy.bytes / sizeof(Unit);
    for (u64 i = first; i < units; i += step) {
        ((Unit *)copy.to)[i] = ((const Unit *)copy.from)[i];
    }
    return copy.bytes - units * sizeof(Unit);
}

extern "C" __global__ void copy_many(Many many) {
    const Dense &copy = many.copies[blockIdx.x / (u32)many.blocks];
    u64 first = (u64)(blockIdx.x % (u32)many.blocks) * blockDim.x + threadIdx.x;
    u64 step = many.blocks * blockDim.x;
    u64 places = copy.to | copy.from;
    u64 rest = copy.bytes;
    if (places % 16 == 0) {
        rest = copy_dense<Sixteen>(copy, first, step);
    } else if (places % 4 == 0) {
        rest = copy_dense<u32>(copy, first, step);
    }
    u64 done = copy.bytes - rest;
    for (u64 i = first; i < rest; i += step) {
        ((char *)copy.to)[done + i] = ((const char *)copy.from)[done + i];
    }
}

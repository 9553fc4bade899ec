// zfp at a fixed rate: float32 and float64, one to three dimensions. The stream is that of libzfp:
// block after block of `bits` bits each, from the low end of little-endian words. One thread codes
// `group` blocks: as many as fill whole words or at least whole bytes, so that no two threads write
// to the same one. Blocks of tiny values are scaled in two steps, as the crate zfp-rs does it;
// libzfp's own scale overflows there. Nothing is contracted: the error that is reported is the
// decoder's.
//
// This text is C++ as well: a test compiles it for the processor and runs every thread in turn.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

// The shape of an array in values, x fastest, and in blocks.
struct Shape {
    u64 values[3];
    u64 blocks[3];
    u64 count;             // the product of `blocks`
    u64 bits;              // of a block
    u64 group;             // blocks of a thread
    u64 words;             // 64-bit words of the stream
    u64 precision_slack;   // 1074 + 2 * (dimensions + 1): planes above it are all that is coded
};

// What the encoder saw, added up by all threads: `largest` is the bits of a float64.
struct Seen {
    u64 largest;
    double squares;
    u64 wild;              // blocks with values that are NaN or infinite
};

#ifdef __CUDACC_RTC__
__device__ __forceinline__ int lowest_bit(u64 x) { return __ffsll((i64)x) - 1; }
// Adds up what the threads of a block have seen, all of which take part.
__device__ __forceinline__ void see(Seen *seen, double largest, double squares, u32 wild) {
    __shared__ Seen warps[32];
    for (int far = 16; far > 0; far /= 2) {
        double other = __shfl_xor_sync(~0u, largest, far);
        largest = other > largest ? other : largest;
        squares = __dadd_rn(squares, __shfl_xor_sync(~0u, squares, far));
        wild += __shfl_xor_sync(~0u, wild, far);
    }
    if (threadIdx.x % 32 == 0) {
        Seen &own = warps[threadIdx.x / 32];
        own.largest = (u64)__double_as_longlong(largest);
        own.squares = squares;
        own.wild = wild;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    Seen all = warps[0];
    for (u32 warp = 1; warp < blockDim.x / 32; warp++) {
        all.largest = warps[warp].largest > all.largest ? warps[warp].largest : all.largest;
        all.squares = __dadd_rn(all.squares, warps[warp].squares);
        all.wild += warps[warp].wild;
    }
    // Most blocks see nothing larger than what is known already.
    if (all.largest > *(volatile u64 *)&seen->largest) atomicMax(&seen->largest, all.largest);
    if (all.squares > 0) atomicAdd(&seen->squares, all.squares);
    if (all.wild > 0) atomicAdd(&seen->wild, all.wild);
}
#endif

// In the order of total degree, then of the sum of squares: which coefficient is coded as which.
__device__ constexpr u8 ORDER_1[4] = {0, 1, 2, 3};
__device__ constexpr u8 ORDER_2[16] = {0, 1, 4, 5, 2, 8, 6, 9, 3, 12, 10, 7, 13, 11, 14, 15};
__device__ constexpr u8 ORDER_3[64] = {
    0,  1,  4,  16, 20, 17, 5,  2,  8,  32, 21, 6,  18, 24, 9,  33, 36, 3,  12, 48, 22, 25,
    37, 40, 34, 10, 7,  19, 28, 13, 49, 52, 41, 38, 26, 23, 29, 53, 11, 35, 44, 14, 50, 56,
    42, 27, 39, 45, 30, 54, 57, 60, 51, 15, 43, 46, 58, 61, 55, 31, 62, 59, 47, 63,
};

template <int DIMS>
__device__ __forceinline__ constexpr int coded_as(int i) {
    return DIMS == 1 ? ORDER_1[i] : DIMS == 2 ? ORDER_2[i] : ORDER_3[i];
}

// What differs between the two types of values.
struct Single {
    typedef float Value;
    typedef int Int;
    typedef u32 Uint;
    static const int PLANES = 32;
    static const int EXPONENT_BITS = 8;
    static const int BIAS = 127;
    static const int FRACTION = 23;
    static const int LEAST_SCALED = -97;
    __device__ static u32 bits(float x) { return __float_as_uint(x); }
    __device__ static float value(u32 x) { return __uint_as_float(x); }
    __device__ static float product(float a, float b) { return __fmul_rn(a, b); }
    __device__ static int truncated(float x) { return __float2int_rz(x); }
    __device__ static float rounded(int x) { return __int2float_rn(x); }
};

struct Double {
    typedef double Value;
    typedef i64 Int;
    typedef u64 Uint;
    static const int PLANES = 64;
    static const int EXPONENT_BITS = 11;
    static const int BIAS = 1023;
    static const int FRACTION = 52;
    static const int LEAST_SCALED = -961;
    __device__ static u64 bits(double x) { return (u64)__double_as_longlong(x); }
    __device__ static double value(u64 x) { return __longlong_as_double((i64)x); }
    __device__ static double product(double a, double b) { return __dmul_rn(a, b); }
    __device__ static i64 truncated(double x) { return __double2ll_rz(x); }
    __device__ static double rounded(i64 x) { return __ll2double_rn(x); }
};

// 2^exponent, 0 below the smallest denormal. The exponent is below that of infinity.
template <typename T>
__device__ typename T::Value power(int exponent) {
    typedef typename T::Uint Uint;
    if (exponent > -T::BIAS) return T::value((Uint)(exponent + T::BIAS) << T::FRACTION);
    int shift = exponent + T::BIAS - 1 + T::FRACTION;
    return T::value(shift < 0 ? (Uint)0 : (Uint)1 << shift);
}

__device__ __forceinline__ u64 low_bits(u64 x, int count) {
    return count < 64 ? x & (((u64)1 << count) - 1) : x;
}

// Where position `at` of a block's side comes from when only `inside` of its four are there.
__device__ __forceinline__ int padded(int at, int inside) {
    return at < inside ? at : inside == 3 || at == 3 ? 0 : inside - 1;
}

// Writes bits one after the other, in bytes or words that no other thread writes to.
struct Writer {
    u8 *out;
    bool wide;
    u64 held;
    int count;

    __device__ void put(u64 x, int bits) {
        held |= x << count;
        int all = count + bits;
        if (all >= 64) {
            store(64);
            held = count > 0 ? x >> (64 - count) : 0;
            all -= 64;
        }
        count = all;
    }

    __device__ void zeros(u64 bits) {
        for (; bits >= 64; bits -= 64) put(0, 64);
        put(0, (int)bits);
    }

    // The held bits, of which there are a whole number of bytes, or 64 if it is wide.
    __device__ void store(int bits) {
        if (wide) {
            if (bits > 0) *(u64 *)out = held;
        } else {
            for (int byte = 0; byte < bits / 8; byte++) out[byte] = (u8)(held >> 8 * byte);
        }
        out += bits / 8;
    }
};

// Reads bits one after the other; what lies after the stream's end reads as zero.
struct Reader {
    const u64 *words;
    u64 next;
    u64 end;
    u64 low;
    u64 high;
    int used;

    __device__ void begin(const u64 *stream, u64 length, u64 bit) {
        words = stream;
        end = length;
        next = bit / 64;
        used = (int)(bit % 64);
        low = fetch();
        high = fetch();
    }

    __device__ u64 fetch() {
        u64 word = next < end ? words[next] : 0;
        next++;
        return word;
    }

    __device__ u64 peek() { return used > 0 ? low >> used | high << (64 - used) : low; }

    __device__ void skip(int bits) {
        used += bits;
        if (used >= 64) {
            used -= 64;
            low = high;
            high = fetch();
        }
    }

    __device__ u64 get(int bits) {
        u64 x = low_bits(peek(), bits);
        skip(bits);
        return x;
    }
};

template <typename Int>
__device__ __forceinline__ void lift(Int &x, Int &y, Int &z, Int &w) {
    x += w, x >>= 1, w -= x;
    z += y, z >>= 1, y -= z;
    x += z, x >>= 1, z -= x;
    w += y, w >>= 1, y -= w;
    w += y >> 1, y -= w >> 1;
}

// The inverse, in unsigned arithmetic: a damaged stream may overflow.
template <typename Int, typename Uint>
__device__ __forceinline__ void unlift(Int &a, Int &b, Int &c, Int &d) {
    Uint x = a, y = b, z = c, w = d;
    y += (Uint)((Int)w >> 1), w -= (Uint)((Int)y >> 1);
    y += w, w = (w << 1) - y;
    z += x, x = (x << 1) - z;
    y += z, z = (z << 1) - y;
    w += x, x = (x << 1) - w;
    a = (Int)x, b = (Int)y, c = (Int)z, d = (Int)w;
}

template <typename T, int DIMS, bool FORWARD>
__device__ __forceinline__ void transform(typename T::Int *p) {
    const int size = 1 << 2 * DIMS;
#pragma unroll
    for (int dim = 0; dim < DIMS; dim++) {
        const int far = 1 << 2 * (FORWARD ? dim : DIMS - 1 - dim);
#pragma unroll
        for (int i = 0; i < size; i++) {
            if (i / far % 4 != 0) continue;
            if (FORWARD) {
                lift<typename T::Int>(p[i], p[i + far], p[i + 2 * far], p[i + 3 * far]);
            } else {
                unlift<typename T::Int, typename T::Uint>(p[i], p[i + far], p[i + 2 * far],
                                                          p[i + 3 * far]);
            }
        }
    }
}

// Which part of the array a block covers.
struct Part {
    u64 first;
    int inside[3];

    __device__ Part(const Shape &shape, u64 block) {
        u64 place[3];
        place[0] = block % shape.blocks[0];
        block /= shape.blocks[0];
        place[1] = block % shape.blocks[1];
        place[2] = block / shape.blocks[1];
        first = 0;
        for (int dim = 2; dim >= 0; dim--) {
            u64 left = shape.values[dim] - 4 * place[dim];
            inside[dim] = left < 4 ? (int)left : 4;
            first = first * shape.values[dim] + 4 * place[dim];
        }
    }

    template <int DIMS>
    __device__ bool whole() const {
        return inside[0] == 4 && (DIMS < 2 || inside[1] == 4) && (DIMS < 3 || inside[2] == 4);
    }

    template <int DIMS>
    __device__ bool has(int i) const {
        return i % 4 < inside[0] && (DIMS < 2 || i / 4 % 4 < inside[1]) &&
               (DIMS < 3 || i / 16 < inside[2]);
    }

    // Where value `i` of the block is, or where it is copied from.
    template <int DIMS>
    __device__ u64 at(const Shape &shape, int i) const {
        u64 place = first + padded(i % 4, inside[0]);
        if (DIMS > 1) place += shape.values[0] * padded(i / 4 % 4, inside[1]);
        if (DIMS > 2) place += shape.values[0] * shape.values[1] * padded(i / 16, inside[2]);
        return place;
    }
};

template <typename T, int DIMS>
__device__ __forceinline__ void gather(const typename T::Value *values, const Shape &shape,
                                       const Part &part, typename T::Value *block) {
    const int size = 1 << 2 * DIMS;
    if (part.whole<DIMS>()) {
        const typename T::Value *from = values + part.first;
#pragma unroll
        for (int i = 0; i < size; i++) {
            block[i] = from[i % 4 + shape.values[0] * (i / 4 % 4) +
                            shape.values[0] * shape.values[1] * (i / 16)];
        }
    } else {
#pragma unroll
        for (int i = 0; i < size; i++) block[i] = values[part.at<DIMS>(shape, i)];
    }
}

// The exponent of the block's largest finite value, as frexp tells it, at least that of the
// smallest normal number; -BIAS if all are zero. Infinity counts as 0, as in frexp.
template <typename T, int DIMS>
__device__ __forceinline__ int largest_exponent(const typename T::Value *block, u32 &wild) {
    typedef typename T::Uint Uint;
    const Uint infinity = ~(Uint)0 >> (T::FRACTION + 1) << T::FRACTION;
    const Uint sign = (Uint)1 << (T::PLANES - 1);
    Uint most = 0;
#pragma unroll
    for (int i = 0; i < 1 << 2 * DIMS; i++) {
        Uint magnitude = T::bits(block[i]) & ~sign;
        wild |= magnitude >= infinity ? 1 : 0;
        most = magnitude <= infinity && magnitude > most ? magnitude : most;
    }
    if (most == 0) return -T::BIAS;
    return most == infinity ? 0 : (int)(most >> T::FRACTION) - (T::BIAS - 1);
}

// To integers, of which the largest has its highest bit below the sign.
template <typename T, int DIMS>
__device__ __forceinline__ void to_integers(const typename T::Value *block, int exponent,
                                            typename T::Int *ints) {
    bool tiny = exponent < T::LEAST_SCALED;
    typename T::Value first = tiny ? power<T>(64) : (typename T::Value)1;
    typename T::Value scale = power<T>(T::PLANES - 2 - (tiny ? 64 : 0) - exponent);
#pragma unroll
    for (int i = 0; i < 1 << 2 * DIMS; i++) {
        ints[i] = T::truncated(T::product(T::product(block[i], first), scale));
    }
}

template <typename T, int DIMS>
__device__ __forceinline__ void to_values(const typename T::Int *ints, int exponent,
                                          typename T::Value *block) {
    typename T::Value scale = power<T>(exponent - (T::PLANES - 2));
#pragma unroll
    for (int i = 0; i < 1 << 2 * DIMS; i++) block[i] = T::product(scale, T::rounded(ints[i]));
}

// The lowest bit plane that is coded for an exponent.
template <typename T>
__device__ __forceinline__ int lowest_plane(const Shape &shape, int exponent) {
    int planes = exponent + (int)shape.precision_slack;
    return planes >= T::PLANES ? 0 : planes > 0 ? T::PLANES - planes : T::PLANES;
}

// Codes the planes of negabinary coefficients from the top until the bits are used up: a number of
// coefficients that were found to matter as they are, then, as long as there are more ones, how far
// off the next is. `coded` becomes what the decoder makes of it.
template <typename T, int DIMS>
__device__ __forceinline__ void put_planes(Writer &writer, int bits, int lowest,
                                           typename T::Uint *coded) {
    typedef typename T::Uint Uint;
    const int size = 1 << 2 * DIMS;
    int known = 0;
    int plane = T::PLANES;
    u64 told = 0;
    while (bits > 0 && plane > lowest) {
        plane--;
        u64 x = 0;
#pragma unroll
        for (int i = 0; i < size; i++) x |= (u64)(coded[i] >> plane & 1) << i;
        int plain = known < bits ? known : bits;
        told = low_bits(x, plain);
        writer.put(told, plain);
        bits -= plain;
        x = plain < 64 ? x >> plain : 0;
        while (known < size && bits > 0) {
            bits--;
            if (x == 0) {
                writer.put(0, 1);
                break;
            }
            int apart = lowest_bit(x);
            int room = size - 1 - known;
            int length = apart < room ? apart + 1 : room;
            bool ends = apart < room && length <= bits;
            length = length < bits ? length : bits;
            writer.put((u64)1 | (ends ? (u64)2 << apart : 0), length + 1);
            bits -= length;
            int zeros = apart < length ? apart : length;
            known += zeros;
            x >>= zeros;
            told |= (u64)1 << known;
            known++;
            x >>= 1;
        }
    }
    writer.zeros(bits);
#pragma unroll
    for (int i = 0; i < size; i++) {
        Uint above = plane + 1 < T::PLANES ? coded[i] >> (plane + 1) << (plane + 1) : (Uint)0;
        if (plane < T::PLANES) coded[i] = above | (Uint)(told >> i & 1) << plane;
        else coded[i] = 0;
    }
}

template <typename T, int DIMS>
__device__ __forceinline__ void get_planes(Reader &reader, int bits, int lowest,
                                           typename T::Uint *coded) {
    typedef typename T::Uint Uint;
    const int size = 1 << 2 * DIMS;
    int known = 0;
#pragma unroll
    for (int i = 0; i < size; i++) coded[i] = 0;
    for (int plane = T::PLANES - 1; bits > 0 && plane >= lowest; plane--) {
        int plain = known < bits ? known : bits;
        u64 x = reader.get(plain);
        bits -= plain;
        while (known < size && bits > 0) {
            bits--;
            if (reader.get(1) == 0) break;
            int room = size - 1 - known;
            room = room < bits ? room : bits;
            u64 ahead = low_bits(reader.peek(), room);
            int zeros = ahead != 0 ? lowest_bit(ahead) : room;
            int length = ahead != 0 ? zeros + 1 : room;
            reader.skip(length);
            bits -= length;
            known += zeros;
            x |= (u64)1 << known;
            known++;
        }
#pragma unroll
        for (int i = 0; i < size; i++) coded[i] |= (Uint)(x >> i & 1) << plane;
    }
}

template <typename T, int DIMS>
__device__ __forceinline__ void from_coded(const typename T::Uint *coded, int exponent,
                                           typename T::Value *block) {
    typedef typename T::Uint Uint;
    const Uint alternate = (Uint)0xaaaaaaaaaaaaaaaaULL;
    typename T::Int ints[1 << 2 * DIMS];
#pragma unroll
    for (int i = 0; i < 1 << 2 * DIMS; i++) {
        ints[coded_as<DIMS>(i)] = (typename T::Int)((coded[i] ^ alternate) - alternate);
    }
    transform<T, DIMS, false>(ints);
    to_values<T, DIMS>(ints, exponent, block);
}

// What one thread sees of the error.
struct Error {
    double largest;
    double squares;
    u32 wild;
};

template <typename T, int DIMS>
__device__ __forceinline__ void add_error(const typename T::Value *block,
                                          const typename T::Value *back, const Part &part,
                                          Error &error) {
#pragma unroll
    for (int i = 0; i < 1 << 2 * DIMS; i++) {
        if (!part.has<DIMS>(i)) continue;
        double far = fabs(__dadd_rn((double)block[i], -(double)back[i]));
        error.largest = far > error.largest ? far : error.largest;
        if (far <= 1.7976931348623157e308) {
            error.squares = __dadd_rn(error.squares, __dmul_rn(far, far));
        }
    }
}

template <typename T, int DIMS>
__device__ __forceinline__ void put_block(Writer &writer, const typename T::Value *values,
                                          const Shape &shape, u64 index, Error &error) {
    typedef typename T::Uint Uint;
    const int size = 1 << 2 * DIMS;
    const Uint alternate = (Uint)0xaaaaaaaaaaaaaaaaULL;
    Part part(shape, index);
    typename T::Value block[size];
    gather<T, DIMS>(values, shape, part, block);
    u32 wild = 0;
    int exponent = largest_exponent<T, DIMS>(block, wild);
    error.wild += wild;
    if (exponent + T::BIAS == 0) {
        writer.zeros(shape.bits);
        return;
    }
    writer.put(2 * (u64)(exponent + T::BIAS) + 1, T::EXPONENT_BITS + 1);
    typename T::Int ints[size];
    to_integers<T, DIMS>(block, exponent, ints);
    transform<T, DIMS, true>(ints);
    Uint coded[size];
#pragma unroll
    for (int i = 0; i < size; i++) {
        coded[i] = ((Uint)ints[coded_as<DIMS>(i)] + alternate) ^ alternate;
    }
    int bits = (int)shape.bits - T::EXPONENT_BITS - 1;
    put_planes<T, DIMS>(writer, bits, lowest_plane<T>(shape, exponent), coded);
    typename T::Value back[size];
    from_coded<T, DIMS>(coded, exponent, back);
    add_error<T, DIMS>(block, back, part, error);
}

template <typename T, int DIMS>
__device__ __forceinline__ void get_block(const u64 *words, typename T::Value *values,
                                          const Shape &shape, u64 index) {
    const int size = 1 << 2 * DIMS;
    Part part(shape, index);
    Reader reader;
    reader.begin(words, shape.words, index * shape.bits);
    typename T::Value block[size];
    if (reader.get(1) != 0) {
        int exponent = (int)reader.get(T::EXPONENT_BITS) - T::BIAS;
        int bits = (int)shape.bits - T::EXPONENT_BITS - 1;
        typename T::Uint coded[size];
        get_planes<T, DIMS>(reader, bits, lowest_plane<T>(shape, exponent), coded);
        from_coded<T, DIMS>(coded, exponent, block);
    } else {
#pragma unroll
        for (int i = 0; i < size; i++) block[i] = 0;
    }
#pragma unroll
    for (int i = 0; i < size; i++) {
        if (part.has<DIMS>(i)) values[part.at<DIMS>(shape, i)] = block[i];
    }
}

// Codes the blocks of thread `thread`, and the zeros after the last one.
template <typename T, int DIMS>
__device__ __forceinline__ void put_group(const typename T::Value *values, const Shape &shape,
                                          u8 *stream, u64 thread, Error &error) {
    u64 block = thread * shape.group;
    if (block >= shape.count) return;
    u64 end = block + shape.group < shape.count ? block + shape.group : shape.count;
    Writer writer;
    writer.out = stream + block * shape.bits / 8;
    writer.wide = shape.group * shape.bits % 64 == 0;
    writer.held = 0;
    writer.count = 0;
    for (; block < end; block++) put_block<T, DIMS>(writer, values, shape, block, error);
    if (end == shape.count) writer.zeros(64 * shape.words - end * shape.bits);
    writer.store(writer.count);
}

// Where a checkpoint begins: at `fixed`, or after the end that the record `before` tells.
struct Place {
    u64 fixed;
    const u64 *before;
    u64 align;
    u64 limit;             // nothing is written at or beyond it
    u64 bytes;             // of the whole checkpoint
};

__device__ __forceinline__ u64 begin_of(const Place &place) {
    if (place.before == 0) return place.fixed;
    return (place.before[0] + place.align - 1) / place.align * place.align;
}

__device__ __forceinline__ bool fits(const Place &place, u64 begin) {
    return begin <= place.limit && place.bytes <= place.limit - begin;
}

// The words before a stream, known before it is made.
struct Head {
    u64 words[8];
};

// One array of a checkpoint: how far after its begin, with how many words of zeros to the next,
// and what the result tells of it.
struct Job {
    u64 offset;
    u64 gap;
    Seen *seen;
    u64 *result;
};

__device__ __forceinline__ u64 thread_index() {
    return (u64)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ void put_head(const Head &head, const Shape &shape, const Job &job, u64 *words) {
    for (int i = 0; i < 8; i++) words[i] = head.words[i];
    for (u64 i = 0; i < job.gap; i++) words[8 + shape.words + i] = 0;
    job.result[0] = job.offset;
    job.result[1] = 8 * (8 + shape.words);
    job.result[4] = shape.values[0] * shape.values[1] * shape.values[2];
    job.result[5] = 0;
}

template <typename T, int DIMS>
__device__ __forceinline__ void encode(const typename T::Value *values, const Shape &shape,
                                       const Place &place, const Head &head, const Job &job) {
    u64 begin = begin_of(place);
    if (!fits(place, begin)) return;
    u64 *words = (u64 *)(begin + job.offset);
    Error error = {0, 0, 0};
    u64 thread = thread_index();
    if (thread == 0) put_head(head, shape, job, words);
    put_group<T, DIMS>(values, shape, (u8 *)(words + 8), thread, error);
    see(job.seen, error.largest, error.squares, error.wild);
}

// Decodes only what has exactly the expected head; `status` becomes 1 otherwise, else 0.
template <typename T, int DIMS>
__device__ __forceinline__ void decode(const u64 *stream, typename T::Value *values,
                                       const Shape &shape, const Head &head, u64 *status) {
    bool known = true;
    for (int i = 0; i < 8; i++) known = known && stream[i] == head.words[i];
    u64 block = thread_index();
    if (block == 0) *status = known ? 0 : 1;
    if (known && block < shape.count) get_block<T, DIMS>(stream + 8, values, shape, block);
}

#define KERNELS(name, T, dims)                                                                     \
    extern "C" __global__ void zfp_encode_##name##_##dims(const T::Value *values, Shape shape,     \
                                                          Place place, Head head, Job job) {       \
        encode<T, dims>(values, shape, place, head, job);                                          \
    }                                                                                              \
    extern "C" __global__ void zfp_decode_##name##_##dims(const u64 *stream, T::Value *values,     \
                                                          Shape shape, Head head, u64 *status) {   \
        decode<T, dims>(stream, values, shape, head, status);                                      \
    }

KERNELS(f32, Single, 1)
KERNELS(f32, Single, 2)
KERNELS(f32, Single, 3)
KERNELS(f64, Double, 1)
KERNELS(f64, Double, 2)
KERNELS(f64, Double, 3)

// The status of a result, as src/pending/result.rs has it.
#define DONE 0
#define OVERFLOW 1
#define REFUSED 2

// Tells the result of a checkpoint, when its arrays are done, and forgets what was seen for the
// next one. What follows one that failed begins at its limit.
extern "C" __global__ void zfp_finish(Place place, Seen *seen, u64 jobs, u64 *slot, u64 sequence,
                                      u64 *record) {
    u64 begin = begin_of(place);
    u64 status = fits(place, begin) ? DONE : OVERFLOW;
    for (u64 j = 0; j < jobs; j++) {
        u64 *result = slot + 4 + 6 * j;
        result[2] = seen[j].largest;
        result[3] = (u64)__double_as_longlong(seen[j].squares);
        if (status == DONE && seen[j].wild > 0) status = REFUSED;
        seen[j].largest = 0;
        seen[j].squares = 0;
        seen[j].wild = 0;
    }
    record[0] = status == DONE ? begin + place.bytes : place.limit;
    record[1] = begin;
    record[2] = status;
    record[3] = 0;
    slot[1] = status;
    slot[2] = begin;
    slot[3] = place.bytes;
    __threadfence_system();
    *(volatile u64 *)slot = sequence;
}

// Tells the result of a decoding, when its arrays are done.
extern "C" __global__ void zfp_decoded(u64 jobs, u64 *slot, u64 sequence) {
    u64 status = DONE;
    for (u64 j = 0; j < jobs; j++) {
        if (slot[4 + 6 * j] != 0) status = REFUSED;
    }
    slot[1] = status;
    slot[2] = 0;
    slot[3] = 0;
    __threadfence_system();
    *(volatile u64 *)slot = sequence;
}

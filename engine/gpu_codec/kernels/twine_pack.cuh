// The encoder's part for one chunk, second half: residuals, how wide they are, and the words that
// they become.

// ---- Prediction --------------------------------------------------------------------------------

DEVICE u32 zigzag(u32 d) { return d << 1 ^ (u32)((i32)d >> 31); }
DEVICE u64 zigzag(u64 d) { return d << 1 ^ (u64)((i64)d >> 63); }

// 1 of what is not 0.
DEVICE u32 one_of(u32 d) { return min(d, 1u); }
DEVICE u32 one_of(u64 d) { return d != 0; }

// The difference to the row above, and in profile 3 that of these to the plane before.
template <int PROFILE, typename U>
DEVICE U across_rows(U a, u32 lane) {
    U above = __shfl_up_sync(ALL, a, 1);
    U d = (PROFILE == 2 ? lane : lane & 7) ? a - above : a;
    if (PROFILE == 3) {
        U before = __shfl_up_sync(ALL, d, 8);
        d = lane >= 8 ? d - before : d;
    }
    return d;
}

// Goes through the differences of a lane's coefficients: L and L twice.
template <int PROFILE, typename U>
struct Walker {
    U q1, d1;
    u32 lane;

    DEVICE_MEMBER void begin(const U (&q)[32], u32 at) {
        lane = at;
        q1 = d1 = 0;
        if (PROFILE == 1) {
            U last = __shfl_up_sync(ALL, q[31], 1), other = __shfl_up_sync(ALL, q[30], 1);
            q1 = lane ? last : 0;
            d1 = lane ? last - other : 0;
        }
    }

    // The next coefficient's L.
    DEVICE_MEMBER U once(U q) {
        U d = q - q1;
        q1 = q;
        return PROFILE != 1 ? across_rows<PROFILE, U>(d, lane) : d;
    }

    // L of that, once for each.
    DEVICE_MEMBER U twice(U d) {
        U dd = d - d1;
        d1 = d;
        return PROFILE != 1 ? across_rows<PROFILE, U>(dd, lane) : dd;
    }
};

// Width, and words of a block.
struct Cost {
    u32 width, words;
};

// Of a block of residuals of which `count` are not 0.
DEVICE Cost cost_of(u32 width, u32 count) {
    Cost c = {width, min(width, 1 + (count * width + 31) / 32)};
    return c;
}

// The widths of a lane's block in kinds 0, 1, 2. The coefficients are shifted up by `cut`, so that
// they wrap as those of fewer bits do.
template <int PROFILE, bool FULL, typename U>
DEVICE void widths_of(const U (&q)[32], u32 inside, u32 lane, u32 cut, u32 (&widths)[3]) {
    Walker<PROFILE, U> walker;
    walker.begin(q, lane);
    U all0 = 0, all1 = 0, all2 = 0;
    UNROLL for (int i = 0; i < 32; i++) {
        U once = walker.once(q[i]), twice = walker.twice(once);
        if (!FULL) {
            once = i < inside ? once : 0;
            twice = i < inside ? twice : 0;
        }
        all0 |= zigzag(q[i]);
        all1 |= zigzag(once);
        all2 |= zigzag(twice);
    }
    widths[0] = width_of((U)(all0 >> cut));
    widths[1] = width_of((U)(all1 >> cut));
    widths[2] = width_of((U)(all2 >> cut));
}

// Replaces coefficients by their residuals in zig-zag form: L as often as TIMES says. Returns how
// many are not 0.
template <int PROFILE, int TIMES, typename U>
DEVICE u32 residuals(U (&q)[32], u32 inside, u32 lane, u32 cut) {
    Walker<PROFILE, U> walker;
    walker.begin(q, lane);
    UNROLL for (int i = 0; i < 32; i++) {
        U d = TIMES == 0 ? q[i] : TIMES == 1 ? walker.once(q[i]) : walker.twice(walker.once(q[i]));
        q[i] = zigzag(d) >> cut;
    }
    if (inside < 32) {
        UNROLL for (int i = 0; i < 32; i++) q[i] = i < inside ? q[i] : 0;
    }
    u32 count = 0;
    UNROLL for (int i = 0; i < 32; i++) count += one_of(q[i]);
    return count;
}

template <int PROFILE, typename U>
DEVICE u32 residuals_of(U (&q)[32], u32 inside, u32 lane, u32 cut, u32 kind) {
    if (kind == 1) return residuals<PROFILE, 1, U>(q, inside, lane, cut);
    if (kind == 2) return residuals<PROFILE, 2, U>(q, inside, lane, cut);
    return residuals<PROFILE, 0, U>(q, inside, lane, cut);
}

template <int PROFILE, typename U>
DEVICE void widths_in(const U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut,
                      u32 (&widths)[3]) {
    if (w.m == 1024) return widths_of<PROFILE, true, U>(q, inside, lane, cut, widths);
    widths_of<PROFILE, false, U>(q, inside, lane, cut, widths);
}

template <typename U>
DEVICE void widths_any(const U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut,
                       u32 (&widths)[3]) {
    if (profile_of(w) == 1) return widths_in<1, U>(q, w, inside, lane, cut, widths);
    if (profile_of(w) == 2) return widths_in<2, U>(q, w, inside, lane, cut, widths);
    widths_in<3, U>(q, w, inside, lane, cut, widths);
}

template <typename U>
DEVICE u32 residuals_any(U (&q)[32], const Window &w, u32 inside, u32 lane, u32 cut, u32 kind) {
    if (profile_of(w) == 1) return residuals_of<1, U>(q, inside, lane, cut, kind);
    if (profile_of(w) == 2) return residuals_of<2, U>(q, inside, lane, cut, kind);
    return residuals_of<3, U>(q, inside, lane, cut, kind);
}

// The cost of FOR, and its minimum, from the values in shared memory.
template <typename U>
DEVICE Cost frame_of(const U *mine, u32 inside, u32 width, u32 kind, U &least) {
    U most = 0;
    least = ~(U)0;
    UNROLL for (int i = 0; i < 32; i++) {
        U u = framed(mine[i], width, kind);
        least = i < inside && u < least ? u : least;
        most = i < inside && u > most ? u : most;
    }
    Cost c = {0, 0};
    if (inside == 0 || most == 0) {
        least = 0;
        return c;
    }
    c.width = width_of((U)(most - least));
    c.words = c.width + sizeof(U) / 4;
    return c;
}

// ---- Packing -----------------------------------------------------------------------------------

DEVICE void write_planes(u32 *to, u32 (&z)[32], u32 width) {
    transpose(z);
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (i < width) to[i] = z[i];
    }
}

DEVICE void write_dense(u32 *to, u32 (&z)[32], u32 width) { write_planes(to, z, width); }

DEVICE void write_dense(u32 *to, u64 (&z)[32], u32 width) {
    u32 half[32];
    UNROLL for (int i = 0; i < 32; i++) half[i] = (u32)z[i];
    write_planes(to, half, min(width, 32u));
    if (width > 32) {
        UNROLL for (int i = 0; i < 32; i++) half[i] = (u32)(z[i] >> 32);
        write_planes(to + 32, half, width - 32);
    }
}

// A stream of bits, written word by word.
struct Packer {
    u32 *to;
    u64 held;
    u32 bits;

    DEVICE_MEMBER void put32(u32 value, u32 width) {
        held |= (u64)value << bits;
        bits += width;
        if (bits >= 32) {
            *to++ = (u32)held;
            held >>= 32;
            bits -= 32;
        }
    }

    DEVICE_MEMBER void put(u32 value, u32 width) { put32(value, width); }

    DEVICE_MEMBER void put(u64 value, u32 width) {
        put32((u32)value, min(width, 32u));
        if (width > 32) put32((u32)(value >> 32), width - 32);
    }

    DEVICE_MEMBER void end() {
        if (bits) *to = (u32)held;
    }
};

template <typename U>
DEVICE void write_sparse(u32 *to, const U (&z)[32], u32 width) {
    u32 mask = 0;
    UNROLL for (int i = 0; i < 32; i++) mask |= (z[i] != 0 ? 1u : 0u) << i;
    to[0] = mask;
    Packer packer = {to + 1, 0, 0};
    UNROLL for (int i = 0; i < 32; i++) {
        if (z[i] != 0) packer.put(z[i], width);
    }
    packer.end();
}

// The residuals of a sparse block after its mask, 32 bits of parts at a time: a word takes as many
// as are not 0.
template <int N>
DEVICE void write_sparse_parts(u32 *to, const u32 (&parts)[N], u32 mask, u32 width) {
    const int group = 32 / N;
    const u32 part = ALL >> (32 - N);
    Packer packer = {to, 0, 0};
    UNROLL for (int begin = 0; begin < 32; begin += group) {
        u32 word = 0;
        UNROLL for (int i = begin + group; i-- > begin;) {
            u32 z = parts[i & (N - 1)] >> N * (i / N) & part;
            if (z) word = group == 1 ? z : (word << width) + z;
        }
        packer.put32(word, width * __popc(mask >> begin & ((1u << group) - 1)));
    }
    packer.end();
}

// Positions and bits of the outliers, after the blocks.
template <typename U>
DEVICE void write_outliers(u32 *to, u32 count, u32 before, u32 bad, u32 lane, const Job &job,
                           const Window &w) {
    u16 *positions = (u16 *)to;
    u32 *values = to + (count + 1) / 2;
    if (lane == 0 && (count & 1)) positions[count] = 0;
    for (u32 at = before; bad; at++, bad &= bad - 1) {
        u32 position = 32 * lane + __ffs((int)bad) - 1;
        positions[at] = (u16)position;
        u64 bits = read_value(job, index_of(w, position));
        if (sizeof(U) == 8) {
            values[2 * at] = (u32)bits;
            values[2 * at + 1] = (u32)(bits >> 32);
        } else {
            values[at] = (u32)bits;
        }
    }
}

// Replaces coefficients by what the blocks of a kind are made of; gives the cost of the lane's,
// which is known before only in kind 5.
template <typename U>
DEVICE Cost numbers_of(U (&q)[32], const U *mine, const Window &w, const Job &job, u32 lane,
                       u32 inside, u32 kind, Cost cost, U least) {
    const u32 bits = bits_of(job.cut), cut = is_exact(job) ? 8 * sizeof(U) - bits : 0;
    if (kind == 5) {
        // Read again, or each value would keep a register from the first time on.
        __syncwarp();
        UNROLL for (int i = 0; i < 32; i++) {
            q[i] = i < inside ? framed(mine[i], bits, kind_of(job.cut)) - least : 0;
        }
        return cost;
    }
    UNROLL for (int i = 0; i < 32; i++) q[i] <<= cut;
    return cost_of(cost.width, residuals_any(q, w, inside, lane, cut, kind));
}

// The first words of a coded chunk: kind, outliers, and the descriptors of the blocks.
DEVICE void write_head(u32 *stage, u32 kind, u32 outliers, u32 descriptor, u32 lane) {
    u32 descriptors = descriptor << 8 * (lane & 3);
    descriptors |= __shfl_xor_sync(ALL, descriptors, 1);
    descriptors |= __shfl_xor_sync(ALL, descriptors, 2);
    // All lanes have read their values.
    __syncwarp();
    if (lane == 0) stage[0] = kind | outliers << 16;
    if ((lane & 3) == 0) stage[1 + (lane >> 2)] = descriptors;
}

// The whole of a coded chunk, in shared memory: `q` are its numbers, `bad` its outliers.
template <typename U>
DEVICE void pack(u32 *stage, U (&q)[32], const Window &w, const Job &job, u32 lane, u32 kind,
                 Cost cost, u32 block_words, u32 bad, U least) {
    const bool frame = kind == 5, sparse = !frame && cost.words < cost.width;
    const bool some = frame && cost.words;
    const u32 outliers = __popc(bad), all = sum_of_warp(outliers);
    const u32 at = 9 + exclusive_sum(cost.words, lane), before = exclusive_sum(outliers, lane);
    write_head(stage, kind, all, cost.width | (sparse || some ? 0x80u : 0), lane);
    if (some) {
        stage[at] = (u32)least;
        if (sizeof(U) == 8) stage[at + 1] = (u32)((u64)least >> 32);
    }
    if (sparse) {
        write_sparse(stage + at, q, cost.width);
    } else {
        write_dense(stage + at + (some ? sizeof(U) / 4 : 0), q, cost.width);
    }
    if (all) write_outliers<U>(stage + 9 + block_words, all, before, bad, lane, job, w);
}


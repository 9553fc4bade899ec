// Chunks of float32 in mode 0, in a launch for them. Residuals of both kinds stay in registers while
// the narrowest is chosen; they get their zig-zag form after they have been cut into planes of bits,
// where that is one operation for a plane. A launch for all forms gives the same bytes.

#if EXACT
// As wide as the zig-zag form of a residual.
DEVICE u32 folded(u32 d) { return d ^ d << 1; }

DEVICE u32 framed_f32(u32 b) { return b << 1 | b >> 31; }
DEVICE u32 ordered_f32(u32 b) { return b ^ ((u32)((i32)b >> 31) & 0x7fffffffu); }

// Goes through a lane's coefficients, from the first to the last.
template <int PROFILE>
struct ExactWalker {
    // Of the coefficient before: itself and L.
    u32 q1, d1;
    // -1 where there is a row above, or a plane before.
    u32 row, plane;

    DEVICE_MEMBER void begin(u32 last, u32 other, u32 lane) {
        q1 = d1 = 0;
        if (PROFILE == 1) {
            last = __shfl_up_sync(ALL, last, 1);
            other = __shfl_up_sync(ALL, other, 1);
            q1 = lane ? last : 0;
            d1 = lane ? last - other : 0;
        }
        row = (PROFILE == 3 ? lane & 7 : lane) ? ALL : 0;
        plane = lane >= 8 ? ALL : 0;
    }

    DEVICE_MEMBER u32 across(u32 d) const {
        if (PROFILE == 1) return d;
        d += __shfl_up_sync(ALL, d, 1) * row;
        return PROFILE == 3 ? __shfl_up_sync(ALL, d, 8) * plane + d : d;
    }

    DEVICE_MEMBER void next(u32 q, u32 &once, u32 &twice) {
        once = across(q - q1);
        twice = across(once - d1);
        q1 = q;
        d1 = once;
    }
};

// Words of a lane's block in each kind, its widths, and what FOR takes off.
struct ExactWidths {
    u32 widths[3], frame, least;
    bool is_one;  // all values are the same
};

// Replaces values by their residuals once, and gives those of L twice. Both are 0 outside of a chunk
// that is not full.
template <int PROFILE, bool FULL>
DEVICE ExactWidths exact_residuals(u32 (&x)[32], u32 (&twice)[32], u32 inside, u32 lane) {
    ExactWalker<PROFILE> walker;
    walker.begin(ordered_f32(x[31]), ordered_f32(x[30]), lane);
    u32 all0 = 0, all1 = 0, all2 = 0, least = ALL, most = 0;
    // By twos: some devices find the least of three at once.
    UNROLL for (u32 i = 0; i < 32; i += 2) {
        const bool first = FULL || i < inside, second = FULL || i + 1 < inside;
        const u32 u = framed_f32(x[i]), v = framed_f32(x[i + 1]);
        least = min(least, min(first ? u : ALL, second ? v : ALL));
        // Outside there are zeros.
        most = max(most, max(u, v));
        UNROLL for (u32 j = i; j < i + 2; j++) {
            const u32 q = ordered_f32(x[j]);
            all0 |= folded(q);
            walker.next(q, x[j], twice[j]);
            if (!FULL) {
                x[j] = j < inside ? x[j] : 0;
                twice[j] = j < inside ? twice[j] : 0;
            }
            all1 |= folded(x[j]);
            all2 |= folded(twice[j]);
        }
    }
    least = FULL || inside ? least : 0;
    ExactWidths found = {{width_of(all0), width_of(all1), width_of(all2)},
                         width_of(most - least), least, most == least};
    return found;
}

// Words of the block of FOR.
DEVICE u32 frame_words(const ExactWidths &found) {
    return found.is_one && found.least == 0 ? 0 : found.frame + 1;
}

// Numbers of at most 16 bits as planes of bits; the upper ones are left.
DEVICE void narrow_planes(u32 (&x)[32]) {
    u32 parts[16];
    UNROLL for (int k = 0; k < 16; k++) parts[k] = __byte_perm(x[k], x[k + 16], 0x5410);
    transpose(parts);
    UNROLL for (int k = 0; k < 16; k++) x[k] = parts[k];
}

// A chunk's kind and words; of the lane's block where it begins, its width, dense words, and the
// mask of the numbers that are not 0. Its numbers are planes of bits.
struct ExactChunk {
    u32 kind, words, before, width, dense, mask, least;
};

// Makes planes of the numbers of a kind.
DEVICE ExactChunk exact_planes(u32 (&x)[32], u32 kind, const ExactWidths &found, u32 width,
                               u32 lane) {
    const bool frame = kind == 5, narrow = __all_sync(ALL, width <= 16);
    u32 mask = 0, sign;
    if (narrow) {
        narrow_planes(x);
        sign = x[15];
    } else {
        transpose(x);
        sign = x[31];
    }
    UNROLL for (int k = 0; k < 16; k++) mask |= x[k];
    if (!narrow) {
        UNROLL for (int k = 16; k < 32; k++) mask |= x[k];
    }
    if (!frame) {
        UNROLL for (int k = 31; k > 0; k--) x[k] = x[k - 1] ^ sign;
        x[0] = sign;
    }
    const u32 words = frame ? frame_words(found) : cost_of(width, __popc(mask)).words;
    const u32 before = exclusive_sum(words, lane);
    ExactChunk own = {kind, 9 + __shfl_sync(ALL, before + words, 31), before, width,
                      !frame && words < width ? 0 : width, mask, found.least};
    return own;
}

// Writes a chunk to shared memory.
DEVICE void write_exact(u32 *to, u32 (&planes)[32], const ExactChunk &own, u32 lane) {
    const bool sparse = own.dense < own.width, some = own.kind == 5 && (own.mask | own.least) != 0;
    write_head(to, own.kind, 0, own.width | (sparse || some ? 0x80u : 0), lane);
    to += 9 + own.before;
    if (some) *to++ = own.least;
    UNROLL for (u32 i = 0; i < 32; i++) {
        if (i < own.dense) to[i] = planes[i];
    }
    if (sparse) {
        UNROLL for (u32 i = 0; i < 32; i++) planes[i] = i < own.width ? planes[i] : 0;
        transpose(planes);
        write_sparse(to, planes, own.width);
    }
}

// The numbers of kinds 0 and 5, from the values.
DEVICE void exact_numbers(u32 (&x)[32], const u32 *values, u32 kind, u32 least, u32 inside,
                          u32 lane) {
    // Read again, or each value would keep a register from the first time on.
    __syncwarp();
    read_fetched(values, x, lane);
    if (kind == 5) {
        UNROLL for (u32 i = 0; i < 32; i++) x[i] = i < inside ? framed_f32(x[i]) - least : 0;
    } else {
        UNROLL for (int i = 0; i < 32; i++) x[i] = ordered_f32(x[i]);
    }
}

// Encodes a chunk that was fetched, in shared memory; gives its words.
DEVICE u32 encode_exact(Shared &shared, u32 warp, u32 lane) {
    const int profile = FORM >> 16 & 0xff;
    const Window &w = shared.windows[warp];
    u32 *stage = shared.stage[warp];
    u32 x[32], twice[32], some = 0;
    read_fetched(stage, x, lane);
    UNROLL for (int i = 0; i < 32; i++) some |= x[i];
    if (!__any_sync(ALL, some != 0)) return 0;
    const u32 inside = inside_of_block(w, lane);
    const ExactWidths found = w.m == 1024 ? exact_residuals<profile, true>(x, twice, 32, lane)
                                          : exact_residuals<profile, false>(x, twice, inside, lane);
    const u32 first = stage[0];
    const bool is_first = found.is_one && found.least == framed_f32(first);
    if (__all_sync(ALL, is_first || inside == 0)) return stage_constant(stage, first, 32, lane);
    // Up to 1024 and 1056.
    const u32 framed = frame_words(found);
    const u32 sums = sum_of_warp(found.widths[0] | found.widths[1] << 16);
    const u32 others = sum_of_warp(found.widths[2] | framed << 16);
    u32 kind = 0, words = sums & 0xffff, width = found.widths[0];
    if (sums >> 16 < words) kind = 1, words = sums >> 16, width = found.widths[1];
    if ((others & 0xffff) < words) kind = 2, words = others & 0xffff, width = found.widths[2];
    if (others >> 16 < words) kind = 5, width = found.frame;
    if (kind == 2) {
        UNROLL for (int i = 0; i < 32; i++) x[i] = twice[i];
    } else if (kind != 1) {
        exact_numbers(x, stage, kind, found.least, inside, lane);
    }
    const ExactChunk own = exact_planes(x, kind, found, width, lane);
    if (own.words >= raw_words(w.m, 32)) return stage_raw(stage, w, lane);
    write_exact(stage, x, own, lane);
    __syncwarp();
    return own.words;
}
#endif

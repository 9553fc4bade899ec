//! The compiled kernels: variants of one text. The general ones take all values of up to 32 or of
//! 64 bits; where all arrays of a launch have one form, a variant for that form alone is smaller
//! and faster. All of them write and read the same bytes.

use std::borrow::Cow;

use unspool_cuda::kernels::KernelText;

use super::plan::{ANY_KIND, FLOAT32, FLOAT64, form};

/// Concatenates the encoder's text, in the order in which its parts need each other.
macro_rules! encoder {
    () => {
        concat!(
            include_str!("../../kernels/twine_values.cuh"),
            include_str!("../../kernels/twine_measure.cuh"),
            include_str!("../../kernels/twine_pack.cuh"),
            include_str!("../../kernels/twine_fetched.cuh"),
            include_str!("../../kernels/twine_chunk.cuh"),
            include_str!("../../kernels/twine_places.cuh"),
            include_str!("../../kernels/twine_encode.cu"),
        )
    };
}

pub(super) const COMMON: &str = include_str!("../../kernels/twine.cuh");
const ENCODE: &str = encoder!();
const DECODE: &str = include_str!("../../kernels/twine_decode.cu");

/// The purpose of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kernel {
    Encode,
    Decode,
}

impl Kernel {
    pub(super) fn name(self) -> &'static str {
        self.names()[0]
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Kernel::Encode => &["twine_encode"],
            Kernel::Decode => &["twine_decode"],
        }
    }

    /// The text after [`COMMON`].
    pub(super) fn text(self) -> &'static str {
        match self {
            Kernel::Encode => ENCODE,
            Kernel::Decode => DECODE,
        }
    }
}

/// What an encoder does with all arrays of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Mode 0 of the format.
    Exact,
    /// Mode 1, with steps that are known.
    Quantise,
    /// Mode 1, with steps that depend on the values: they are looked at on the way, which costs
    /// registers.
    Measure,
}

impl Task {
    const ALL: [Task; 3] = [Task::Exact, Task::Quantise, Task::Measure];

    /// What the text of a variant for it begins with.
    pub(super) fn defines(self) -> String {
        let (mode, measures) = match self {
            Task::Exact => (0, 0),
            Task::Quantise => (1, 0),
            Task::Measure => (1, 1),
        };
        format!("#define MODE {mode}\n#define MEASURES {measures}\n")
    }
}

/// The common properties of all arrays of a launch: the form as in `Cut`, and for an encoder what
/// it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Special {
    pub(super) form: u32,
    pub(super) task: Option<Task>,
}

/// How tiles are assigned to the blocks of an encoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tiles {
    /// Each block takes tiles until none is left; their words wait for their places meanwhile.
    Many,
    /// Each block has the tile of its own number, because devices start blocks in that order: for
    /// launches that are small, or whose regions are small.
    Own,
}

/// A variant of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    pub(super) kernel: Kernel,
    /// Whether there are values of 64 bits.
    pub(super) wide: bool,
    /// Warps of a block.
    pub(super) warps: u32,
    /// How tiles are assigned to the blocks of an encoder.
    pub(super) tiles: Tiles,
    pub(super) special: Option<Special>,
}

/// Warps of an encoder on a multiprocessor: as many as have room for the words that they keep.
pub(super) const BUSY_WARPS: u32 = 16;

/// The same where a kernel is for values of 64 bits alone, which take two registers each: fewer
/// warps that keep all of them are faster, by a fifth without loss (measured on an H100).
const BUSY_WIDE_WARPS: u32 = 12;

/// Warps of a tile of the decoder.
pub(super) const DECODE_WARPS: u32 = 4;

impl Variant {
    /// Number of blocks of a launch of the encoder, `most` of which run concurrently, and the
    /// increment of the ticket counter.
    pub(super) fn blocks(&self, tiles: u32, most: u32) -> (u32, u32) {
        // One block adds up sizes, and at least one has tiles.
        let most = most.max(2);
        match (self.special, self.tiles) {
            (_, Tiles::Own) => (tiles, 0),
            // The general kernel derives the assignment from the number of blocks in the same way.
            (None, Tiles::Many) if tiles <= most => (tiles, 0),
            _ => {
                // Each block takes a last ticket that says that no tile is left; the block that
                // adds up sizes has the first.
                let blocks = most.min(tiles.saturating_add(1));
                (blocks, tiles.wrapping_add(blocks))
            }
        }
    }

    /// The variant that is compiled for it: the general encoder supports both assignments of tiles.
    pub(super) fn compiled(self) -> Variant {
        let tiles = if self.special.is_some() { self.tiles } else { Tiles::Many };
        Variant { tiles, ..self }
    }

    /// Concurrent blocks of the encoder on a device that runs `room` warps of narrow ones.
    pub(super) fn blocks_at_once(&self, room: u32) -> u32 {
        (room.saturating_mul(self.busy_warps()) / BUSY_WARPS / self.warps).max(1)
    }

    fn busy_warps(&self) -> u32 {
        if self.wide && self.special.is_some() { BUSY_WIDE_WARPS } else { BUSY_WARPS }
    }

    /// Words of its chunks that a warp of an encoder keeps until their places are known: few enough
    /// for the shared memory that every block can have.
    fn kept_words(&self) -> u32 {
        const BLOCK: u32 = (48 << 10) / 4;
        const OTHERS: u32 = 400;
        let values = 32 * if self.wide { 2 * 33 } else { 36 } + 16;
        ((BLOCK - OTHERS) / self.warps - values).min(1700)
    }

    pub(super) fn text(&self) -> String {
        let mut text =
            format!("#define WIDE {}\n#define WARPS {}\n", u32::from(self.wide), self.warps);
        if let Some(Special { form, task }) = self.special {
            text += &format!("#define FORM {form:#x}u\n");
            text += &task.map(Task::defines).unwrap_or_default();
            if self.kernel == Kernel::Encode {
                let blocks = (self.busy_warps() / self.warps).max(1);
                let once = self.tiles as u32;
                text += &format!("#define ONCE {once}\n#define LEAST_BLOCKS {blocks}\n");
            }
        }
        if self.kernel == Kernel::Encode && self.tiles == Tiles::Many {
            text += &format!("#define KEPT {}\n", self.kept_words());
        }
        text + COMMON + self.kernel.text()
    }
}

impl Variant {
    /// The encoder for all forms.
    pub(super) fn encoder(wide: bool) -> Variant {
        let warps = if wide { 2 } else { 4 };
        Variant { kernel: Kernel::Encode, wide, warps, tiles: Tiles::Many, special: None }
    }

    /// The decoder for all forms.
    pub(super) fn decoder(wide: bool) -> Variant {
        let (kernel, warps) = (Kernel::Decode, DECODE_WARPS);
        Variant { kernel, wide, warps, tiles: Tiles::Many, special: None }
    }

    /// The variants that take every array.
    fn general() -> impl Iterator<Item = Variant> {
        let both = [true, false].map(|wide| [Variant::encoder(wide), Variant::decoder(wide)]);
        both.into_iter().flatten()
    }

    /// The variants for arrays of one form, in one to three dimensions: those that most
    /// applications have, float32 and float64, for each task, with tiles for several sizes; others
    /// of as many bits together, for large arrays. Of those only floats of 16 bits have bounds.
    fn special() -> Vec<Variant> {
        use Task::Exact;
        use Tiles::{Many, Own};
        let sizes = [(4, Many), (4, Own), (2, Own), (8, Own)];
        let forms = [
            (32, FLOAT32, &sizes[..], &Task::ALL[..]),
            (64, FLOAT64, &sizes[..2], &Task::ALL),
            (8, ANY_KIND, &sizes[..1], &[Exact]),
            (16, ANY_KIND, &sizes[..1], &Task::ALL),
            (32, ANY_KIND, &sizes[..1], &[Exact]),
        ];
        let mut all = Vec::new();
        for (bits, kind, sizes, tasks) in forms {
            // Values of 8 bits are in one dimension.
            for profile in if bits == 8 { 1..=1 } else { 1..=3 } {
                let form = form(bits, kind, profile, 1);
                let decoder = Variant::decoder(bits == 64);
                all.push(Variant { special: Some(Special { form, task: None }), ..decoder });
                let encoders =
                    sizes.iter().flat_map(|size| tasks.iter().map(|task| (*size, *task)));
                all.extend(encoders.map(|((warps, tiles), task)| {
                    let special = Some(Special { form, task: Some(task) });
                    Variant { warps, tiles, special, ..Variant::encoder(bits == 64) }
                }));
            }
        }
        all
    }

    /// The name in messages.
    pub(super) fn title(&self) -> String {
        let Variant { kernel, wide, warps, tiles, special } = *self;
        let width = if wide { "wide" } else { "narrow" };
        let of = special.map_or_else(String::new, |Special { form, task }| {
            let task = task.map_or_else(String::new, |task| format!(" to {task:?}"));
            format!(" for the form {form:#x}{task}, {tiles:?} tiles")
        });
        format!("{}, {width}, {warps} warps{of}", kernel.name())
    }
}

/// The texts of all variants.
pub(crate) fn sources() -> Vec<KernelText> {
    let all = Variant::general().chain(Variant::special());
    let source = |variant: Variant| KernelText {
        name: variant.title(),
        kernels: variant.kernel.names(),
        text: Cow::Owned(variant.text()),
    };
    all.map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variants_are_all_different_and_hold_those_of_every_task() {
        let special = Variant::special();
        assert_eq!(special.len(), 3 * ((1 + 4 * 3) + (1 + 2 * 3) + (1 + 1) + (1 + 3)) + 2);
        let all: Vec<Variant> = Variant::general().chain(special).collect();
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
            let task = one.special.map(|special| special.task.is_some());
            assert!(task.is_none_or(|is_there| is_there == (one.kernel == Kernel::Encode)));
        }
    }

    #[test]
    fn what_warps_keep_fits_the_shared_memory_of_every_block() {
        for (wide, warps, kept) in
            [(false, 4, 1700), (false, 8, 318), (true, 2, 1700), (true, 4, 844)]
        {
            assert_eq!(Variant { warps, ..Variant::encoder(wide) }.kept_words(), kept);
        }
        let texts = sources();
        for kept in [1700, 844] {
            let line = format!("#define KEPT {kept}\n");
            assert!(texts.iter().any(|source| source.text.contains(&line)), "{kept}");
        }
    }

    #[test]
    fn each_block_has_one_tile_exactly_where_the_kernel_takes_it_so_else_all_get_a_last_ticket() {
        let special = Some(Special { form: form(32, FLOAT32, 1, 1), task: Some(Task::Quantise) });
        for (tiles, most) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (64, 64), (65, 64)] {
            let general = Variant::encoder(false).blocks(tiles, most);
            let many = Variant { special, ..Variant::encoder(false) }.blocks(tiles, most);
            let own = Variant { special, tiles: Tiles::Own, ..Variant::encoder(false) };
            assert_eq!(own.blocks(tiles, most), (tiles, 0));
            let all = Variant { special: None, ..own };
            assert_eq!(all.blocks(tiles, most), (tiles, 0));
            assert_eq!(all.compiled(), Variant::encoder(false));
            // The condition of `has_one_tile` in the kernel's text.
            assert_eq!(tiles <= general.0, general.1 == 0);
            assert!(general.1 == 0 || general == many);
            assert!(many.0 >= 2 && many.1 == tiles + many.0);
        }
        let large = Variant::encoder(false).blocks(u32::MAX, u32::MAX - 1);
        assert_eq!(large, (u32::MAX - 1, u32::MAX - 2));
    }
}

//! The kernels as they are compiled: one text in variants, each compiled when it is first needed.
//! The general ones take all values of up to 32 or of 64 bits; where all arrays of a launch have
//! one form, a variant for that form alone is smaller and faster. All of them write and read the
//! same bytes, so that a general one does until the best one is compiled.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_cuda::Context;
use unspool_cuda::DeviceError;
use unspool_cuda::kernels::{Background, Compiler, Module, Shelf, waited_for_some};

use super::plan::{FLOAT32, FLOAT64, form};

/// The encoder's text, in the order in which its parts need each other.
macro_rules! encoder {
    () => {
        concat!(
            include_str!("../../kernels/twine_values.cuh"),
            include_str!("../../kernels/twine_pack.cuh"),
            include_str!("../../kernels/twine_quick.cuh"),
            include_str!("../../kernels/twine_chunk.cuh"),
            include_str!("../../kernels/twine_places.cuh"),
            include_str!("../../kernels/twine_encode.cu"),
        )
    };
}

pub(super) const COMMON: &str = include_str!("../../kernels/twine.cuh");
const ENCODE: &str = encoder!();
const REDUCE: &str = include_str!("../../kernels/twine_reduce.cu");
const DECODE: &str = include_str!("../../kernels/twine_decode.cu");

macro_rules! text {
    ($head:literal, $file:literal) => {
        concat!(
            $head,
            include_str!("../../kernels/twine.cuh"),
            include_str!(concat!("../../kernels/", $file))
        )
    };
}

macro_rules! encode {
    ($head:literal) => {
        concat!($head, include_str!("../../kernels/twine.cuh"), encoder!())
    };
}

/// Every general text by name, and some of those for one form, for tests that compile them all.
pub(crate) const SOURCES: &[(&str, &str)] = &[
    ("twine_encode.cu, narrow", encode!("#define WIDE 0\n#define WARPS 4\n#define KEPT 1700\n")),
    ("twine_encode.cu, wide", encode!("#define WIDE 1\n#define WARPS 2\n#define KEPT 1700\n")),
    (
        "twine_encode.cu, float32 in two dimensions by steps",
        encode!(
            "#define WIDE 0\n#define WARPS 4\n#define ONCE 0\n#define KEPT 1700\n\
             #define FORM 0x01020220u\n#define MODE 1\n"
        ),
    ),
    (
        "twine_encode.cu, float64 in one dimension by steps",
        encode!(
            "#define WIDE 1\n#define WARPS 4\n#define ONCE 0\n#define KEPT 844\n\
             #define FORM 0x01010340u\n#define MODE 1\n"
        ),
    ),
    (
        "twine_encode.cu, float32 in one dimension by steps",
        encode!(
            "#define WIDE 0\n#define WARPS 8\n#define ONCE 0\n#define KEPT 318\n\
             #define FORM 0x01010220u\n#define MODE 1\n"
        ),
    ),
    (
        "twine_encode.cu, a small array of float32 by steps",
        encode!(
            "#define WIDE 0\n#define WARPS 8\n#define ONCE 1\n#define FORM 0x01010220u\n\
             #define MODE 1\n"
        ),
    ),
    ("twine_reduce.cu", text!("#define WIDE 0\n#define WARPS 8\n", "twine_reduce.cu")),
    ("twine_decode.cu, narrow", text!("#define WIDE 0\n#define WARPS 4\n", "twine_decode.cu")),
    ("twine_decode.cu, wide", text!("#define WIDE 1\n#define WARPS 4\n", "twine_decode.cu")),
];

/// What a kernel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kernel {
    Encode,
    Reduce,
    Decode,
}

impl Kernel {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kernel::Encode => "twine_encode",
            Kernel::Reduce => "twine_reduce",
            Kernel::Decode => "twine_decode",
        }
    }

    /// Its text behind [`COMMON`].
    pub(super) fn text(self) -> &'static str {
        match self {
            Kernel::Encode => ENCODE,
            Kernel::Reduce => REDUCE,
            Kernel::Decode => DECODE,
        }
    }
}

/// What all arrays of a launch have in common: the form as `Cut` has it, and the mode of the format
/// for an encoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Special {
    pub(super) form: u32,
    pub(super) mode: Option<u32>,
}

/// The tiles of an encoder's block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tiles {
    /// One after the other, as long as there are any; their words wait for their places meanwhile.
    Many,
    /// The one of its own number, for devices start blocks in that order: where there are few, or
    /// regions are small.
    Own,
}

/// One way to compile a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Variant {
    pub(super) kernel: Kernel,
    /// Whether there are values of 64 bits.
    pub(super) wide: bool,
    /// Warps of a block.
    pub(super) warps: u32,
    /// What tiles a block of an encoder has.
    pub(super) tiles: Tiles,
    pub(super) special: Option<Special>,
}

/// Warps of an encoder that a multiprocessor holds: so many have room for what they keep.
pub(super) const BUSY_WARPS: u32 = 16;

/// Warps of a tile of the decoder, and threads of a block of the launch that computes bounds.
pub(super) const DECODE_WARPS: u32 = 4;
pub(super) const REDUCE_THREADS: u32 = 256;

impl Variant {
    /// Blocks of a launch of the encoder, of which `most` find room, and by how much the counter of
    /// tickets goes on.
    pub(super) fn blocks(&self, tiles: u32, most: u32) -> (u32, u32) {
        // The block that adds up sizes, and one that has tiles.
        let most = most.max(2);
        match (self.special, self.tiles) {
            (_, Tiles::Own) => (tiles, 0),
            // What the general kernel takes it for.
            (None, Tiles::Many) if tiles <= most => (tiles, 0),
            _ => {
                // A ticket tells each block that no tile is left. The one that adds up sizes has
                // the first.
                let blocks = most.min(tiles.saturating_add(1));
                (blocks, tiles.wrapping_add(blocks))
            }
        }
    }

    /// The one that is compiled for it: the general encoder takes the tiles of a block as they are.
    pub(super) fn compiled(self) -> Variant {
        let tiles = if self.special.is_some() { self.tiles } else { Tiles::Many };
        Variant { tiles, ..self }
    }

    /// Words of its chunks that a warp of an encoder keeps until their places are known: few enough
    /// for the shared memory that every block can have.
    fn kept_words(&self) -> u32 {
        const BLOCK: u32 = (48 << 10) / 4;
        const OTHERS: u32 = 400;
        let values = 32 * if self.wide { 2 * 33 } else { 36 } + 16;
        ((BLOCK - OTHERS) / self.warps - values).min(1700)
    }

    fn text(&self) -> String {
        let mut text =
            format!("#define WIDE {}\n#define WARPS {}\n", u32::from(self.wide), self.warps);
        if let Some(Special { form, mode }) = self.special {
            text += &format!("#define FORM {form:#x}u\n");
            text += &mode.map(|mode| format!("#define MODE {mode}\n")).unwrap_or_default();
            if self.kernel == Kernel::Encode {
                let blocks = (BUSY_WARPS / self.warps).max(1);
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
    /// The encoder for whatever has no kernel of its own yet.
    pub(super) fn encoder(wide: bool) -> Variant {
        let warps = if wide { 2 } else { 4 };
        Variant { kernel: Kernel::Encode, wide, warps, tiles: Tiles::Many, special: None }
    }

    /// The kernel for bounds that depend on the values.
    pub(super) fn reducer() -> Variant {
        let (kernel, warps) = (Kernel::Reduce, REDUCE_THREADS / 32);
        Variant { kernel, wide: false, warps, tiles: Tiles::Many, special: None }
    }

    /// The decoder for all forms.
    pub(super) fn decoder(wide: bool) -> Variant {
        let (kernel, warps) = (Kernel::Decode, DECODE_WARPS);
        Variant { kernel, wide, warps, tiles: Tiles::Many, special: None }
    }

    /// Those for arrays of one form, as most applications have them: float32 and float64, in one to
    /// three dimensions, encoded in these modes.
    pub(super) fn usual(modes: &[u32]) -> Vec<Variant> {
        use Tiles::{Many, Own};
        let narrow = [(2, Own), (4, Own), (8, Own), (4, Many), (8, Many)];
        let wide = [(2, Own), (4, Own), (4, Many)];
        let forms = [(32, FLOAT32, &narrow[..]), (64, FLOAT64, &wide[..])];
        let mut all = Vec::new();
        for (bits, kind, sizes) in forms {
            for profile in 1..=3 {
                let form = form(bits, kind, profile, 1);
                let decoder = Variant::decoder(bits == 64);
                all.push(Variant { special: Some(Special { form, mode: None }), ..decoder });
                let encoders =
                    sizes.iter().flat_map(|size| modes.iter().map(|mode| (*size, *mode)));
                all.extend(encoders.map(|((warps, tiles), mode)| {
                    let special = Some(Special { form, mode: Some(mode) });
                    Variant { warps, tiles, special, ..Variant::encoder(bits == 64) }
                }));
            }
        }
        all
    }
}

/// The kernels of one context, as far as they were needed or wanted ahead.
#[derive(Debug)]
pub(super) struct Modules {
    compiler: Compiler,
    shelf: Shelf<Variant>,
    background: Background,
}

impl Modules {
    pub(super) fn new(context: &Context, folders: Vec<PathBuf>) -> Arc<Modules> {
        let compiler = Compiler::new(context, folders);
        Arc::new(Modules { compiler, shelf: Shelf::default(), background: Background::default() })
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// The module of a variant, however long that takes.
    pub(super) fn get(&self, variant: Variant) -> Result<Arc<Module>, DeviceError> {
        self.shelf.get(&variant, || self.make(variant))
    }

    /// The module of a variant where it is there, or in the user's cache. Else it is compiled in
    /// the background.
    pub(super) fn at_once(self: &Arc<Self>, variant: Variant) -> Option<Arc<Module>> {
        if let Some(module) = self.shelf.find(&variant) {
            return Some(module);
        }
        if !self.shelf.claim(&variant) {
            return None;
        }
        let found = waited_for_some(|| self.compiler.load_cached(&variant.text()));
        if let Some(module) = found {
            return Some(self.shelf.put(&variant, module));
        }
        let this = Arc::clone(self);
        self.background.push_first(move || this.shelf.fill(&variant, || this.make(variant)));
        None
    }

    /// Makes a variant in the background.
    pub(super) fn ahead(self: &Arc<Self>, variant: Variant) {
        if self.shelf.claim(&variant) {
            let this = Arc::clone(self);
            self.background.push(move || this.shelf.fill(&variant, || this.make(variant)));
        }
    }

    /// Loads variants that were compiled by an earlier run, in the background.
    pub(super) fn known_ahead(self: &Arc<Self>, variants: Vec<Variant>) {
        let this = Arc::clone(self);
        self.background.push(move || {
            for variant in variants {
                this.load(variant);
            }
        });
    }

    fn load(&self, variant: Variant) {
        if self.shelf.find(&variant).is_none()
            && let Some(module) = self.compiler.load_cached(&variant.text())
            && self.shelf.find(&variant).is_none()
        {
            self.shelf.put(&variant, module);
        }
    }

    fn make(&self, variant: Variant) -> Result<Module, DeviceError> {
        self.compiler.make(variant.kernel.name(), &variant.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_variants_are_all_different_and_hold_those_of_both_ways() {
        let all = Variant::usual(&[0, 1]);
        assert_eq!(all.len(), 3 * (1 + 5 * 2) + 3 * (1 + 3 * 2));
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
            assert_eq!(one.special.unwrap().mode.is_none(), one.kernel == Kernel::Decode);
        }
    }

    #[test]
    fn what_warps_keep_is_what_the_texts_that_are_checked_for_shared_memory_say() {
        for (wide, warps, kept) in
            [(false, 4, 1700), (false, 8, 318), (true, 2, 1700), (true, 4, 844)]
        {
            assert_eq!(Variant { warps, ..Variant::encoder(wide) }.kept_words(), kept);
            let lines = format!("#define WIDE {}\n#define WARPS {warps}\n", u32::from(wide));
            let is_checked = |text: &str| {
                text.starts_with(&lines) && text.contains(&format!("#define KEPT {kept}\n"))
            };
            assert!(SOURCES.iter().any(|(_, text)| is_checked(text)), "{wide} {warps}");
        }
    }

    #[test]
    fn each_block_has_one_tile_exactly_where_the_kernel_takes_it_so_else_all_get_a_last_ticket() {
        let special = Some(Special { form: form(32, FLOAT32, 1, 1), mode: Some(1) });
        for (tiles, most) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (64, 64), (65, 64)] {
            let general = Variant::encoder(false).blocks(tiles, most);
            let many = Variant { special, ..Variant::encoder(false) }.blocks(tiles, most);
            let own = Variant { special, tiles: Tiles::Own, ..Variant::encoder(false) };
            assert_eq!(own.blocks(tiles, most), (tiles, 0));
            let all = Variant { special: None, ..own };
            assert_eq!(all.blocks(tiles, most), (tiles, 0));
            assert_eq!(all.compiled(), Variant::encoder(false));
            // `has_one_tile` there.
            assert_eq!(tiles <= general.0, general.1 == 0);
            assert!(general.1 == 0 || general == many);
            assert!(many.0 >= 2 && many.1 == tiles + many.0);
        }
        let large = Variant::encoder(false).blocks(u32::MAX, u32::MAX - 1);
        assert_eq!(large, (u32::MAX - 1, u32::MAX - 2));
    }
}

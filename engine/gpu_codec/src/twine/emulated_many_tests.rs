//! Launches of the encoder whose blocks have many tiles, emulated on the processor: rings that
//! wrap, chunks and arrays of all kinds, tickets that wrap, and checkpoints that do not fit.

use unspool_codec::{Bound, Dtype};

use super::emulated_tests::{
    GUARD, Kernels, Make, Part, Room, Scratch, Source, check_batch, kernels, kernels_of, rounds,
    skipped,
};
use super::fields::{Dice, Region, array, label, raw, region};
use super::modules::Tiles;
use super::parts::Ways;
use super::plan::LaunchPlan;
use super::words::{Job, rule};
use super::{Places, words_at};
use crate::codec::StoredCheckpoint;
use crate::pending::Start;

/// An array of float32 with chunks of all kinds: empty ones, constant ones, ones that take few
/// words or many, and ones that are stored uncompressed. Or bytes, or an array without values.
fn mixed(dice: &mut Dice, shape: Vec<u64>, lossless: bool) -> Region {
    let method = if lossless { None } else { Some(Bound::Absolute(0.01)) };
    match dice.below(8) {
        0 => return raw(dice),
        1 if shape.len() == 1 => return array(dice, Dtype::Float32, vec![0], method),
        _ => {}
    }
    let mut region = array(dice, Dtype::Float32, shape, method);
    let mut left = 0;
    let (mut style, mut constant) = (0, 0);
    for (i, word) in region.source.iter_mut().enumerate() {
        if left == 0 {
            left = dice.pick(&[512, 512, 1024, 100]);
            style = dice.below(8);
            constant = dice.pick(&[0x8000_0000u32, 0x3f80_0000, 0x3f81_2345, 1, 0x7fc0_0000]);
        }
        left -= 1;
        let pair = [2 * i, 2 * i + 1].map(|i| match style {
            0 => 0,
            1 => constant,
            2 => dice.next() as u32,
            3 => ((dice.part() - 0.5) as f32 * 0.009).to_bits(),
            4 if dice.below(300) == 0 => dice.pick(&[0x7f80_0000, 0xffc0_1234, 0x7f7f_ffff]),
            4 | 5 => ((i as f64 * 0.01).sin() as f32).to_bits(),
            6 => (dice.part() as f32 * 3000.0).to_bits(),
            _ => ((i as f64 * 0.03).cos() as f32 * 20.0 + dice.part() as f32 * 0.1).to_bits(),
        });
        *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
    }
    region
}

/// A region of values of up to 32 bits.
fn narrow(dice: &mut Dice) -> Region {
    loop {
        let region = region(dice);
        if region.spec.is_none_or(|spec| spec.layout.bits <= 32) {
            return region;
        }
    }
}

#[test]
fn blocks_with_many_tiles_of_many_arrays_put_all_of_them_where_they_belong() {
    let one: Make = |dice| {
        let shape = vec![1 + dice.below(30_000)];
        mixed(dice, shape, false)
    };
    let three: Make = |dice| {
        let shape = vec![4 + dice.below(10), 8 + dice.below(20), 32 + dice.below(100)];
        mixed(dice, shape, false)
    };
    let two: Make = |dice| {
        let shape = vec![16 + dice.below(100), 32 + dice.below(300)];
        mixed(dice, shape, true)
    };
    let any: Make = |dice| {
        let n = 1 + dice.below(40_000);
        let shape = dice.pick(&[vec![n], vec![40, 600], vec![6, 40, 80]]);
        let dtype = dice.pick(&[Dtype::Float16, Dtype::Float32, Dtype::Int16, Dtype::UInt8]);
        match dice.below(3) {
            0 => narrow(dice),
            1 => mixed(dice, shape, false),
            _ => array(dice, dtype, shape, None),
        }
    };
    let all = [
        (4, 700, "#define NARROW\n", any),
        (4, 300, "", region as Make),
        (4, 600, "#define FORM 0x01020220u\n#define MODE 0\n#define ONCE 0\n", two),
        (4, 60, "#define FORM 0x01010220u\n#define MODE 1\n#define ONCE 0\n", one),
        (2, 200, "#define FORM 0x01030220u\n#define MODE 1\n#define ONCE 0\n", three),
    ];
    for (warps, kept, head, make) in all {
        let Some(kernels) = kernels_of(warps, kept, head) else { return skipped() };
        let mut scratch = Scratch { compiled: head.contains("ONCE"), ..Scratch::new() };
        for seed in 0..rounds() / 4 {
            // The ticket counter wraps within the launch.
            scratch.ticket = 0u32.wrapping_sub(seed as u32);
            scratch.words[0] = u64::from(scratch.ticket);
            scratch.blocks = 2 + seed as u32 % 5;
            scratch.workers = scratch.blocks.min(4);
            check_batch(&kernels, &mut scratch, seed, make);
        }
    }
}

#[test]
fn many_arrays_of_a_launch_begin_one_after_the_other() {
    let make: Make = |dice| {
        let shape = vec![1 + dice.below(3000)];
        mixed(dice, shape, false)
    };
    let head = "#define FORM 0x01010220u\n#define MODE 1\n";
    for tiles in [Tiles::Many, Tiles::Own] {
        let head = format!("{head}#define ONCE {}\n", tiles as u32);
        let Some(kernels) = kernels_of(2, 400, &head) else { return skipped() };
        let mut scratch =
            Scratch { compiled: true, tiles, regions: 20, blocks: 4, workers: 4, ..Scratch::new() };
        for seed in 0..rounds() / 4 {
            check_batch(&kernels, &mut scratch, seed, make);
        }
    }
}

#[test]
fn many_arrays_of_several_forms_are_encoded_by_a_launch_for_each() {
    let make: Make = |dice| {
        let shape = vec![1 + dice.below(3000)];
        if dice.below(3) == 0 { region(dice) } else { mixed(dice, shape, false) }
    };
    let Some(kernels) = kernels("") else { return skipped() };
    for tiles in [Tiles::Many, Tiles::Own] {
        let (apart, regions) = (0, 20);
        let mut scratch =
            Scratch { tiles, apart, regions, blocks: 4, workers: 4, ..Scratch::new() };
        for seed in 0..rounds() / 4 {
            check_batch(&kernels, &mut scratch, seed, make);
        }
        assert!(scratch.launches > 3 * (rounds() / 4), "{} launches", scratch.launches);
        for seed in 0..rounds() / 4 {
            check_overflow(&kernels, &mut scratch, seed, make);
        }
    }
}

/// A limit below `end`, often too small by a single chunk.
fn too_little(dice: &mut Dice, regions: &[Region], stored: &[Vec<u8>], end: usize) -> usize {
    let last = stored.len() - 1;
    let start: usize = stored[..last].iter().map(|stream| stream.len().next_multiple_of(64)).sum();
    let chunks = regions[last].spec.map_or(0, |spec| u64::from(spec.layout.n_chunks));
    if chunks == 0 || dice.below(4) == 0 {
        return dice.below(end as u64) as usize;
    }
    let at = 64 + 4 * (1 + dice.below(chunks)) as usize;
    let word = stored[last][at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    start + 64 + 4 * (chunks as usize + 1) + 4 * word as usize - dice.pick(&[1, 2, 4])
}

/// A checkpoint that finds less room than it needs, and one after it that has enough.
fn check_overflow(kernels: &Kernels, scratch: &mut Scratch, seed: u64, make: Make) {
    let dice = &mut Dice(seed);
    let mut some = |count: u64| -> Vec<Region> { (0..count).map(|_| make(dice)).collect() };
    let (first, second) = (some(1 + seed % 3), some(1));
    let stored: Vec<Vec<u8>> = first.iter().map(|region| region.expected().0).collect();
    let all: usize = stored.iter().map(|stream| stream.len().next_multiple_of(64)).sum();
    let last = stored[stored.len() - 1].len();
    let end = all - last.next_multiple_of(64) + last;
    if end == 0 {
        return;
    }
    let room_of_first = too_little(dice, &first, &stored, end);
    let (expected, achieved) = second[0].expected();
    let begin = room_of_first.next_multiple_of(64).next_multiple_of(256);
    let room = Room::new(begin + expected.len());
    let mut sources = |regions: &[Region]| -> Vec<Source> {
        regions.iter().map(|region| Source::new(region, dice)).collect()
    };
    let (from_first, from_second) = (sources(&first), sources(&second));
    let jobs: Vec<_> =
        first.iter().zip(&from_first).map(|(region, source)| source.job(region)).collect();
    let more = [from_second[0].job(&second[0])];
    let at = room.address();
    let asked = [
        StoredCheckpoint { jobs: &jobs, start: Start::At(at), limit: at + room_of_first as u64 },
        StoredCheckpoint {
            jobs: &more,
            start: Start::Next { align: 256 },
            limit: at + room.len as u64,
        },
    ];
    let ways = Ways { warps: Some(kernels.warps), room: 0, apart: scratch.apart };
    let mut plan = LaunchPlan::of(&asked, &ways).unwrap();
    let slots = [vec![0u64; 4 + 6 * jobs.len()], vec![0u64; 10]];
    let records = [[0u64; 4]; 2];
    for (number, entry) in plan.entries.iter_mut().enumerate() {
        entry.start = at;
        entry.slot = slots[number].as_ptr().addr() as u64;
        entry.record = records[number].as_ptr().addr() as u64;
        entry.sequence = seed + 1;
    }
    scratch.run(kernels, &mut plan, seed.is_multiple_of(2));
    let what = format!("seed {seed}: {:?}", first.iter().map(label).collect::<Vec<_>>());
    assert!(room.guards_are_whole(), "{what}");
    assert_eq!((slots[0][0], slots[0][1], slots[0][3]), (seed + 1, 1, end as u64), "{what}");
    assert!(room.content()[room_of_first..begin].iter().all(|&byte| byte == GUARD), "{what}");
    assert_eq!((slots[1][1], slots[1][2] - at), (0, begin as u64), "{what}");
    assert_eq!((slots[1][3], slots[1][9]), (expected.len() as u64, achieved.outliers), "{what}");
    let same = room.content()[begin..].iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(same, None, "{what}");
}

#[test]
fn what_does_not_fit_writes_nothing_beyond_its_limit() {
    let one: Make = |dice| {
        let shape = vec![1 + dice.below(30_000)];
        mixed(dice, shape, false)
    };
    for ways in [0, 1] {
        let head = format!("#define FORM 0x01010220u\n#define MODE 1\n#define ONCE {ways}\n");
        let Some(kernels) = kernels_of(4, 300, &head) else { return skipped() };
        let tiles = if ways == 0 { Tiles::Many } else { Tiles::Own };
        let mut scratch =
            Scratch { compiled: true, tiles, blocks: 4, workers: 4, ..Scratch::new() };
        for seed in 0..rounds() / 4 {
            check_overflow(&kernels, &mut scratch, seed, one);
        }
    }
}

#[test]
fn a_warp_that_keeps_as_many_tiles_as_it_can_waits_for_the_first_of_them() {
    let make: Make = |dice| {
        let method = Some(Bound::Absolute(1.0));
        let mut region = array(dice, Dtype::Float32, vec![150_000], method);
        for (i, word) in region.source.iter_mut().enumerate() {
            *word = if i % 700 == 0 { u64::from((i as f32).to_bits()) } else { 0 };
        }
        region
    };
    let head = "#define FORM 0x01010220u\n#define MODE 1\n#define ONCE 0\n#define SLOW_SUMS 3000\n";
    let Some(kernels) = kernels_of(2, 1700, head) else { return skipped() };
    let mut scratch = Scratch { compiled: true, blocks: 2, ..Scratch::new() };
    check_batch(&kernels, &mut scratch, 1, make);
}

#[test]
fn the_sizes_of_more_tiles_than_are_looked_at_once_are_added_up_for_each_array() {
    let Some(kernels) = kernels("") else { return skipped() };
    let scratch = Scratch::new();
    for counts in [vec![1], vec![128], vec![129, 1, 127], vec![3, 512, 1, 1000]] {
        let mut plan = LaunchPlan { tiles: counts.iter().sum(), ..LaunchPlan::default() };
        let mut tile0 = 0;
        for &tiles in &counts {
            let raw = Job { rule: rule::RAW, tile0, tiles: 0, ..Job::default() };
            plan.jobs.extend([raw, Job { rule: rule::EXACT, tile0, tiles, ..Job::default() }]);
            tile0 += tiles;
        }
        let words = |tile: u32| u64::from(tile % 7 * 1000 + tile);
        let epoch = 3 << 37;
        let status: Vec<u64> = (0..plan.tiles).map(|tile| epoch | 1 << 35 | words(tile)).collect();
        let places = Places { status: status.as_ptr().addr() as u64, ..scratch.places() };
        let launch = words_at(&plan, &places, 3);
        // SAFETY: our own text with its type; the status words are there.
        unsafe { kernels.encode.get::<Part>(b"add").unwrap()(&raw const launch) };
        let sums = counts.iter().scan(0, |tile0, &tiles| {
            let all = *tile0..*tile0 + tiles;
            *tile0 += tiles;
            Some(all.scan(0, move |sum, tile| {
                *sum += words(tile);
                Some(epoch | 2 << 35 | *sum)
            }))
        });
        assert_eq!(status, sums.flatten().collect::<Vec<_>>(), "{counts:?}");
    }
}

#[test]
fn looking_back_ends_at_the_nearest_tile_that_knows_all_before_it() {
    let Some(kernels) = kernels("") else { return skipped() };
    let scratch = Scratch::new();
    let (tile0, epoch) = (3u32, 5u64 << 37);
    for (tiles, whole) in [(2, 0), (65, 0), (66, 0), (300, 0), (300, 100), (300, 170), (300, 298)] {
        let jobs = vec![Job { tile0, tiles, ..Job::default() }];
        let plan = LaunchPlan { tiles: tile0 + tiles, jobs, ..LaunchPlan::default() };
        // Only the tile `whole` has a complete prefix; tiles of other jobs, and the last one, do
        // not count.
        let word = |tile: u32| match tile.checked_sub(tile0) {
            Some(own) if own == whole => epoch | 2 << 35 | 1_000_000,
            Some(own) => epoch | 1 << 35 | u64::from(own),
            None => epoch | 1 << 35 | 77,
        };
        let status: Vec<u64> = (0..plan.tiles).map(word).collect();
        let total = Vec::from([0u64]);
        let places = Places {
            status: status.as_ptr().addr() as u64,
            totals: total.as_ptr().addr() as u64,
            ..scratch.places()
        };
        let launch = words_at(&plan, &places, 5);
        // SAFETY: our own text with its type; the status words and the total are there.
        unsafe { kernels.encode.get::<Part>(b"look").unwrap()(&raw const launch) };
        let between: u64 = (whole + 1..tiles - 1).map(u64::from).sum();
        assert_eq!(total[0], 1_000_000 + between, "{tiles} {whole}");
    }
}

//! Bounds that depend on the values, emulated on the processor: the same bytes whatever an encoder
//! guesses, and one launch's work where the guess is right.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use unspool_codec::{Bound, Dtype};

use super::emulated_tests::{
    Guess, Make, Scratch, check_batch, kernels, kernels_of, rounds, skipped,
};
use super::fields::{Dice, Region, array, region};
use super::modules::Tiles;

/// A region whose bound depends on its values, of any type.
fn any(dice: &mut Dice) -> Region {
    let small = 10f64.powi(-(dice.below(6) as i32));
    let bounds = [Bound::Range(small), Bound::Rms(small), Bound::Psnr(50.0), Bound::L2(small)];
    let bound = dice.pick(&bounds);
    let dtypes = [Dtype::Float16, Dtype::BFloat16, Dtype::Float32, Dtype::Float64];
    let dtypes = [&dtypes[..], &[Dtype::Complex64, Dtype::Complex128]].concat();
    let n = 1 + dice.below(9000);
    let shape = dice.pick(&[vec![n], vec![1 + n / 100, 100], vec![1 + n / 800, 20, 40]]);
    let dtype = dice.pick(&dtypes);
    array(dice, dtype, shape, Some(bound))
}

/// Arrays of float32 in one, two and three dimensions.
const FORMS: [(&str, Make); 3] = [
    ("0x01010220u", |dice| {
        let shape = vec![1 + dice.below(9000)];
        of_values(dice, shape)
    }),
    ("0x01020220u", |dice| {
        let shape = vec![16 + dice.below(60), 32 + 4 * dice.below(20)];
        of_values(dice, shape)
    }),
    ("0x01030220u", |dice| {
        let shape = vec![4 + dice.below(9), 8 + dice.below(12), 32 + 16 * dice.below(5)];
        of_values(dice, shape)
    }),
];

fn of_values(dice: &mut Dice, shape: Vec<u64>) -> Region {
    let small = 10f64.powi(-(dice.below(4) as i32));
    let bound = dice.pick(&[Bound::Range(small), Bound::Rms(small)]);
    array(dice, Dtype::Float32, shape, Some(bound))
}

/// Guesses of all kinds, most of them relied on.
fn garbage(dice: &mut Dice, right: u64) -> u64 {
    if right == 0 {
        return dice.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 77, u64::MAX]);
    }
    let wide = (f64::from_bits(right) * 1.125).to_bits();
    let special = [f64::NAN, f64::INFINITY, -1.0, 5e-324, f64::MAX, 1e-300].map(f64::to_bits);
    match dice.below(8) {
        0 => 0,
        1 => wide,
        2 => right.wrapping_sub(1 << 49),
        3 => right ^ 1,
        4 => dice.pick(&special),
        5 => dice.next(),
        _ => right,
    }
}

#[test]
fn whatever_is_guessed_the_bytes_are_those_of_the_codec() {
    let Some(all) = kernels("") else { return skipped() };
    let mut scratch = Scratch { guess: Some(garbage), ..Scratch::new() };
    for seed in 0..rounds() {
        scratch.tiles = if seed % 3 == 0 { Tiles::Own } else { Tiles::Many };
        scratch.apart = [u64::MAX, 0, 2][seed as usize / 3 % 3];
        check_batch(&all, &mut scratch, seed, if seed % 2 == 0 { any } else { region });
    }
    for (form, make) in FORMS {
        for tiles in [Tiles::Many, Tiles::Own] {
            let head = format!("#define FORM {form}\n#define MODE 1\n#define ONCE ");
            let head = format!("{head}{}\n", tiles as u32);
            let Some(own) = kernels_of(4, 500, &head) else { return skipped() };
            let guess: Option<Guess> = Some(garbage);
            let mut scratch = Scratch { tiles, compiled: true, guess, ..Scratch::new() };
            for seed in 0..rounds() / 4 {
                check_batch(&own, &mut scratch, seed, make);
            }
        }
    }
}

thread_local! {
    /// The amplitude of [`wave`].
    static AMPLITUDE: Cell<f32> = const { Cell::new(1.0) };
}

/// A wave with a bound that depends on its amplitude.
fn wave(dice: &mut Dice) -> Region {
    let bound = dice.pick(&[Bound::Range(1e-3), Bound::Rms(1e-2)]);
    let mut region = array(dice, Dtype::Float32, vec![3000], Some(bound));
    fill(&mut region, |i| AMPLITUDE.get() * (i as f32 * 0.01).sin());
    region
}

/// Replaces the values of an array of float32.
fn fill(region: &mut Region, value: impl Fn(usize) -> f32) {
    for (i, word) in region.source.iter_mut().enumerate() {
        let bits = |i| u64::from(value(i).to_bits());
        *word = bits(2 * i) | bits(2 * i + 1) << 32;
    }
}

#[test]
fn a_guess_that_is_right_is_not_encoded_again_and_any_other_is() {
    let Some(kernels) = kernels("") else { return skipped() };
    let mut scratch = Scratch::new();
    let wrong: Guess = |_, right| if right == 0 { 0 } else { right + (1 << 49) };
    let doubted: Guess = |_, right| if right == 0 { 2 } else { right };
    let cases: [(Guess, bool); 4] =
        [(|_, right| right, false), (wrong, true), (doubted, true), (|_, _| 0, true)];
    for seed in 0..8 {
        for (guess, again) in cases {
            scratch.guess = Some(guess);
            check_batch(&kernels, &mut scratch, seed, wave);
            assert_eq!(scratch.has_encoded_again(), again, "seed {seed}");
        }
        // What the call has left behind is right, also after guesses that were not there.
        scratch.guess = None;
        check_batch(&kernels, &mut scratch, seed, wave);
        assert!(!scratch.has_encoded_again(), "seed {seed}");
    }
}

#[test]
fn guesses_that_fail_are_given_up_and_taken_up_again_when_they_would_have_held() {
    let Some(kernels) = kernels("") else { return skipped() };
    let mut scratch = Scratch::new();
    let mut seen = Vec::new();
    for amplitude in [1.0, 1.01, 0.99, 2.0, 3.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 1.0, 1.0] {
        AMPLITUDE.set(amplitude);
        check_batch(&kernels, &mut scratch, 3, wave);
        seen.push((scratch.guesses[0], scratch.has_encoded_again()));
    }
    let expected = [
        (0, true),
        (0, false),
        (0, false),
        (1, true),
        (2, true),
        (3, true),
        (3, true),
        (2, true),
        (1, true),
        (0, false),
        (0, false),
        (1, true),
        (0, false),
    ];
    assert_eq!(seen, expected);
}

/// Ends what waits for it, also when a check fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn guesses_may_change_while_blocks_read_them() {
    let make: Make = |dice| {
        let mut region = array(dice, Dtype::Float32, vec![30_000], Some(Bound::Range(1e-3)));
        fill(&mut region, |i| (i as f32 * 0.01).sin());
        region
    };
    let Some(kernels) = kernels("") else { return skipped() };
    let mut scratch = Scratch { blocks: 4, workers: 4, regions: 1, ..Scratch::new() };
    check_batch(&kernels, &mut scratch, 0, make);
    let right = scratch.guesses[1];
    let first = scratch.guesses.as_mut_ptr().addr();
    let (ended, jobs) = (AtomicBool::new(false), 3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(1);
            while !ended.load(Ordering::Relaxed) {
                let guess = dice.pick(&[right, right, right - (1 << 49), right + (1 << 49), 0]);
                for cell in 0..=jobs {
                    let value = if cell == 0 { 0 } else { guess };
                    // SAFETY: a word of `guesses`, which nothing moves or reads otherwise meanwhile
                    // but the kernels, as a word that others write.
                    let cell = unsafe { AtomicU64::from_ptr((first + 8 * cell) as *mut u64) };
                    cell.store(value, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
        });
        let _stop = Stop(&ended);
        for seed in 0..rounds() / 2 {
            check_batch(&kernels, &mut scratch, seed, make);
        }
    });
}

#[test]
fn extremes_are_seen_wherever_they_are() {
    // Each chunk is a little larger than the one before, or the largest is among smaller ones.
    let make: Make = |dice| {
        let bound = dice.pick(&[Bound::Range(1e-2), Bound::Range(1e-4)]);
        let mut region = array(dice, Dtype::Float32, vec![40_000], Some(bound));
        let (growth, offset) =
            (dice.pick(&[0.0, 0.001, 0.1, 1.0]), dice.pick(&[0.0, 0.5, 0.99, -0.7, -3.0]));
        let (most, place) = (dice.pick(&[0.9, -1.001, 1.02, -4.0]), dice.below(40_000) as usize);
        fill(&mut region, |i| {
            let scale = 1.0 + growth * (i / 1024) as f32;
            let wave = (i as f32 * 0.01).sin() + offset;
            scale * if i == place { most } else { wave }
        });
        region
    };
    for tiles in [Tiles::Many, Tiles::Own] {
        let head =
            format!("#define FORM 0x01010220u\n#define MODE 1\n#define ONCE {}\n", tiles as u32);
        let Some(kernels) = kernels(&head) else { return skipped() };
        let mut scratch = Scratch {
            tiles,
            compiled: true,
            guess: Some(|_, right| right),
            blocks: 2,
            workers: 2,
            ..Scratch::new()
        };
        for seed in 0..rounds() {
            check_batch(&kernels, &mut scratch, seed, make);
            assert!(!scratch.has_encoded_again(), "seed {seed}");
        }
    }
}

//! The body of the fuzz target `messages`, over changed blocks of a run from a fixed seed.

#[path = "fuzz_messages/mod.rs"]
mod body;

/// Kind, length and bytes of the blocks of a run: of two ranks and no measure; and its end.
const WHOLE: &[u8] = &[
    1, 5, 0, 0, 2, 0, 0, // no words, no name of MPI, two ranks, the time, no notes
    2, 11, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, // rank 0, which has ended well after 9 ns
    2, 12, 1, 1, b'h', 0, 9, 0, 0, 0, 0, 0, 0, 0, // rank 1 of machine h
    4, 1, 0, // no measures
    5, 1, 4, // four blocks before
];

#[test]
fn changed_runs_have_an_answer() {
    assert!(body::check(WHOLE));
    let mut seed = 1_u64;
    let mut drawn = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % most
    };
    let mut answers = [0, 0];
    for _ in 0..20_000 {
        let mut bytes = WHOLE.to_vec();
        for _ in 0..=drawn(3) {
            let at = drawn(bytes.len().max(1));
            bytes.extend(bytes.is_empty().then_some(1));
            match drawn(4) {
                0 => bytes[at] = drawn(256) as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, drawn(16) as u8),
                _ => bytes.truncate(bytes.len() - at / 8),
            }
        }
        answers[usize::from(body::check(&bytes))] += 1;
    }
    assert!(answers.iter().all(|count| *count > 100), "{answers:?}");
}

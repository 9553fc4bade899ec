//! The body of the fuzz target `veloc_config`, over changed configurations from a fixed seed.

#[path = "fuzz_config/mod.rs"]
mod body;

const WHOLE: &str = "# a job\nscratch = /local/scratch\npersistent = s3://bucket/jobs\n\
                     mode = async\nmax_versions = 3\nscratch_versions = 2\nchksum = 1\n\
                     persistent_interval = 600\ndevice_memory = 4GiB ; of 80\nhost_memory = auto\n\
                     timeout = 1h30min\nec_interval = 0\n";

#[test]
fn changed_configurations_have_an_answer() {
    assert!(body::check(WHOLE.as_bytes()));
    let mut seed = 1_u64;
    let mut drawn = |most: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % most
    };
    let mut answers = [0, 0];
    for _ in 0..20_000 {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for _ in 0..=drawn(4) {
            let at = drawn(bytes.len().max(1));
            bytes.extend(bytes.is_empty().then_some(b'='));
            match drawn(4) {
                0 => bytes[at] = drawn(256) as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"=\n;[9-\xc3 "[drawn(8)]),
                _ => bytes.truncate(bytes.len() - at / 8),
            }
        }
        answers[usize::from(body::check(&bytes))] += 1;
    }
    assert!(answers.iter().all(|count| *count > 100), "{answers:?}");
}

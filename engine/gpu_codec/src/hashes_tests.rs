//! The kernel's text compiled for the processor, against the hash of the host.

use std::process::Command;

use super::*;

/// What the kernel uses of CUDA beyond what the codecs do.
const MORE: &str = "
    static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
        return (unsigned long long)(((unsigned __int128)a * b) >> 64);
    }
";

const RUN: &str = r#"
    extern "C" void run(const HashLaunch *launch, unsigned blocks) {
        run_blocks<HashLaunch>((void (*)(HashLaunch))chunk_hash, *launch, blocks, 2);
    }
"#;

fn kernel() -> Option<libloading::Library> {
    let folder = tempfile::tempdir().unwrap();
    let (source, built) = (folder.path().join("hash.cpp"), folder.path().join("hash.so"));
    let front = format!("#define WARPS {}\n", THREADS / 32);
    let whole = [&front, include_str!("twine/emulated.cpp"), MORE, SOURCE, RUN].concat();
    std::fs::write(&source, whole).unwrap();
    let compile = |compiler: &str| {
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-w", "-fno-strict-aliasing"]);
        command.args(["-shared", "-fPIC", "-pthread", "-o"]);
        command.arg(&built).arg(&source).output().ok()
    };
    let output = ["c++", "g++", "clang++"].into_iter().find_map(compile)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // SAFETY: made just now from our text, which has no initialisers.
    Some(unsafe { libloading::Library::new(&built) }.unwrap())
}

/// The answer as a device gives it.
fn answer(kernel: &libloading::Library, bytes: &[u128], len: u64, seed: u64) -> Vec<u8> {
    // SAFETY: any initialised words may be read as bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), len as usize) };
    let (chunks, tail) = cut(len);
    let mut hashes = vec![0_u64; 2 * chunks as usize];
    let place = (bytes.as_ptr().addr() as u64, len - tail);
    let launch = HashLaunch::new(place, hashes.as_mut_ptr().addr() as u64, seed);
    // SAFETY: our own text with its type; all memory that the words name is allocated.
    unsafe {
        let run = kernel.get::<unsafe extern "C" fn(*const HashLaunch, u32)>(b"run").unwrap();
        run(&raw const launch, chunks as u32);
    }
    let mut answer: Vec<u8> = hashes.iter().flat_map(|word| word.to_le_bytes()).collect();
    answer.extend_from_slice(&bytes[(len - tail) as usize..]);
    answer.resize(ChunkHasher::answer_bytes(len) as usize, 0);
    answer
}

#[test]
fn the_kernel_and_the_host_have_the_same_hashes_for_every_length_and_seed() {
    let Some(kernel) = kernel() else {
        assert!(Command::new("c++").output().is_err(), "there is a compiler, and it was not used");
        return;
    };
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 29)
    };
    let words: Vec<u128> =
        (0..16_384).map(|_| (u128::from(random()) << 64) | u128::from(random())).collect();
    let mut lens = vec![0, 1, 8, 16, 17, 128, 129, 239, 240, 241, 255, 256, 257, 1000];
    lens.extend([1023, 1024, 1025, 1088, 1089, 2047, 2048, 2049, 8191, 8192, 8193, 32_769]);
    lens.extend([65_471, 65_472, 65_473, 65_535, 65_536, 65_537, 65_776, 65_777, 131_072]);
    lens.extend([131_073, 200_000, 262_144]);
    lens.extend((0..40).map(|_| random() % 66_000));
    for len in lens {
        for seed in [0, 1, u64::MAX, random()] {
            // SAFETY: any initialised words may be read as bytes.
            let bytes =
                unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len as usize) };
            let expected: Vec<u128> =
                bytes.chunks(CHUNK_BYTES).map(|chunk| chunk_hash(seed, chunk)).collect();
            let answer = answer(&kernel, &words, len, seed);
            assert!(ChunkHasher::hashes(len, seed, &answer) == expected, "{len} {seed:#x}");
        }
    }
}

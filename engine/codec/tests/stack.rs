//! Codecs on threads with small stacks, such as those that Python's `threading.stack_size` makes.

use unspool_codec::{Bound, Dtype, Spec, Zfp};

/// Python gives a thread 32 KiB at least: the rest is for what calls a codec.
const STACK: usize = 24 << 10;

const BOUNDS: [Bound; 3] =
    [Bound::Absolute(1e-3), Bound::Range(1e-3), Bound::Pointwise { bound: 1e-3, floor: 0.0 }];

/// Encodes and decodes on a thread with a small stack.
fn on_a_small_stack(spec: Spec, dtype: Dtype, shape: Vec<u64>) {
    let thread = std::thread::Builder::new().stack_size(STACK);
    let run = move || {
        let items: u64 = shape.iter().product();
        let bytes = (items * dtype.itemsize()) as usize;
        // Large and uneven numbers: chunks are coded, raw and with outliers.
        let source: Vec<u8> = (0..bytes).map(|i| ((i * i) >> 7 ^ i) as u8 & 0xbf).collect();
        let codec = spec.codec().expect("a codec of main memory");
        let most = codec.max_bytes(&spec, &dtype, &shape).expect("it takes this array");
        let mut stream = vec![0; most as usize];
        let made = codec.encode(&spec, &dtype, &shape, &source, &mut stream).expect("encoded");
        let mut back = vec![0; bytes];
        codec.decode(&dtype, &shape, &stream[..made.bytes as usize], &mut back).expect("decoded");
        back == source
    };
    let same = thread.spawn(run).expect("a thread").join().expect("it has not panicked");
    assert!(same || spec != Spec::Lossless);
}

#[test]
fn arrays_are_encoded_and_decoded_on_a_small_stack() {
    for shape in [vec![5000], vec![70, 70], vec![17, 20, 33]] {
        let floats =
            [Dtype::Float16, Dtype::Float32, Dtype::Float64, Dtype::Complex64, Dtype::Complex128];
        for dtype in floats {
            on_a_small_stack(Spec::Lossless, dtype.clone(), shape.clone());
            for bound in BOUNDS {
                on_a_small_stack(Spec::Bounded(bound), dtype.clone(), shape.clone());
            }
        }
        for dtype in [Dtype::UInt8, Dtype::Int16, Dtype::Int32, Dtype::Int64] {
            on_a_small_stack(Spec::Lossless, dtype, shape.clone());
        }
        on_a_small_stack(Spec::Zfp(Zfp::Rate(16.0)), Dtype::Float64, shape.clone());
    }
}

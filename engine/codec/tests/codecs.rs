//! The codecs in main memory by their [`Spec`]: the dtypes that they take, and their round trips.

use unspool_codec::{Bound, CodecErrorKind, CodecId, Dtype, NvComp, Spec, Zfp};

const SHAPE: [u64; 2] = [20, 30];

const SPECS: [Spec; 5] = [
    Spec::Raw,
    Spec::Lossless,
    Spec::Bounded(Bound::Absolute(1e-3)),
    Spec::Zfp(Zfp::Tolerance(1e-3)),
    Spec::Zfp(Zfp::Rate(16.0)),
];

fn wave() -> Vec<u8> {
    (0..600).flat_map(|i| (i as f32 * 0.01).sin().to_le_bytes()).collect()
}

fn values(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks::<4>().0.iter().map(|value| f64::from(f32::from_le_bytes(*value)))
}

#[test]
fn what_a_codec_makes_of_an_array_comes_back_within_the_error_that_it_tells() {
    let source = wave();
    for spec in SPECS {
        let codec = spec.codec().unwrap();
        assert_eq!(codec.id(), spec.id());
        let most = codec.max_bytes(&spec, &Dtype::Float32, &SHAPE).unwrap();
        let mut out = vec![0; most as usize];
        let made = codec.encode(&spec, &Dtype::Float32, &SHAPE, &source, &mut out).unwrap();
        assert!(made.bytes <= most && made.achieved.values == 600, "{spec:?}: {made:?}");
        let mut back = vec![0; source.len()];
        let stored = &out[..made.bytes as usize];
        // A frame names the codec alone, without the bound.
        let decoder = spec.id().codec().unwrap();
        decoder.decode(&Dtype::Float32, &SHAPE, stored, &mut back).unwrap();
        let errors = values(&source).zip(values(&back)).map(|(x, y)| (x - y).abs());
        let (largest, reported) = (errors.fold(0.0, f64::max), made.achieved.max_error);
        assert!(
            (largest - reported).abs() <= 1e-6 * reported,
            "{spec:?}: {largest} and {reported}"
        );
        assert_eq!(back == source, reported == 0.0, "{spec:?}");
    }
}

#[test]
fn a_codec_refuses_the_spec_of_another_one_and_dtypes_that_it_does_not_take() {
    let twine = Spec::Lossless.codec().unwrap();
    let zfp = Spec::Zfp(Zfp::Rate(8.0)).codec().unwrap();
    for (codec, spec) in [(twine, Spec::Zfp(Zfp::Rate(8.0))), (zfp, Spec::Lossless)] {
        let error = codec.max_bytes(&spec, &Dtype::Float32, &SHAPE).unwrap_err();
        assert_eq!(error.kind(), CodecErrorKind::Invalid);
    }
    let error = zfp.max_bytes(&Spec::Zfp(Zfp::Rate(8.0)), &Dtype::UInt8, &SHAPE).unwrap_err();
    assert!(error.to_string().contains("uint8"), "{error}");
}

#[test]
fn bytes_that_are_cut_off_are_damaged_for_every_codec() {
    let source = wave();
    for spec in SPECS {
        let codec = spec.codec().unwrap();
        let most = codec.max_bytes(&spec, &Dtype::Float32, &SHAPE).unwrap();
        let mut out = vec![0; most as usize];
        let made = codec.encode(&spec, &Dtype::Float32, &SHAPE, &source, &mut out).unwrap();
        let cut = &out[..made.bytes as usize - 1];
        let error = codec.decode(&Dtype::Float32, &SHAPE, cut, &mut vec![0; source.len()]);
        assert_eq!(error.unwrap_err().kind(), CodecErrorKind::Damaged, "{spec:?}");
    }
}

#[test]
fn what_only_a_gpu_does_has_no_codec_in_main_memory() {
    let spec = Spec::NvComp(NvComp::Lz4);
    assert!(spec.needs_gpu() && CodecId::NvComp.needs_gpu() && !Spec::Lossless.needs_gpu());
    assert!(spec.codec().unwrap_err().to_string().contains("GPU"));
}

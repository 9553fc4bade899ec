//! What must hold for any bytes as a zfp stream and as values: the body of the fuzz target and of
//! its smoke test.

use unspool_codec::zfp::{self, PREFIX_BYTES, Prefix};
use unspool_codec::{CodecErrorKind, Dtype, Zfp};

const DTYPES: [Dtype; 4] = [Dtype::Float32, Dtype::Float64, Dtype::Int32, Dtype::Int64];
const SHAPES: [&[u64]; 6] = [&[70], &[9, 13], &[4, 4], &[3, 5, 9], &[2, 3, 4, 5], &[2, 2, 3, 1, 6]];

/// Decodes the bytes as they are and after a prefix that fits them, and encodes them as values.
/// Gives the outcomes of decoding.
pub fn check(data: &[u8]) -> [Result<(), CodecErrorKind>; 2] {
    let Some((choice, bytes)) = data.split_first_chunk::<2>() else {
        return [Err(CodecErrorKind::Invalid); 2];
    };
    let dtype = &DTYPES[usize::from(choice[0]) % 4];
    let shape = SHAPES[usize::from(choice[0] / 4) % SHAPES.len()];
    let mode = mode(dtype, choice[1]);
    assert_comes_back(mode, dtype, shape, bytes);
    [decoded(dtype, shape, bytes), decoded(dtype, shape, &with_prefix(mode, dtype, shape, bytes))]
}

fn mode(dtype: &Dtype, choice: u8) -> Zfp {
    let parameter = choice / 3;
    match choice % 3 {
        0 => Zfp::Rate(f64::from(parameter) / 4.0),
        1 if matches!(dtype, Dtype::Float32 | Dtype::Float64) => {
            Zfp::Tolerance(2_f64.powi(i32::from(parameter) - 40))
        }
        _ => Zfp::Precision(u32::from(parameter)),
    }
}

fn decoded(dtype: &Dtype, shape: &[u64], stream: &[u8]) -> Result<(), CodecErrorKind> {
    let items: u64 = shape.iter().product();
    let mut out = vec![0; (items * dtype.itemsize()) as usize];
    zfp::decode(dtype, shape, stream, &mut out).map_err(|error| {
        assert!(error.to_string().len() > 20);
        assert!(matches!(error.kind(), CodecErrorKind::Damaged | CodecErrorKind::Newer));
        error.kind()
    })
}

/// The bytes, cut to words or to the length that the rate makes, after their prefix.
fn with_prefix(mode: Zfp, dtype: &Dtype, shape: &[u64], bytes: &[u8]) -> Vec<u8> {
    let most = zfp::max_bytes(&mode, dtype, shape).map_or(0, |most| most as usize - PREFIX_BYTES);
    let mut body = bytes[..(bytes.len() & !7).min(most)].to_vec();
    let block_bits = match mode {
        Zfp::Rate(rate) => {
            body.resize(most, 0);
            let least = [9, 12, 1, 1][DTYPES.iter().position(|d| d == dtype).unwrap_or(0)];
            ((4_f64.powi(shape.len().min(4) as i32) * rate + 0.5).floor() as u32).max(least)
        }
        _ => 0,
    };
    let mut sizes = [0; 4];
    for (place, &size) in shape.iter().rev().enumerate() {
        let size = size as u32;
        sizes[place.min(3)] = if place > 3 { sizes[3] * size } else { size };
    }
    let dims = shape.len().min(4) as u8;
    let dtype_code = dtype.code() as u8;
    let stream_bytes = body.len() as u64;
    let prefix = Prefix { dtype_code, mode, dims, sizes, block_bits, stream_bytes };
    [&prefix.to_bytes()[..], &body].concat()
}

fn assert_comes_back(mode: Zfp, dtype: &Dtype, shape: &[u64], values: &[u8]) {
    let items: u64 = shape.iter().product();
    let mut source = values.to_vec();
    source.resize((items * dtype.itemsize()) as usize, 0);
    let Ok(most) = zfp::max_bytes(&mode, dtype, shape) else { return };
    let mut stream = vec![0; most as usize];
    match zfp::encode(&mode, dtype, shape, &source, &mut stream) {
        Ok(encoded) => {
            assert_eq!(encoded.achieved.values, items);
            assert_eq!(decoded(dtype, shape, &stream[..encoded.bytes as usize]), Ok(()));
        }
        Err(error) => assert_eq!(error.kind(), CodecErrorKind::Invalid, "{error}"),
    }
}

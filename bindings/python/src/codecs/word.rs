//! Codecs as Python writes them for this crate: `unspool.codecs.words`.

use pyo3::prelude::*;
use unspool::{Bound as ErrorBound, Choice, Codec, CodecChoice, CodecId, NvComp, Zfp};
use unspool_codec::Outer;

use crate::errors::{Class, error};

/// A codec in words: its kind, what it counts, the number, and a second one.
pub type Word = (String, String, f64, f64);

/// What `codec=` was given at `place`, such as `Spool(codec=...)`.
///
/// # Errors
/// `OptionError`, when it is no codec.
pub fn choice(value: &Bound<'_, PyAny>, place: &str) -> PyResult<CodecChoice> {
    let py = value.py();
    let words = py.import("unspool.codecs.words")?.getattr("words_of")?.call1((value, place))?;
    let (default, named): (Word, Vec<(String, Word)>) = {
        let (default, named): (Word, Bound<'_, PyAny>) = words.extract()?;
        (
            default,
            named
                .call_method0("items")?
                .try_iter()?
                .map(|pair| pair?.extract())
                .collect::<PyResult<_>>()?,
        )
    };
    let by_region = named.into_iter().map(|(name, word)| Ok((name, chosen(py, &word)?)));
    Ok(CodecChoice {
        default: chosen(py, &default)?,
        by_region: by_region.collect::<PyResult<_>>()?,
    })
}

fn chosen(py: Python<'_>, word: &Word) -> PyResult<Choice> {
    if word.0 == "auto" {
        return Ok(Choice::Auto);
    }
    codec(py, word).map(Choice::Fixed)
}

/// The codec of a word.
///
/// # Errors
/// `Error`, when the package and this crate do not speak the same words.
pub fn codec(py: Python<'_>, word: &Word) -> PyResult<Codec> {
    let (kind, what, number, second) = (word.0.as_str(), word.1.as_str(), word.2, word.3);
    let found = match kind {
        "raw" => Some(Codec::Raw),
        "lossless" => Some(Codec::Lossless),
        "bound" => bound(what, number, second).map(Codec::Bounded),
        "zfp" => zfp(what, number).map(Codec::Zfp),
        "nvcomp" => nvcomp(what, number).map(Codec::NvComp),
        _ => None,
    };
    found.ok_or_else(|| {
        let text = format!(
            "The package and its extension do not know the same codecs ({kind} {what}): they are \
             of different versions. Install the package again."
        );
        error(py, Class::Internal, text)
    })
}

fn bound(what: &str, number: f64, floor: f64) -> Option<ErrorBound> {
    Some(match what {
        "abs" => ErrorBound::Absolute(number),
        "range" => ErrorBound::Range(number),
        "rms" => ErrorBound::Rms(number),
        "psnr" => ErrorBound::Psnr(number),
        "l2" => ErrorBound::L2(number),
        "rel" => ErrorBound::Pointwise { bound: number, floor },
        _ => return None,
    })
}

fn zfp(what: &str, number: f64) -> Option<Zfp> {
    Some(match what {
        "rate" => Zfp::Rate(number),
        "precision" => Zfp::Precision(number as u32),
        "accuracy" => Zfp::Tolerance(number),
        _ => return None,
    })
}

fn nvcomp(what: &str, lossy: f64) -> Option<NvComp> {
    Some(match what {
        "bitcomp" if lossy > 0.0 => NvComp::BitcompLossy(lossy),
        "bitcomp" => NvComp::Bitcomp,
        "ans" => NvComp::Ans,
        "lz4" => NvComp::Lz4,
        "cascaded" => NvComp::Cascaded,
        "gdeflate" => NvComp::Gdeflate,
        "zstd" => NvComp::Zstd,
        _ => return None,
    })
}

/// What shrinks whole frames, by its name.
pub fn outer(name: &str) -> Option<Outer> {
    match name {
        "zstd" => Some(Outer::default()),
        "lz4" => Some(Outer::Lz4),
        "archive" => Some(Outer::Archive),
        _ => None,
    }
}

/// A codec that loses nothing, as the statistics call it.
pub fn named(codec: Codec) -> String {
    match codec {
        Codec::NvComp(format) => format!("nvcomp {}", format!("{format:?}").to_lowercase()),
        Codec::Lossless => "lossless".to_owned(),
        other => format!("{other:?}"),
    }
}

/// What made the stored bytes of a region, in a word.
pub fn made_by(codec: CodecId) -> &'static str {
    match codec {
        CodecId::Raw => "raw",
        CodecId::Twine => "twine",
        CodecId::Zfp => "zfp",
        CodecId::NvComp => "nvcomp",
    }
}

//! Codecs as text: `lossless`, `auto`, `abs=1e-3`, `zfp-rate=8`.

use unspool::{Bound, NvComp, Spec, Zfp};

/// The codec that `text` names.
///
/// # Errors
/// A sentence that says what to write instead, also of a bound that no array can keep.
pub(crate) fn parse(text: &str) -> Result<Spec, String> {
    let spec = named(text)?;
    spec.check().map_err(|why| why.to_string())?;
    Ok(spec)
}

fn named(text: &str) -> Result<Spec, String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text.trim(), None),
    };
    let number = || -> Result<f64, String> {
        let number = value.and_then(|value| value.parse::<f64>().ok());
        number.ok_or_else(|| format!("{text:?} has no number: write it as {name}=1e-3."))
    };
    match name {
        "none" | "lossless" | "auto" if value.is_some() => Err(unknown(text)),
        "none" => Ok(Spec::Raw),
        "lossless" => Ok(Spec::Lossless),
        "auto" => Ok(Spec::Auto),
        "abs" => Ok(Spec::Bounded(Bound::Absolute(number()?))),
        "range" => Ok(Spec::Bounded(Bound::Range(number()?))),
        "rms" => Ok(Spec::Bounded(Bound::Rms(number()?))),
        "psnr" => Ok(Spec::Bounded(Bound::Psnr(number()?))),
        "l2" => Ok(Spec::Bounded(Bound::L2(number()?))),
        "pointwise" => Ok(Spec::Bounded(Bound::Pointwise { bound: number()?, floor: 0.0 })),
        "zfp-rate" => Ok(Spec::Zfp(Zfp::Rate(number()?))),
        "zfp-precision" => {
            let bits = value.and_then(|value| value.parse().ok());
            let bits =
                bits.ok_or_else(|| format!("{text:?} has no whole number of bit planes."))?;
            Ok(Spec::Zfp(Zfp::Precision(bits)))
        }
        "zfp-tolerance" => Ok(Spec::Zfp(Zfp::Tolerance(number()?))),
        _ => nvcomp(name).filter(|_| value.is_none()).ok_or_else(|| unknown(text)),
    }
}

fn nvcomp(name: &str) -> Option<Spec> {
    let format = name.strip_prefix("nvcomp-")?;
    let (_, format) = NvComp::LOSSLESS.into_iter().find(|(name, _)| *name == format)?;
    Some(Spec::NvComp(format))
}

fn unknown(text: &str) -> String {
    format!(
        "There is no codec {text:?}. Write none, lossless, auto, a bound (abs=1e-3, range=, rms=, \
         psnr=, l2=, pointwise=), zfp-rate=8, zfp-precision=, zfp-tolerance=, or nvcomp- and one \
         of bitcomp, ans, lz4, cascaded, gdeflate, zstd."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_named_with_their_numbers() {
        for (text, spec) in [
            ("none", Spec::Raw),
            (" lossless ", Spec::Lossless),
            ("auto", Spec::Auto),
            ("abs=1e-3", Spec::Bounded(Bound::Absolute(1e-3))),
            ("range = 0.01", Spec::Bounded(Bound::Range(0.01))),
            ("psnr=60", Spec::Bounded(Bound::Psnr(60.0))),
            ("pointwise=1e-2", Spec::Bounded(Bound::Pointwise { bound: 1e-2, floor: 0.0 })),
            ("zfp-precision=20", Spec::Zfp(Zfp::Precision(20))),
            ("zfp-rate=8", Spec::Zfp(Zfp::Rate(8.0))),
            ("nvcomp-lz4", Spec::NvComp(NvComp::Lz4)),
        ] {
            assert_eq!(parse(text), Ok(spec), "{text}");
        }
        for text in ["", "lossless=1", "abs", "abs=x", "zfp", "zfp-precision=1.5", "nvcomp-lz4=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for name in ["abs", "range", "rms", "psnr", "l2", "pointwise", "zfp-rate", "zfp-tolerance"]
        {
            for number in ["nan", "inf", "-inf"] {
                let text = format!("{name}={number}");
                assert!(parse(&text).is_err_and(|why| why.contains("finite")), "{text}");
            }
        }
    }
}

//! Codecs as Python writes them (`unspool.codecs.values`): read here, and written here. Nowhere
//! else is it known what a codec is called.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyMapping, PyString};
use unspool::{Bound as ErrorBound, CodecId, Codecs, NvComp, Spec, Zfp};

use crate::errors::{Class, error};

const ADVICE: &str = "write None, \"lossless\", \"auto\", a bound such as \
                      unspool.Bound(range=1e-4), unspool.Zfp(...), or one for each array by name, \
                      such as {\"u\": unspool.Bound(abs=1e-3), \"*\": \"lossless\"}";

/// The key of a mapping for all arrays that it does not name.
const OTHERS: &str = "*";

/// The most characters that are shown of what is not a codec.
const SHOWN: usize = 80;

/// What `codec=` was given at `place`, such as `Spool(codec=...)`: one codec, or a mapping with one
/// for each array.
///
/// # Errors
/// `OptionError`, when it is not a codec.
pub fn codecs(value: &Bound<'_, PyAny>, place: &str) -> PyResult<Codecs> {
    let Ok(mapping) = value.cast::<PyMapping>() else {
        return spec(value, place).map(Codecs::all);
    };
    let mut codecs = Codecs::default();
    for pair in mapping.items()?.iter() {
        let (key, codec): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let name = name_of(&key, place)?;
        let spec = spec(&codec, &format!("{place}: {}", key.repr()?))?;
        if codecs.by_region.insert(name.clone(), spec).is_some() {
            let text = format!("{name} and '{name}' are the same array; give one of them.");
            return Err(wrong(value, place, &text));
        }
    }
    if codecs.by_region.is_empty() {
        return Err(wrong(value, place, &format!("an empty mapping says nothing; {ADVICE}.")));
    }
    codecs.default = codecs.by_region.remove(OTHERS).unwrap_or_default();
    Ok(codecs)
}

/// Arrays that are given by position are called by it.
fn name_of(key: &Bound<'_, PyAny>, place: &str) -> PyResult<String> {
    if let Ok(name) = key.cast::<PyString>() {
        return Ok(name.to_string_lossy().into_owned());
    }
    let is_number = key.is_instance_of::<PyInt>() && !key.is_instance_of::<PyBool>();
    if let Some(position) = key.extract::<u64>().ok().filter(|_| is_number) {
        return Ok(position.to_string());
    }
    let text = format!(
        "{} is not a name of an array; give the name under which it is saved, its position, or \
         \"{OTHERS}\" for all others.",
        key.repr()?
    );
    Err(wrong(key, place, &text))
}

/// One codec.
///
/// # Errors
/// `OptionError`, when it is none.
pub fn spec(value: &Bound<'_, PyAny>, place: &str) -> PyResult<Spec> {
    let found = if value.is_none() {
        Some(Spec::Raw)
    } else if let Ok(text) = value.cast::<PyString>() {
        by_name(&text.to_string_lossy())
    } else {
        by_value(value)?
    };
    let Some(spec) = found else {
        let text = format!("{} is not a codec{}; {ADVICE}.", shown(value)?, hint(value)?);
        return Err(wrong(value, place, &text));
    };
    Ok(spec)
}

fn by_name(name: &str) -> Option<Spec> {
    match name {
        "raw" => Some(Spec::Raw),
        "lossless" => Some(Spec::Lossless),
        "auto" => Some(Spec::Auto),
        _ => None,
    }
}

/// The codec of a `Bound`, a `Zfp` or an `NvComp`.
fn by_value(value: &Bound<'_, PyAny>) -> PyResult<Option<Spec>> {
    let py = value.py();
    let text = |name| value.getattr(name)?.extract::<String>();
    let number = |name| value.getattr(name)?.extract::<Option<f64>>();
    if value.is_instance(&class(py, "Bound")?)? {
        let bound = number("value")?.unwrap_or_default();
        let floor = number("floor")?.unwrap_or_default();
        return Ok(Some(Spec::Bounded(match text("kind")?.as_str() {
            "abs" => ErrorBound::Absolute(bound),
            "range" => ErrorBound::Range(bound),
            "rms" => ErrorBound::Rms(bound),
            "psnr" => ErrorBound::Psnr(bound),
            "l2" => ErrorBound::L2(bound),
            "pointwise" => ErrorBound::Pointwise { bound, floor },
            _ => return Ok(None),
        })));
    }
    if value.is_instance(&class(py, "Zfp")?)? {
        let parameter = number("value")?.unwrap_or_default();
        return Ok(Some(Spec::Zfp(match text("kind")?.as_str() {
            "rate" => Zfp::Rate(parameter),
            "precision" => Zfp::Precision(parameter as u32),
            "tolerance" => Zfp::Tolerance(parameter),
            _ => return Ok(None),
        })));
    }
    if value.is_instance(&class(py, "NvComp")?)? {
        let (name, lossy) = (text("name")?, number("abs")?);
        let format = NvComp::LOSSLESS.iter().find(|format| format.0 == name).map(|format| format.1);
        return Ok(format.map(|format| match lossy {
            Some(bound) => Spec::NvComp(NvComp::BitcompLossy(bound)),
            None => Spec::NvComp(format),
        }));
    }
    Ok(None)
}

/// The inverse of [`spec`]: the codec as Python writes it.
///
/// # Errors
/// What Python says.
pub fn value_of<'py>(py: Python<'py>, spec: Spec) -> PyResult<Bound<'py, PyAny>> {
    let value = |name, fields: &[(&str, f64)]| {
        let named = PyDict::new(py);
        fields.iter().try_for_each(|(field, number)| named.set_item(field, number))?;
        class(py, name)?.call((), Some(&named))
    };
    let text = |text| Ok(PyString::new(py, text).into_any());
    match spec {
        Spec::Raw => Ok(py.None().into_bound(py)),
        Spec::Lossless => text("lossless"),
        Spec::Auto => text("auto"),
        Spec::Bounded(bound) => match bound {
            ErrorBound::Absolute(most) => value("Bound", &[("abs", most)]),
            ErrorBound::Range(part) => value("Bound", &[("range", part)]),
            ErrorBound::Rms(part) => value("Bound", &[("rms", part)]),
            ErrorBound::Psnr(least) => value("Bound", &[("psnr", least)]),
            ErrorBound::L2(part) => value("Bound", &[("l2", part)]),
            ErrorBound::Pointwise { bound, floor: 0.0 } => value("Bound", &[("pointwise", bound)]),
            ErrorBound::Pointwise { bound, floor } => {
                value("Bound", &[("pointwise", bound), ("floor", floor)])
            }
            other => Err(unknown(py, &format!("{other:?}"))),
        },
        Spec::Zfp(Zfp::Rate(rate)) => value("Zfp", &[("rate", rate)]),
        Spec::Zfp(Zfp::Precision(planes)) => value("Zfp", &[("precision", f64::from(planes))]),
        Spec::Zfp(Zfp::Tolerance(most)) => value("Zfp", &[("tolerance", most)]),
        Spec::NvComp(NvComp::BitcompLossy(bound)) => class(py, "NvComp")?.call1(("bitcomp", bound)),
        Spec::NvComp(format) => match NvComp::LOSSLESS.iter().find(|one| one.1 == format) {
            Some((name, _)) => class(py, "NvComp")?.call1((*name,)),
            None => Err(unknown(py, &format!("{format:?}"))),
        },
        other => Err(unknown(py, &format!("{other:?}"))),
    }
}

/// The codec of all arrays, and those of single ones, as Python writes them.
type Written<'py> = (Bound<'py, PyAny>, BTreeMap<String, Bound<'py, PyAny>>);

/// The codec of all arrays and those of single ones, of what `codec=` was given at `place`.
#[pyfunction]
pub fn codecs_of<'py>(value: &Bound<'py, PyAny>, place: &str) -> PyResult<Written<'py>> {
    let (py, found) = (value.py(), codecs(value, place)?);
    let by_region = found.by_region.into_iter().map(|(name, spec)| Ok((name, value_of(py, spec)?)));
    Ok((value_of(py, found.default)?, by_region.collect::<PyResult<_>>()?))
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("unspool.codecs.values")?.getattr(name)
}

fn hint(value: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    let is_number = value.extract::<f64>().is_ok() && !value.is_instance_of::<PyBool>();
    Ok(if ["Bound", "Zfp", "NvComp"].iter().any(|name| is_class(value, name)) {
        " but a class"
    } else if value.hasattr("dtype")? && value.hasattr("shape")? {
        " but an array (one that is called codec has to be given by position)"
    } else if is_number {
        " (a bound has to say of what: absolute, of the range, ...)"
    } else {
        ""
    })
}

fn is_class(value: &Bound<'_, PyAny>, name: &str) -> bool {
    class(value.py(), name).is_ok_and(|class| value.is(&class))
}

/// As it is written, but in one short line.
fn shown(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let repr = value.repr().map_or_else(|_| "a value".to_owned(), |repr| repr.to_string());
    let text = repr.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= SHOWN {
        return Ok(text);
    }
    Ok(text.chars().take(SHOWN - 3).chain("...".chars()).collect())
}

fn wrong(value: &Bound<'_, PyAny>, place: &str, text: &str) -> PyErr {
    error(value.py(), Class::Option, format!("{place}: {text}"))
}

fn unknown(py: Python<'_>, spec: &str) -> PyErr {
    let text = format!(
        "The package and its extension do not know the same codecs ({spec}): they are of \
         different versions. Install the package again."
    );
    error(py, Class::Internal, text)
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

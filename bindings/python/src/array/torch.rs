//! What PyTorch's tensors are that DLPack does not say.

use pyo3::intern;
use pyo3::prelude::*;

/// Why a tensor's memory is not its value, or must not be written behind PyTorch's back; `None`
/// for ordinary tensors and for everything that is no tensor of PyTorch.
///
/// A tensor with the negative bit (such as `x.conj().imag`) is exported by PyTorch 2.15 as if it
/// had none: its bytes are those of another value.
pub fn objection(object: &Bound<'_, PyAny>) -> Option<&'static str> {
    let py = object.py();
    object.getattr_opt(intern!(py, "is_neg")).ok().flatten()?;
    let says = |answer: PyResult<Bound<'_, PyAny>>| {
        answer.and_then(|answer| answer.is_truthy()).unwrap_or(false)
    };
    if says(object.getattr(intern!(py, "requires_grad"))) {
        return Some("it requires a gradient: pass tensor.detach(), which shares its memory");
    }
    if says(object.call_method0(intern!(py, "is_neg"))) {
        return Some("it is a lazily negated view: pass tensor.resolve_neg()");
    }
    if says(object.call_method0(intern!(py, "is_conj"))) {
        return Some("it is a lazily conjugated view: pass tensor.resolve_conj()");
    }
    None
}

/// Whether the exchange table may be used: only for PyTorch's own class, because the table knows
/// nothing of what a subclass adds.
pub fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type();
    let named = |attribute: PyResult<_>, expected: &str| -> bool {
        attribute.is_ok_and(|name: Bound<'_, pyo3::types::PyString>| name == expected)
    };
    named(class.name(), "Tensor") && named(class.module(), "torch")
}

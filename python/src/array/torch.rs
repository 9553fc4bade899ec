//! Tensors of PyTorch: what they are that DLPack does not say, and the stream they are used on.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::intake::Intake;
use super::{Array, ArrayRefusal, dlpack};

/// `torch.Tensor` and its exchange table.
static CLASS: PyOnceLock<(Py<PyType>, Option<dlpack::ExchangeTable>)> = PyOnceLock::new();

/// `torch.cuda.is_initialized`.
static IS_INITIALIZED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Borrows the memory of a tensor of PyTorch; `None` when `object` is none.
///
/// # Errors
/// Why it cannot be borrowed.
pub fn borrow(
    object: &Bound<'_, PyAny>,
    intake: &Intake<'_>,
) -> Option<Result<Array, ArrayRefusal>> {
    let py = object.py();
    let (class, table) = class(py)?;
    let class = class.bind(py);
    // The table knows nothing of what a subclass adds, and `__dlpack__` may.
    let plain = object.get_type().is(class);
    if !plain && !object.is_instance(class).unwrap_or(false) {
        return None;
    }
    if let Some(why) = objection(object) {
        return Some(Err(why.to_owned().into()));
    }
    let ask = |ordinal| current_stream(py, ordinal).ok_or(());
    let work = |ordinal| intake.stream_of(("torch", ordinal), || ask(ordinal)).ok();
    let answer =
        table.filter(|_| plain).and_then(|table| dlpack::exchange(object, &table, intake, work));
    answer.or_else(|| dlpack::borrow(object, intake, work))
}

fn class(py: Python<'_>) -> Option<&'static (Py<PyType>, Option<dlpack::ExchangeTable>)> {
    if let Some(known) = CLASS.get(py) {
        return Some(known);
    }
    let class = super::loaded(py, intern!(py, "torch"), intern!(py, "Tensor"))?;
    let table = dlpack::table(&class);
    Some(CLASS.get_or_init(py, || (class.unbind(), table)))
}

/// The handle of PyTorch's current stream on a device.
pub fn current_stream(py: Python<'_>, ordinal: u32) -> Option<usize> {
    let ask = || {
        let stream =
            py.import("torch")?.getattr("cuda")?.call_method1("current_stream", (ordinal,));
        stream?.getattr("cuda_stream")?.extract::<usize>()
    };
    ask().ok().map(|stream| stream.max(super::LEGACY_STREAM))
}

/// As [`current_stream`]; `None` when PyTorch is not loaded, or has done nothing on a GPU so far:
/// asking it would make it begin.
pub fn stream_in_use(py: Python<'_>, ordinal: u32) -> Option<usize> {
    let (_, table) = class(py)?;
    let begun = IS_INITIALIZED.get_or_try_init(py, || -> PyResult<Py<PyAny>> {
        Ok(py.import("torch.cuda")?.getattr("is_initialized")?.unbind())
    });
    if !begun.ok()?.bind(py).call0().ok()?.is_truthy().ok()? {
        return None;
    }
    let known = table.as_ref().and_then(|table| table.current_stream(ordinal));
    known.or_else(|| current_stream(py, ordinal))
}

/// Why a tensor's memory is not its value, or must not be written behind PyTorch's back; `None`
/// for ordinary tensors.
///
/// A tensor with the negative bit (such as `x.conj().imag`) is exported by PyTorch 2.15 as if it
/// had none: its bytes are those of another value.
fn objection(object: &Bound<'_, PyAny>) -> Option<&'static str> {
    let py = object.py();
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

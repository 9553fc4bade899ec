//! The extension module `unspool_studies._native`: the acoustic propagator of reverse time
//! migration, on arrays that Python owns, and the GPUs of a node in virtual time.

mod simulate;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use unspool_wave::{Acoustic, Grid, Instructions, Options, Points, Record, Signal, WaveError};
use unspool_wave::{SPACE_ORDER, largest_stable_step};

/// The extension module `unspool_studies._native`.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("SPACE_ORDER", SPACE_ORDER)?;
    m.add_class::<PyAcoustic>()?;
    m.add_class::<PyPoints>()?;
    m.add_function(wrap_pyfunction!(simulate::simulate, m)?)?;
    m.add_function(wrap_pyfunction!(py_largest_stable_step, m)?)
}

/// The largest stable time step in seconds, for a speed in m/s and spacings in metres.
#[pyfunction]
#[pyo3(name = "largest_stable_step")]
fn py_largest_stable_step(velocity: f64, dx: f64, dz: f64) -> f64 {
    largest_stable_step(velocity, dx, dz)
}

/// Sources or receivers, placed on the grid of one propagator.
#[pyclass(frozen, name = "Points", module = "unspool_studies._native")]
struct PyPoints {
    inner: Points,
}

#[pymethods]
impl PyPoints {
    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// The acoustic propagator of one model and one time step.
#[pyclass(frozen, name = "Acoustic", module = "unspool_studies._native")]
struct PyAcoustic {
    inner: Acoustic,
}

#[pymethods]
impl PyAcoustic {
    /// `velocity`: float32 (nx, nz) in m/s; `spacing`: (dx, dz) in metres; `dt` in seconds;
    /// `layer`: cells of the absorbing layer; `threads`: 0 for one per core.
    #[new]
    #[pyo3(signature = (velocity, spacing, dt, layer, threads=0, portable=false))]
    fn new(
        velocity: PyBuffer<f32>,
        spacing: (f64, f64),
        dt: f64,
        layer: usize,
        threads: usize,
        portable: bool,
    ) -> PyResult<Self> {
        let &[nx, nz] = velocity.shape() else {
            return Err(PyValueError::new_err("the velocity model must have two dimensions"));
        };
        let grid = Grid { nx, nz, dx: spacing.0, dz: spacing.1, layer };
        let instructions = if portable { Instructions::Portable } else { Instructions::best() };
        let model = Floats::readable("the velocity model", velocity)?;
        let inner = Acoustic::new(grid, model.get(), dt, Options { threads, instructions });
        Ok(Self { inner: inner.map_err(to_python)? })
    }

    /// The shape of a padded field: (x, z), z fastest.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        self.inner.grid().shape()
    }

    /// Cells between the edge of a padded field and the model.
    #[getter]
    fn pad(&self) -> usize {
        self.inner.grid().pad()
    }

    /// The number of threads that it computes with.
    #[getter]
    fn threads(&self) -> usize {
        self.inner.threads()
    }

    /// The instruction set that it computes with.
    #[getter]
    fn instructions(&self) -> &'static str {
        self.inner.instructions().name()
    }

    /// Places points at (x, depth) in metres.
    fn points(&self, positions: Vec<(f64, f64)>) -> PyResult<PyPoints> {
        let inner = Points::new(self.inner.grid(), &positions).map_err(to_python)?;
        Ok(PyPoints { inner })
    }

    /// Takes `steps` steps; the newest level is then in `newer` when `steps` is even, else in
    /// `older`. `signal` and `record` hold `steps * len(points)` float32 values, steps slow.
    #[pyo3(signature = (older, newer, steps, sources=None, signal=None, receivers=None,
                        record=None))]
    #[expect(clippy::too_many_arguments, reason = "a flat call is the cheapest from Python")]
    fn advance(
        &self,
        py: Python<'_>,
        older: PyBuffer<f32>,
        newer: PyBuffer<f32>,
        steps: usize,
        sources: Option<&Bound<'_, PyPoints>>,
        signal: Option<PyBuffer<f32>>,
        receivers: Option<&Bound<'_, PyPoints>>,
        record: Option<PyBuffer<f32>>,
    ) -> PyResult<()> {
        let mut older = Floats::writable("the older field", older)?;
        let mut newer = Floats::writable("the newer field", newer)?;
        let signal = signal.map(|it| Floats::readable("the signal", it)).transpose()?;
        let mut record = record.map(|it| Floats::writable("the record", it)).transpose()?;
        apart(&[Some(&older), Some(&newer), signal.as_ref(), record.as_ref()])?;
        let signal = paired("a signal", sources, signal.as_ref())?
            .map(|(points, values)| Signal { points, values: values.get() });
        let record = paired("a record", receivers, record.as_mut())?
            .map(|(points, values)| Record { points, values: values.get_mut() });
        let (older, newer) = (older.get_mut(), newer.get_mut());
        py.detach(|| self.inner.advance(older, newer, steps, signal, record)).map_err(to_python)
    }

    /// Adds `forward * backward` to `image` and `forward ** 2` to `illumination`.
    fn correlate(
        &self,
        py: Python<'_>,
        image: PyBuffer<f32>,
        illumination: PyBuffer<f32>,
        forward: PyBuffer<f32>,
        backward: PyBuffer<f32>,
    ) -> PyResult<()> {
        let mut image = Floats::writable("the image", image)?;
        let mut light = Floats::writable("the illumination", illumination)?;
        let forward = Floats::readable("the forward field", forward)?;
        let backward = Floats::readable("the backward field", backward)?;
        apart(&[Some(&image), Some(&light), Some(&forward)])?;
        apart(&[Some(&image), Some(&light), Some(&backward)])?;
        let (image, light) = (image.get_mut(), light.get_mut());
        let (forward, backward) = (forward.get(), backward.get());
        py.detach(|| self.inner.correlate(image, light, forward, backward)).map_err(to_python)
    }
}

fn to_python(error: WaveError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A contiguous float32 buffer, held for the length of one call.
struct Floats {
    what: &'static str,
    buffer: PyBuffer<f32>,
}

impl Floats {
    fn readable(what: &'static str, buffer: PyBuffer<f32>) -> PyResult<Self> {
        if buffer.is_c_contiguous() {
            return Ok(Self { what, buffer });
        }
        let reason = format!("{what} must be contiguous: pass numpy.ascontiguousarray(it)");
        Err(PyValueError::new_err(reason))
    }

    fn writable(what: &'static str, buffer: PyBuffer<f32>) -> PyResult<Self> {
        if buffer.readonly() {
            return Err(PyValueError::new_err(format!("{what} must be writable")));
        }
        Self::readable(what, buffer)
    }

    fn get(&self) -> &[f32] {
        if self.buffer.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, typed and aligned as f32 (checked by `PyBuffer`), and
        // held, so that its owner cannot free or move it. The caller of the Python method promises
        // not to write to it from another thread meanwhile, as with every NumPy call that
        // releases the GIL; `apart` has ruled out that this call itself does.
        unsafe {
            std::slice::from_raw_parts(self.buffer.buf_ptr().cast(), self.buffer.item_count())
        }
    }

    fn get_mut(&mut self) -> &mut [f32] {
        if self.buffer.item_count() == 0 {
            return &mut [];
        }
        // SAFETY: as in `get`; `writable` has refused read-only buffers, and `apart` buffers that
        // share memory with another one of the same call.
        unsafe {
            std::slice::from_raw_parts_mut(self.buffer.buf_ptr().cast(), self.buffer.item_count())
        }
    }

    fn range(&self) -> std::ops::Range<usize> {
        let begin = self.buffer.buf_ptr() as usize;
        begin..begin + self.buffer.len_bytes()
    }
}

/// Refuses buffers that share memory, so that exclusive access is exclusive.
fn apart(buffers: &[Option<&Floats>]) -> PyResult<()> {
    let present: Vec<&Floats> = buffers.iter().copied().flatten().collect();
    for (index, one) in present.iter().enumerate() {
        for other in &present[index + 1..] {
            let (a, b) = (one.range(), other.range());
            if a.start < b.end && b.start < a.end {
                let reason = format!("{} and {} share memory", one.what, other.what);
                return Err(PyValueError::new_err(reason));
            }
        }
    }
    Ok(())
}

/// Points and their values, which come together or not at all.
fn paired<'a, T>(
    what: &str,
    points: Option<&'a Bound<'_, PyPoints>>,
    values: Option<T>,
) -> PyResult<Option<(&'a Points, T)>> {
    match (points, values) {
        (Some(points), Some(values)) => Ok(Some((&points.get().inner, values))),
        (None, None) => Ok(None),
        _ => Err(PyValueError::new_err(format!("{what} needs both its points and its values"))),
    }
}

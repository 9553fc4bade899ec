//! Arrays of the caller: a name, a type, a shape and a pointer, to memory of the host or of a GPU.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};

use unspool::gpu::{DeviceArray, Stream, device_of};
use unspool::{Dtype, Region, RegionSpec, Spool};

use crate::status::Failure;
use crate::text::{optional, slice};

/// The most dimensions of an array.
const MOST_DIMENSIONS: c_int = 64;

/// The types of items, by the numbers that stand for them in a frame.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
#[allow(dead_code, reason = "it is what the header has")]
pub enum UnspoolDtype {
    Bool = 1,
    Int8 = 2,
    Int16 = 3,
    Int32 = 4,
    Int64 = 5,
    Uint8 = 6,
    Uint16 = 7,
    Uint32 = 8,
    Uint64 = 9,
    Float16 = 16,
    Bfloat16 = 17,
    Float32 = 18,
    Float64 = 19,
    Complex64 = 25,
    Complex128 = 26,
}

/// A dense array in C order (the last dimension changes fastest), in memory of the host or of a
/// GPU; which of both is found out from the pointer. An array of Fortran has its dimensions here in
/// reverse order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UnspoolArray {
    /// Its name; with a null pointer in all arrays of a call they are known by their positions.
    pub name: *const c_char,
    /// The address of its first item; may be null when it has none.
    pub data: *mut c_void,
    /// The type of its items: a value of `unspool_dtype`.
    pub dtype: c_int,
    /// The number of its dimensions; 0 is a scalar.
    pub ndim: c_int,
    /// Its dimensions, `ndim` of them. May be null for a scalar.
    pub shape: *const i64,
}

/// An array that was checked.
pub(crate) struct Given<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) data: *mut u8,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
}

/// The arrays of a call, checked.
///
/// # Safety
/// There are `count` of them, whose pointers are as [`UnspoolArray`] says.
pub(crate) unsafe fn given<'a>(
    arrays: *const UnspoolArray,
    count: usize,
) -> Result<Vec<Given<'a>>, Failure> {
    // SAFETY: the caller's duty.
    let arrays = unsafe { slice(arrays, count, "arrays") }?;
    // SAFETY: as above.
    let given = arrays.iter().enumerate().map(|(index, array)| unsafe { checked(array, index) });
    let given: Vec<_> = given.collect::<Result<_, _>>()?;
    let named = given.iter().filter(|array| array.name.is_some()).count();
    if named != 0 && named != given.len() {
        return Err(Failure::invalid(
            "Some arrays have a name and some have none; give all of them the same way.",
        ));
    }
    Ok(given)
}

/// # Safety
/// The pointers of `array` are as [`UnspoolArray`] says.
unsafe fn checked<'a>(array: &UnspoolArray, index: usize) -> Result<Given<'a>, Failure> {
    let wrong = |why: String| Failure::invalid(format!("Array {index}: {why}"));
    let dtype = Dtype::ALL.iter().find(|dtype| c_int::from(dtype.code()) == array.dtype);
    let Some(dtype) = dtype.cloned() else {
        return Err(wrong(format!("there is no dtype {}.", array.dtype)));
    };
    if !(0..=MOST_DIMENSIONS).contains(&array.ndim) {
        return Err(wrong(format!("it cannot have {} dimensions.", array.ndim)));
    }
    // SAFETY: the caller's duty.
    let shape = unsafe { slice(array.shape, array.ndim as usize, "shape") }?;
    let shape = shape.iter().map(|&extent| u64::try_from(extent));
    let shape: Vec<u64> =
        shape.collect::<Result<_, _>>().map_err(|_| wrong("a dimension is negative.".into()))?;
    let bytes = shape.iter().try_fold(dtype.itemsize(), |n, &extent| n.checked_mul(extent));
    let bytes = if shape.contains(&0) { Some(0) } else { bytes };
    let bytes = bytes.filter(|&bytes| bytes <= isize::MAX as u64);
    let bytes = bytes.ok_or_else(|| wrong("it has more bytes than memory can have.".into()))?;
    if bytes > 0 && array.data.is_null() {
        return Err(wrong("its data is a null pointer.".into()));
    }
    // SAFETY: the caller's duty.
    let name = unsafe { optional(array.name, "name") }?;
    Ok(Given { name, data: array.data.cast(), dtype, shape, bytes })
}

/// Where the items of an array are.
pub(crate) enum Place<'a> {
    Host(&'a mut [u8]),
    Device(DeviceArray),
}

impl Given<'_> {
    /// What a save makes room for.
    pub(crate) fn spec(&self, index: usize) -> RegionSpec {
        let name = self.name.map_or_else(|| index.to_string(), str::to_owned);
        RegionSpec { name, dtype: self.dtype.clone(), shape: self.shape.clone() }
    }

    /// Where its items are.
    ///
    /// # Safety
    /// They are there, and nobody uses them meanwhile but the caller's own work on a stream.
    pub(crate) unsafe fn place(&self) -> Result<Place<'_>, Failure> {
        if self.bytes == 0 {
            return Ok(Place::Host(&mut []));
        }
        match device_of(self.data as u64) {
            Ok(Some(ordinal)) => {
                // SAFETY: the caller's duty.
                let array = unsafe { DeviceArray::dense(ordinal, self.data as u64, self.bytes) };
                Ok(Place::Device(array))
            }
            // A context that is lost does not say what is its memory, which must not be read here.
            Err(error) if error.ends_context() => Err(unspool::Error::from(error).into()),
            // Without a driver, or without any context, there is no memory of a device.
            Ok(None) | Err(_) => {
                // SAFETY: the caller's duty; the length fits, as was checked.
                let bytes =
                    unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes as usize) };
                Ok(Place::Host(bytes))
            }
        }
    }

    /// Refuses an array that `region` does not fit into.
    pub(crate) fn check(&self, region: &Region) -> Result<(), Failure> {
        if self.dtype == region.dtype && self.shape == region.shape {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "The array {:?} is {}{:?}, and was saved as {}{:?}. Nothing is converted: give an \
             array of that type and shape.",
            region.name,
            self.dtype.name(),
            self.shape,
            region.dtype.name(),
            region.shape,
        )))
    }
}

/// The caller's stream on the device of `array`; a null pointer is the legacy default stream.
///
/// # Safety
/// It lives until the work on it is done.
pub(crate) unsafe fn stream_on(
    spool: &Spool,
    array: &DeviceArray,
    stream: *mut c_void,
) -> Result<Stream, Failure> {
    let gpu = spool.gpu_of(array.ordinal())?;
    // SAFETY: the caller's duty.
    let stream = unsafe { Stream::borrow(gpu.context(), stream as usize) };
    Ok(stream.map_err(unspool::Error::from)?)
}

/// Where each of `given` is among `regions`: by name, or all of them by position.
pub(crate) fn places(given: &[Given<'_>], regions: &[Region]) -> Result<Vec<usize>, Failure> {
    let by_name = given.first().is_some_and(|array| array.name.is_some());
    if !by_name && given.len() != regions.len() {
        return Err(Failure::invalid(format!(
            "The checkpoint has {} arrays, and {} were given by position. Give all of them, or \
             some by name.",
            regions.len(),
            given.len()
        )));
    }
    let all = regions.iter().enumerate().map(|(index, region)| (region.name.as_str(), index));
    let named = LazyCell::new(|| all.collect::<HashMap<_, _>>());
    let place = |(index, array): (usize, &Given<'_>)| {
        let Some(name) = array.name else { return Ok(index) };
        // Mostly all are given, in their order.
        if regions.get(index).is_some_and(|region| region.name == name) {
            return Ok(index);
        }
        named.get(name).copied().ok_or_else(|| {
            let names: Vec<&str> = regions.iter().map(|region| region.name.as_str()).collect();
            Failure::invalid(format!("There is no array {name:?}; there are {}.", names.join(", ")))
        })
    };
    given.iter().enumerate().map(place).collect()
}

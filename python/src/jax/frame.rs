//! One call of XLA, looked at with care: sizes of structures first, then what is in them.

use std::ffi::{CString, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;

use unspool::{Dtype, Error, ErrorKind, RegionSpec};

use super::ffi::{
    Api, Buffer, CallFrame, ErrorCreate, Failure, METADATA, MetadataExtension, RunGet, S64, SCALAR,
    Scalar, StreamGet, VERSION, Values,
};

/// A call in which a handler has work to do.
#[derive(Debug)]
pub struct Call<'a> {
    frame: &'a CallFrame,
    api: &'a Api,
}

/// One operand or result of a call.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Its address, on the host or on a device.
    pub data: *mut u8,
    /// The type of its items.
    pub dtype: Dtype,
    /// Its dimensions; XLA lays it out in C order.
    pub shape: Vec<u64>,
}

impl Operand {
    /// Bytes of its items.
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.itemsize()
    }
}

/// What a call of XLA is for.
#[derive(Debug)]
pub enum Asked<'a> {
    /// XLA wants to know what interface the handler is of.
    Metadata(&'a Api, &'a mut MetadataExtension),
    /// There is work.
    Work(Call<'a>),
}

/// Looks at a frame; `None` when it is too small to even hold XLA's functions.
///
/// # Safety
/// `frame` is null, or what XLA passes to a handler, for as long as `'a`.
pub unsafe fn look<'a>(frame: *mut CallFrame) -> Option<Asked<'a>> {
    // SAFETY: the first field says how large the structure is, and is looked at first.
    let size = unsafe { frame.cast::<usize>().as_ref() }?;
    if *size < offset_of!(CallFrame, context) {
        return None;
    }
    // SAFETY: the fields that are read here are within that size.
    let (api, extension) = unsafe { ((*frame).api, (*frame).extensions) };
    // SAFETY: XLA passes its functions in every call, and they never move.
    let api = unsafe { api.as_ref() }.filter(|api| api.struct_size > offset_of!(Api, unused))?;
    // SAFETY: an extension of this kind is this structure, which only this call looks at.
    if let Some(asked) = unsafe { extension.cast::<MetadataExtension>().as_mut() }
        && asked.base.kind == METADATA
    {
        return Some(Asked::Metadata(api, asked));
    }
    if *size < size_of::<CallFrame>() {
        return None;
    }
    // SAFETY: it is large enough, and lives for the call.
    Some(Asked::Work(Call { frame: unsafe { &*frame }, api }))
}

/// Says of which interface the handlers are. XLA takes earlier minor versions for a year or more.
///
/// # Errors
/// When XLA's is another one.
pub fn introduce(api: &Api, asked: &mut MetadataExtension) -> Result<(), Error> {
    let (major, minor) = (api.version.major, api.version.minor);
    if major != VERSION.0 || minor < VERSION.1 {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "This JAX speaks version {major}.{minor} of XLA's interface for foreign functions, \
                 and unspool.jax version {}.{}: install the newest unspool, and a JAX of the time \
                 of that release.",
                VERSION.0, VERSION.1
            ),
        ));
    }
    // SAFETY: XLA lends the structure for this call.
    if let Some(metadata) = unsafe { asked.metadata.as_mut() } {
        (metadata.version.major, metadata.version.minor) = VERSION;
        // Not to be recorded into command buffers: what a call does differs each time.
        metadata.traits = 0;
    }
    Ok(())
}

/// An error as XLA wants it.
pub fn failure(api: &Api, error: &Error) -> *mut Failure {
    let message = CString::new(error.message().replace('\0', " ")).unwrap_or_default();
    let mut arguments = ErrorCreate {
        struct_size: size_of::<ErrorCreate>(),
        extensions: ptr::null_mut(),
        message: message.as_ptr(),
        code: code_of(error.kind()),
    };
    // SAFETY: XLA's own function; it copies the text.
    api.error_create.map_or(ptr::null_mut(), |create| unsafe { create(&raw mut arguments) })
}

/// The code of an error, as `absl::StatusCode` has them.
fn code_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::Full | ErrorKind::TooLarge => 8,
        ErrorKind::Timeout => 4,
        ErrorKind::Corrupt | ErrorKind::Lost | ErrorKind::BoundViolated => 15,
        ErrorKind::Io | ErrorKind::Device => 13,
        _ => 9,
    }
}

impl<'a> Call<'a> {
    /// XLA's functions.
    pub fn api(&self) -> &'a Api {
        self.api
    }

    /// All operands.
    ///
    /// # Errors
    /// When one has items that a spool cannot keep.
    pub fn operands(&self) -> Result<Vec<Operand>, Error> {
        buffers(&self.frame.operands)
    }

    /// All results, whose memory is to be written.
    ///
    /// # Errors
    /// As for [`operands`](Self::operands).
    pub fn results(&self) -> Result<Vec<Operand>, Error> {
        buffers(&self.frame.results)
    }

    /// The attribute `name`, an integer.
    ///
    /// # Errors
    /// When there is none.
    pub fn attribute(&self, name: &str) -> Result<i64, Error> {
        let attributes = &self.frame.attributes;
        let found = (0..usize::try_from(attributes.size).unwrap_or(0)).find_map(|index| {
            // SAFETY: XLA says that there are so many of each, and they live as long as the call.
            let (kind, span, value) = unsafe {
                let span = &**attributes.names.add(index);
                (*attributes.kinds.add(index), span, *attributes.values.add(index))
            };
            // SAFETY: the span has that many bytes.
            let called = unsafe { std::slice::from_raw_parts(span.data.cast::<u8>(), span.len) };
            (called == name.as_bytes() && kind == SCALAR).then_some(value)
        });
        // SAFETY: an attribute of this kind is this structure.
        let scalar = found.and_then(|value| unsafe { value.cast::<Scalar>().as_ref() });
        let value = scalar.filter(|scalar| scalar.dtype == S64).map(|scalar| scalar.value);
        // SAFETY: a value of this type is an integer of 64 bits.
        let number = value.and_then(|value| unsafe { value.cast::<i64>().as_ref() });
        number.copied().ok_or_else(|| odd(&format!("there is no number called {name}")))
    }

    /// The stream of the call, on a GPU.
    ///
    /// # Errors
    /// When XLA does not say.
    pub fn stream(&self) -> Result<usize, Error> {
        let mut arguments = StreamGet {
            struct_size: size_of::<StreamGet>(),
            extensions: ptr::null_mut(),
            context: self.frame.context,
            stream: ptr::null_mut(),
        };
        let get = self.known(offset_of!(Api, stream_get)).then_some(self.api.stream_get).flatten();
        // SAFETY: XLA's own function, with the context of this call.
        let failed = get.is_none_or(|get| !unsafe { get(&raw mut arguments) }.is_null());
        if failed { Err(odd("there is no stream")) } else { Ok(arguments.stream.addr()) }
    }

    /// What tells this execution of a program from all others.
    ///
    /// # Errors
    /// When XLA does not say.
    pub fn run(&self) -> Result<i64, Error> {
        let mut arguments = RunGet {
            struct_size: size_of::<RunGet>(),
            extensions: ptr::null_mut(),
            context: self.frame.context,
            run: 0,
        };
        let get = self.known(offset_of!(Api, run_id_get)).then_some(self.api.run_id_get).flatten();
        // SAFETY: as above.
        let failed = get.is_none_or(|get| !unsafe { get(&raw mut arguments) }.is_null());
        if failed {
            return Err(odd("it does not say which execution this is: JAX is too old"));
        }
        Ok(arguments.run)
    }

    /// Whether XLA has the function at `offset`.
    fn known(&self, offset: usize) -> bool {
        self.api.struct_size >= offset + size_of::<*const c_void>()
    }
}

fn buffers(values: &Values) -> Result<Vec<Operand>, Error> {
    let count = usize::try_from(values.size).unwrap_or(0);
    let each = (0..count).map(|index| {
        // SAFETY: XLA says that there are so many, all of them buffers (there is no other kind),
        // and they live as long as the call.
        let buffer = unsafe { (*values.values.add(index)).as_ref() };
        operand(buffer.ok_or_else(|| odd("an operand is missing"))?)
    });
    each.collect()
}

fn operand(buffer: &Buffer) -> Result<Operand, Error> {
    if buffer.struct_size < size_of::<Buffer>() {
        return Err(odd("a buffer is smaller than it has to be"));
    }
    let rank = usize::try_from(buffer.rank).unwrap_or(0);
    let dims = match rank {
        0 => &[][..],
        // SAFETY: XLA says that there are so many.
        _ => unsafe { std::slice::from_raw_parts(buffer.dims, rank) },
    };
    let shape = dims.iter().map(|&extent| extent.max(0) as u64).collect();
    let dtype = dtype(buffer.dtype).ok_or_else(|| {
        let text = format!(
            "unspool.jax: a state has an array whose type XLA calls {}, whose items do not fill \
             bytes: convert it to another type in the carry.",
            buffer.dtype
        );
        Error::new(ErrorKind::Invalid, text)
    })?;
    Ok(Operand { data: buffer.data.cast(), dtype, shape })
}

/// The dtype that XLA calls `code`, if its items fill bytes.
fn dtype(code: c_int) -> Option<Dtype> {
    Some(match code {
        1 => Dtype::Bool,
        2 => Dtype::Int8,
        3 => Dtype::Int16,
        4 => Dtype::Int32,
        5 => Dtype::Int64,
        6 => Dtype::UInt8,
        7 => Dtype::UInt16,
        8 => Dtype::UInt32,
        9 => Dtype::UInt64,
        10 => Dtype::Float16,
        11 => Dtype::Float32,
        12 => Dtype::Float64,
        15 => Dtype::Complex64,
        16 => Dtype::BFloat16,
        18 => Dtype::Complex128,
        19 => Dtype::Float8E5m2,
        20 => Dtype::Float8E4m3fn,
        23 => Dtype::Float8E4m3b11fnuz,
        24 => Dtype::Float8E5m2fnuz,
        25 => Dtype::Float8E4m3fnuz,
        28 => Dtype::Float8E4m3,
        29 => Dtype::Float8E3m4,
        33 => Dtype::Float8E8m0fnu,
        _ => return None,
    })
}

/// What a save has to make room for.
pub fn specs(operands: &[Operand]) -> Vec<RegionSpec> {
    let spec = |(index, operand): (usize, &Operand)| RegionSpec {
        name: index.to_string(),
        dtype: operand.dtype.clone(),
        shape: operand.shape.clone(),
    };
    operands.iter().enumerate().map(spec).collect()
}

/// XLA has called in a way that the Python half does not ask for.
pub fn odd(what: &str) -> Error {
    let text = format!(
        "unspool.jax: XLA has called in a way that is not known ({what}): the package and its \
         extension, or JAX and jaxlib, are of different versions."
    );
    Error::new(ErrorKind::Invalid, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jax::ffi::{Extension, Metadata, Version};

    fn version(major: c_int, minor: c_int) -> Version {
        Version { struct_size: size_of::<Version>(), extensions: ptr::null_mut(), major, minor }
    }

    /// What a handler answers to an XLA of this version.
    fn answer(major: c_int, minor: c_int) -> Result<(c_int, c_int), Error> {
        let api = Api {
            struct_size: size_of::<Api>(),
            extensions: ptr::null_mut(),
            version: version(major, minor),
            internal: ptr::null(),
            error_create: None,
            unused: [ptr::null(); 3],
            stream_get: None,
            unused_too: [ptr::null(); 11],
            run_id_get: None,
        };
        let size = size_of::<Metadata>();
        let mut metadata = Metadata { struct_size: size, version: version(9, 9), traits: 1 };
        let base = Extension {
            struct_size: size_of::<MetadataExtension>(),
            kind: METADATA,
            next: ptr::null_mut(),
        };
        let mut asked = MetadataExtension { base, metadata: &raw mut metadata };
        introduce(&api, &mut asked)?;
        assert_eq!(metadata.traits, 0);
        Ok((metadata.version.major, metadata.version.minor))
    }

    #[test]
    fn handlers_are_of_the_version_that_is_written_down_here() {
        assert_eq!(answer(0, 3).unwrap(), VERSION);
        assert_eq!(answer(0, 7).unwrap(), VERSION);
    }

    #[test]
    fn another_interface_is_refused_with_both_versions() {
        for (major, minor) in [(1, 0), (0, 2)] {
            let text = answer(major, minor).unwrap_err().message().to_owned();
            assert!(text.contains(&format!("{major}.{minor}")) && text.contains("0.3"), "{text}");
        }
    }

    #[test]
    fn a_frame_that_is_null_or_too_small_is_not_looked_into() {
        // SAFETY: null, and a structure that says how small it is.
        unsafe {
            assert!(look(ptr::null_mut()).is_none());
            let mut small = [16_usize; 4];
            assert!(look(small.as_mut_ptr().cast()).is_none());
        }
    }

    #[test]
    fn every_type_that_has_bytes_is_a_dtype_of_that_size() {
        let sizes: Vec<u64> = (0..40).filter_map(dtype).map(|dtype| dtype.itemsize()).collect();
        assert_eq!(sizes, [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 8, 2, 16, 1, 1, 1, 1, 1, 1, 1, 1]);
    }
}

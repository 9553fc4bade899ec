//! An application on a fake GPU: one stream, arrays of 32-bit floats, and saves and restores of
//! them through a spool with codecs.
#![allow(dead_code)]

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use unspool::gpu::{Context, DeviceArray, DeviceMemory, Stream, StridedLayout};
use unspool::{
    Accumulate, Batched, Codecs, Dtype, On, RegionSpec, RestoreTicket, Settings, Spool, Wait,
};
use unspool_cuda::{Driver, copy};

/// The largest error of the tests' codecs.
pub const BOUND: f64 = 1e-3;
/// Long enough for a slow machine; a wait that reaches it is a fault.
pub const LIMIT: Duration = Duration::from_secs(30);

pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

pub fn wait() -> Wait<'static> {
    Wait::at_most(LIMIT)
}

/// A region of `bytes` bytes of 32-bit floats.
pub fn floats(name: &str, bytes: u64) -> RegionSpec {
    RegionSpec { name: name.to_owned(), dtype: Dtype::Float32, shape: vec![bytes / 4] }
}

/// The largest difference of two arrays.
pub fn error(a: &[u8], b: &[u8]) -> f64 {
    let value = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let pairs = a.chunks_exact(4).zip(b.chunks_exact(4));
    pairs.map(|(a, b)| f64::from((value(a) - value(b)).abs())).fold(0.0, f64::max)
}

pub fn array_of(memory: &DeviceMemory) -> DeviceArray {
    let span = memory.span();
    // SAFETY: the memory of an application lives longer than its copies: it is freed after
    // everything on the device.
    unsafe { DeviceArray::dense(0, span.address(), span.len()) }
}

/// Every other value of `memory`, which holds `bytes`: the array, and the bytes that it has.
pub fn every_other(memory: &DeviceMemory, bytes: &[u8]) -> (DeviceArray, Vec<u8>) {
    let shape = vec![bytes.len() as u64 / 8];
    let layout = StridedLayout { shape, strides: vec![8], itemsize: 4 };
    // SAFETY: as for `array_of`.
    let array = unsafe { DeviceArray::strided(0, memory.span().address(), layout) };
    (array, bytes.chunks_exact(8).flat_map(|pair| pair[..4].to_vec()).collect())
}

/// What `change` makes of the settings of a spool on the GPU, opened.
pub fn open(codec: Codecs, change: impl FnOnce(&mut Settings)) -> Outcome<Spool> {
    let mut settings = Settings {
        device: Some(1 << 20),
        on: On::Cuda(None),
        codec,
        check_order: true,
        timeout: LIMIT,
        ..Settings::default()
    };
    change(&mut settings);
    Ok(Spool::open(settings)?)
}

/// The same with an adaptor in front of it.
pub fn open_batched(
    codec: Codecs,
    most: Accumulate,
    change: impl FnOnce(&mut Settings),
) -> Outcome<Batched> {
    Ok(Batched::new(Arc::new(open(codec, change)?), most))
}

/// The spool behind an adaptor, once nothing waits in front of it.
pub fn settled(batched: &Batched) -> Result<&Spool, unspool::Error> {
    batched.hand_over(&Wait::default())?;
    Ok(batched.spool())
}

/// Hands over what waits, and closes the spool.
pub fn close(batched: &Batched) -> Result<(), unspool::Error> {
    settled(batched)?.close()
}

/// An array for a region, by its index, and the stream that it is ready on.
pub type Given<'a> = (usize, &'a DeviceArray, &'a Stream);

/// A spool, or an adaptor in front of one.
pub trait History {
    fn put(&self, version: i64, specs: Vec<RegionSpec>, arrays: &[Given<'_>]) -> Outcome;
    fn get(&self, version: i64) -> Result<RestoreTicket, unspool::Error>;
}

impl History for Spool {
    fn put(&self, version: i64, specs: Vec<RegionSpec>, arrays: &[Given<'_>]) -> Outcome {
        let mut ticket = self.save(version, specs, &wait())?;
        ticket.put_all(arrays)?;
        Ok(ticket.commit()?)
    }

    fn get(&self, version: i64) -> Result<RestoreTicket, unspool::Error> {
        self.restore(version, &wait())
    }
}

impl History for Batched {
    fn put(&self, version: i64, specs: Vec<RegionSpec>, arrays: &[Given<'_>]) -> Outcome {
        let mut checkpoint = self.spool().checkpoint(version, specs)?;
        arrays
            .iter()
            .try_for_each(|(index, array, stream)| checkpoint.put(*index, array, stream))?;
        Ok(self.save(checkpoint, &wait())?)
    }

    fn get(&self, version: i64) -> Result<RestoreTicket, unspool::Error> {
        self.hand_over_for(version, &wait())?;
        self.spool().restore(version, &wait())
    }
}

/// New memory of the device with these bytes.
pub fn upload(context: &Context, stream: &Stream, bytes: &[u8]) -> Outcome<DeviceMemory> {
    let memory = DeviceMemory::new(context, bytes.len() as u64)?;
    copy::host_to_device(stream, &memory.span(), bytes, LIMIT)?;
    Ok(memory)
}

/// What memory of the device holds.
pub fn download(stream: &Stream, memory: &DeviceMemory) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; memory.span().len() as usize];
    copy::device_to_host(stream, &mut bytes, &memory.span(), LIMIT)?;
    Ok(bytes)
}

/// A stream, an array to save and one to restore into, both as long as the values of a version.
pub struct Application {
    pub context: Context,
    pub stream: Stream,
    pub array: DeviceMemory,
    pub other: DeviceMemory,
    /// The values of a version, as bytes.
    values: fn(i64) -> Vec<u8>,
}

impl Application {
    pub fn with(values: fn(i64) -> Vec<u8>) -> Outcome<Application> {
        let context = Context::new(&Driver::load()?, 0)?;
        let len = values(0).len() as u64;
        let memory = || DeviceMemory::new(&context, len);
        let (array, other) = (memory()?, memory()?);
        Ok(Application { stream: Stream::new(&context)?, array, other, context, values })
    }

    pub fn upload(&self, bytes: &[u8]) -> Outcome<DeviceMemory> {
        upload(&self.context, &self.stream, bytes)
    }

    /// Memory with the values of each version, ready before the device is made to stand.
    pub fn prepared(&self, versions: Range<i64>) -> Outcome<Vec<DeviceMemory>> {
        versions.map(|version| self.upload(&(self.values)(version))).collect()
    }

    /// Saves what `from` holds, and spoils the array that was saved.
    pub fn save_from(&self, spool: &impl History, version: i64, from: &DeviceMemory) -> Outcome {
        copy::device_to_device(&self.stream, &self.array.span(), &from.span())?;
        let specs = vec![floats("u", self.array.span().len())];
        spool.put(version, specs, &[(0, &array_of(&self.array), &self.stream)])?;
        Ok(copy::fill(&self.stream, &self.array.span(), 0xEE)?)
    }

    /// Saves the values of `version`.
    pub fn save(&self, spool: &impl History, version: i64) -> Outcome {
        self.save_from(spool, version, &self.upload(&(self.values)(version))?)
    }

    /// What is restored on the GPU.
    pub fn restore(&self, spool: &impl History, version: i64) -> Outcome<Vec<u8>> {
        copy::fill(&self.stream, &self.other.span(), 0xEE)?;
        let mut ticket = spool.get(version)?;
        ticket.get(0, &array_of(&self.other), &self.stream)?;
        ticket.finish()?;
        download(&self.stream, &self.other)
    }

    /// How far what is restored on the GPU is from what was saved.
    pub fn restored_error(&self, spool: &impl History, version: i64) -> Outcome<f64> {
        Ok(error(&self.restore(spool, version)?, &(self.values)(version)))
    }
}

/// What is restored on the host.
pub fn on_host(spool: &impl History, version: i64, index: usize) -> Outcome<Vec<u8>> {
    let ticket = spool.get(version)?;
    let mut bytes = vec![0; ticket.head().regions[index].bytes as usize];
    ticket.read_into(index, &mut bytes)?;
    ticket.finish()?;
    Ok(bytes)
}

/// A folder like `site-packages` in which the fake driver stands for nvCOMP.
pub struct Packages(tempfile::TempDir);

impl Packages {
    pub fn new() -> Outcome<Packages> {
        let root = tempfile::tempdir()?;
        let folder = root.path().join("nvidia/libnvcomp/lib64");
        std::fs::create_dir_all(&folder)?;
        let fake = std::env::var_os("UNSPOOL_CUDA_DRIVER").ok_or("the fake is the driver")?;
        let fake = std::fs::canonicalize(Path::new(&fake))?;
        std::os::unix::fs::symlink(fake, folder.join("libnvcomp.so.6"))?;
        Ok(Packages(root))
    }

    pub fn folders(&self) -> Vec<PathBuf> {
        vec![self.0.path().to_owned()]
    }
}

/// Changes the byte `at` after the beginning of a stream, which is known by its magic, in the one
/// file below `folder` that has it.
pub fn damage(folder: &Path, magic: &[u8; 4], at: usize, mask: u8) {
    let (mut folders, mut changed) = (vec![folder.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let mut bytes = std::fs::read(entry.path()).expect("a file");
            let Some(begin) = bytes.windows(4).position(|four| four == magic) else { continue };
            bytes[begin + at] ^= mask;
            std::fs::write(entry.path(), bytes).expect("a file that can be written");
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
}

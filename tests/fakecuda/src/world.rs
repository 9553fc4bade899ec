//! The whole state of the fake, under one lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codes::{Code, Outcome};
use crate::faults::Faults;
use crate::memory::Memory;
use crate::rng::Rng;
use crate::settings::Settings;
use crate::stream::{Event, Operation, Place, Stream, Work};

/// The handle of the context of device 0; the others follow.
const FIRST_CONTEXT: u64 = 0x00c0_0000_0000;
/// The first handle of everything else.
const FIRST_HANDLE: u64 = 0x0570_0000_0000;

/// A device and its primary context.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// Reference count of its primary context.
    pub(crate) retained: u32,
    /// Number of contexts that it has had.
    pub(crate) generation: u64,
    /// The error that broke the context.
    pub(crate) broken: Option<Code>,
    /// The legacy default stream.
    pub(crate) legacy: u64,
    /// Whether its thread was started.
    pub(crate) runs: bool,
}

/// Copied bytes, by direction.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) to_device: u64,
    pub(crate) to_host: u64,
    pub(crate) within: u64,
}

/// The whole state of the fake.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) rng: Rng,
    pub(crate) initialized: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: Memory,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) modules: BTreeMap<u64, crate::kernels::Module>,
    pub(crate) faults: Faults,
    /// Whether tests have stopped all devices.
    pub(crate) held: bool,
    pub(crate) moved: Moved,
    pub(crate) executed: u64,
    handles: u64,
}

thread_local! {
    /// The stack of contexts of this thread, the current one last. 0 stands for none.
    static CONTEXTS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The default streams of this thread, by device and generation of its context.
    static OWN_STREAMS: RefCell<BTreeMap<(u32, u64), u64>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Access to the stack of contexts of this thread.
pub(crate) fn contexts<T>(change: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    CONTEXTS.with_borrow_mut(change)
}

impl World {
    pub(crate) fn new(settings: Settings) -> World {
        World {
            rng: Rng::new(settings.seed),
            initialized: false,
            devices: (0..settings.devices).map(|_| Device::default()).collect(),
            memory: Memory::new(settings.devices, settings.memory),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            faults: Faults::parse(&settings.faults),
            held: false,
            moved: Moved::default(),
            executed: 0,
            handles: 0,
            settings,
        }
    }

    /// A new handle.
    pub(crate) fn handle(&mut self) -> u64 {
        self.handles += 1;
        FIRST_HANDLE + 0x10 * self.handles
    }

    pub(crate) fn device(&mut self, ordinal: i32) -> Outcome<&mut Device> {
        let index = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get_mut(index).ok_or(Code::INVALID_DEVICE)
    }

    pub(crate) fn context_of(device: u32) -> u64 {
        FIRST_CONTEXT + 0x100 * u64::from(device)
    }

    /// The device of a living context.
    pub(crate) fn device_of(&self, context: u64) -> Outcome<u32> {
        let lives = |&device: &u32| {
            self.devices[device as usize].retained > 0 && World::context_of(device) == context
        };
        (0..self.devices.len() as u32).find(lives).ok_or(Code::INVALID_CONTEXT)
    }

    /// The device of the current context of this thread, broken or not.
    pub(crate) fn current_device(&self) -> Outcome<u32> {
        let current = contexts(|list| list.last().copied()).unwrap_or(0);
        self.device_of(current)
    }

    /// The device of the current context of this thread, which must not be broken.
    pub(crate) fn current(&self) -> Outcome<u32> {
        let device = self.current_device()?;
        self.works(device)?;
        Ok(device)
    }

    /// An error once the context of the device is broken.
    pub(crate) fn works(&self, device: u32) -> Outcome {
        self.devices[device as usize].broken.map_or(Ok(()), Err)
    }

    /// The stream of a handle, as seen by the current context.
    pub(crate) fn stream(&mut self, handle: u64) -> Outcome<u64> {
        let device = self.current()?;
        match handle {
            0 | 1 => Ok(self.devices[device as usize].legacy),
            2 => Ok(self.own_stream(device)),
            handle => {
                let stream = self.streams.get(&handle).filter(|stream| !stream.destroyed);
                let own = stream.filter(|stream| stream.device == device);
                own.map(|_| handle).ok_or(Code::INVALID_HANDLE)
            }
        }
    }

    /// The default stream of this thread.
    fn own_stream(&mut self, device: u32) -> u64 {
        let key = (device, self.devices[device as usize].generation);
        if let Some(stream) = OWN_STREAMS.with_borrow(|streams| streams.get(&key).copied()) {
            return stream;
        }
        let handle = self.add_stream(device, true);
        OWN_STREAMS.with_borrow_mut(|streams| streams.insert(key, handle));
        handle
    }

    pub(crate) fn add_stream(&mut self, device: u32, blocking: bool) -> u64 {
        let handle = self.handle();
        self.streams.insert(handle, Stream::new(device, blocking));
        handle
    }

    /// Enqueues work on a stream, and returns its place.
    pub(crate) fn enqueue(&mut self, handle: u64, work: Work) -> Outcome<Place> {
        let after = self.barrier(handle);
        let stream = self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        if stream.capture.is_some() {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        stream.queue.push_back(Operation { work, after, ready: None, done: 0 });
        stream.enqueued += 1;
        Ok((handle, stream.enqueued))
    }

    /// The places that work on a stream waits for by the rules of the legacy default stream: that
    /// stream waits for all blocking streams, and they wait for it.
    fn barrier(&self, handle: u64) -> Vec<Place> {
        let Some(stream) = self.streams.get(&handle) else {
            return Vec::new();
        };
        let legacy = self.devices[stream.device as usize].legacy;
        let (device, is_legacy) = (stream.device, handle == legacy);
        let concerns = |other: u64, theirs: &Stream| match is_legacy {
            true => theirs.device == device && theirs.blocking && other != legacy,
            false => stream.blocking && other == legacy,
        };
        let busy = self.streams.iter().filter(|(_, theirs)| theirs.done < theirs.enqueued);
        let list = busy.filter(|&(&other, theirs)| concerns(other, theirs));
        list.map(|(&other, theirs)| (other, theirs.enqueued)).collect()
    }

    /// Whether the work at a place is done or given up.
    pub(crate) fn is_over(&self, (stream, upto): Place) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.done >= upto)
    }

    /// The places of all work enqueued on a device.
    pub(crate) fn work_of(&self, device: u32) -> Vec<Place> {
        let own = self.streams.iter().filter(|(_, stream)| stream.device == device);
        let busy = own.filter(|(_, stream)| !stream.queue.is_empty());
        busy.map(|(&handle, stream)| (handle, stream.enqueued)).collect()
    }

    /// Breaks the context of a device permanently: enqueued work is given up.
    pub(crate) fn break_context(&mut self, device: u32, code: Code) {
        self.devices[device as usize].broken.get_or_insert(code);
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.give_up();
        }
    }

    /// Starts the context of a device.
    pub(crate) fn begin_context(&mut self, device: u32) {
        let legacy = self.add_stream(device, true);
        let entry = &mut self.devices[device as usize];
        entry.generation += 1;
        entry.legacy = legacy;
        entry.broken = None;
    }

    /// Ends the context of a device with all that belongs to it.
    pub(crate) fn end_context(&mut self, device: u32) {
        for stream in self.streams.values_mut().filter(|stream| stream.device == device) {
            stream.give_up();
        }
        self.streams.retain(|_, stream| stream.device != device);
        self.events.retain(|_, event| event.device != device);
        self.modules.retain(|_, module| module.device != device);
        self.memory.free_all_of(device);
    }

    /// The event of a handle.
    pub(crate) fn event(&mut self, handle: u64) -> Outcome<&mut Event> {
        let device = self.events.get(&handle).ok_or(Code::INVALID_HANDLE)?.device;
        self.works(device)?;
        self.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Records an event after everything enqueued on the stream.
    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Outcome {
        let device = self.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?.device;
        if self.event(event)?.device != device {
            return Err(Code::INVALID_HANDLE);
        }
        let recording = Arc::default();
        self.enqueue(stream, Work::Record(Arc::clone(&recording)))?;
        self.event(event)?.latest = Some(recording);
        Ok(())
    }
}

//! What XLA calls in the course of a loop: five functions, for arrays of the host and of a GPU.
//!
//! A forward pass is `begin`, a `save` for each state, `end`; a backward pass `rewind` and as many
//! times `restore`. XLA calls from threads of its own too. Only `begin` may need Python, to ask
//! what earlier calls have left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use unspool::gpu::{DeviceArray, Gpu, Stream, device_of};
use unspool::{Error, ErrorKind, Then, Use, Wait};

use super::ffi::{CallFrame, Failure};
use super::frame::{self, Asked, Call, Operand, odd, specs};
use super::histories::{self, Execution, Phase, Place};
use super::{leftovers, loops};
use crate::call::{restore_pieces, save_pieces};
use crate::copies::Copies;
use crate::front::Front;
use crate::panics;
use crate::piece::ArrayPiece;

/// The bytes of a token.
const TOKEN: usize = 8;

/// Defines a function that XLA calls for the host and one for a GPU.
macro_rules! handlers {
    ($($work:ident: $host:ident, $cuda:ident;)*) => {
        $(
            #[doc = concat!("XLA's `", stringify!($work), "` for arrays of the host.")]
            ///
            /// # Safety
            /// XLA passes a frame of its interface.
            pub unsafe extern "C" fn $host(frame: *mut CallFrame) -> *mut Failure {
                // SAFETY: the caller's promise.
                unsafe { entered(frame, false, $work) }
            }

            #[doc = concat!("XLA's `", stringify!($work), "` for arrays of a GPU.")]
            ///
            /// # Safety
            /// XLA passes a frame of its interface.
            pub unsafe extern "C" fn $cuda(frame: *mut CallFrame) -> *mut Failure {
                // SAFETY: the caller's promise.
                unsafe { entered(frame, true, $work) }
            }
        )*

        /// The name of each function, and where it is, for the host and for a GPU.
        pub fn all() -> Vec<(&'static str, usize, usize)> {
            vec![$((
                concat!("unspool_", stringify!($work)),
                $host as *const () as usize,
                $cuda as *const () as usize,
            )),*]
        }
    };
}

handlers! {
    begin: begin_host, begin_cuda;
    save: save_host, save_cuda;
    end: end_host, end_cuda;
    rewind: rewind_host, rewind_cuda;
    restore: restore_host, restore_cuda;
}

/// Runs `work` on a call; its error and its panic become an error of XLA.
///
/// # Safety
/// `frame` is what XLA has passed.
unsafe fn entered(
    frame: *mut CallFrame,
    on_gpu: bool,
    work: fn(&Pass<'_>) -> Result<(), Error>,
) -> *mut Failure {
    // SAFETY: the caller's promise.
    let Some(asked) = (unsafe { frame::look(frame) }) else { return ptr::null_mut() };
    let (api, done) = match asked {
        Asked::Metadata(api, asked) => (api, frame::introduce(api, asked)),
        Asked::Work(call) => {
            let run = || Pass::of(&call, on_gpu).and_then(|pass| work(&pass));
            let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
                Err(Error::new(ErrorKind::Invalid, panics::text(payload.as_ref())))
            });
            if let (Err(_), Ok(run)) = (&done, call.run()) {
                histories::failed(run);
            }
            (call.api(), done)
        }
    };
    done.map_or_else(|error| frame::failure(api, &error), |()| ptr::null_mut())
}

/// A call with its arrays.
struct Pass<'a> {
    call: &'a Call<'a>,
    operands: Vec<Operand>,
    results: Vec<Operand>,
    gpu: Option<OnGpu>,
}

/// Where a call on a GPU enqueues its work.
struct OnGpu {
    device: u32,
    stream: usize,
    place: Place,
}

impl Pass<'_> {
    fn of<'a>(call: &'a Call<'a>, on_gpu: bool) -> Result<Pass<'a>, Error> {
        let (operands, results) = (call.operands()?, call.results()?);
        let token = results.first().filter(|token| token.bytes() == TOKEN as u64);
        let token = token.filter(|token| !token.data.is_null());
        let token = token.ok_or_else(|| odd("there is no token"))?;
        let gpu = match on_gpu {
            true => Some(OnGpu::of(call, token)?),
            false => None,
        };
        Ok(Pass { call, operands, results, gpu })
    }

    fn device(&self) -> Option<u32> {
        self.gpu.as_ref().map(|gpu| gpu.device)
    }

    fn execution(&self) -> Execution {
        let thread = leftovers::is_of_python().then(|| std::thread::current().id());
        Execution { run: self.call.run().ok(), thread }
    }

    fn place(&self) -> Option<Place> {
        self.gpu.as_ref().map(|gpu| gpu.place)
    }

    /// The token, which is operand and result at once.
    fn token(&self) -> Result<&Operand, Error> {
        let given = self.operands.first().ok_or_else(|| odd("there is no token"))?;
        let same = given.data == self.results[0].data && given.bytes() == TOKEN as u64;
        if same { Ok(given) } else { Err(odd("the token was moved")) }
    }

    /// The arrays of a state, as copies need them.
    fn pieces(&self, arrays: &[Operand]) -> Vec<ArrayPiece> {
        let piece = |array: &Operand| match &self.gpu {
            None => ArrayPiece::dense_host(array.data, array.bytes() as usize),
            Some(gpu) => {
                let address = array.data.addr() as u64;
                ArrayPiece::dense_device(gpu.device, address, array.bytes(), gpu.stream)
            }
        };
        arrays.iter().map(piece).collect()
    }

    /// The number in the token of a call in `phase`.
    fn number(&self, phase: fn(Option<Place>) -> Phase, front: &Front) -> Result<u64, Error> {
        match self.place().and_then(|place| histories::only(phase(Some(place)))) {
            Some(number) => Ok(number),
            None => self.read_token(front),
        }
    }

    /// The number in the token; on a GPU once the work before it is done.
    fn read_token(&self, front: &Front) -> Result<u64, Error> {
        let token = self.token()?;
        let mut bytes = [0; TOKEN];
        match &self.gpu {
            // SAFETY: XLA lends the operand for the call, and it has this size.
            None => unsafe { ptr::copy_nonoverlapping(token.data, bytes.as_mut_ptr(), TOKEN) },
            Some(gpu) => {
                let (device, stream) = gpu.of_spool(front)?;
                device.read_small(&mut bytes, &gpu.array(token), &stream)?;
            }
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes `number` into the token; on a GPU this is enqueued.
    fn write_token(&self, number: u64, front: &Front) -> Result<(), Error> {
        let (token, bytes) = (&self.results[0], number.to_le_bytes());
        match &self.gpu {
            // SAFETY: XLA lends the result for the call, to be written, and it has this size.
            None => unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), token.data, TOKEN) },
            Some(gpu) => {
                let (device, stream) = gpu.of_spool(front)?;
                device.write_small(&gpu.array(token), &bytes, &stream)?;
            }
        }
        Ok(())
    }
}

impl OnGpu {
    fn of(call: &Call<'_>, token: &Operand) -> Result<OnGpu, Error> {
        let device = device_of(token.data.addr() as u64)?;
        let device = device.ok_or_else(|| odd("the memory is not that of a GPU"))?;
        let place = Place { run: call.run()?, site: call.attribute("site")?, device };
        // 0 is the legacy default stream, which the array libraries call 1.
        let stream = call.stream()?.max(crate::array::LEGACY_STREAM);
        Ok(OnGpu { device, stream, place })
    }

    fn array(&self, operand: &Operand) -> DeviceArray {
        // SAFETY: XLA reuses the memory only in work that it enqueues later on the same stream.
        unsafe { DeviceArray::dense(self.device, operand.data.addr() as u64, operand.bytes()) }
    }

    fn of_spool(&self, front: &Front) -> Result<(Gpu, Stream), Error> {
        let gpu = front.spool().gpu_of(self.device)?;
        // SAFETY: the stream is XLA's, which outlives the call.
        let stream = unsafe { Stream::borrow(gpu.context(), self.stream) }?;
        Ok((gpu, stream))
    }
}

/// A forward pass begins: the result is a token of its own.
fn begin(pass: &Pass<'_>) -> Result<(), Error> {
    let front = loops::find(pass.call.attribute("loop")?)?.front(pass.device())?;
    let execution = pass.execution();
    if histories::is_time_to_tidy(execution.run) {
        leftovers::tidy_within(execution);
    }
    let number = histories::begin(Arc::clone(&front), pass.place(), execution);
    pass.write_token(number, &front).inspect_err(|_| histories::give_up(number))
}

/// Saves the operands after the token.
fn save(pass: &Pass<'_>) -> Result<(), Error> {
    let this = loops::find(pass.call.attribute("loop")?)?;
    let number = pass.number(Phase::Written, &*this.front(pass.device())?)?;
    let front = histories::written(number)?;
    let arrays = &pass.operands[1..];
    let (pieces, version) = (pass.pieces(arrays), histories::next_version());
    let copies = Copies::new(front.spool(), &pieces)?;
    // SAFETY: XLA lends the operands for the call, and reuses the memory of a GPU only in work that
    // it enqueues later on the same stream.
    let saved = unsafe {
        save_pieces(
            front.spool(),
            copies,
            version,
            specs(arrays),
            this.codec.as_ref(),
            &Wait::default(),
        )
    };
    let noted = saved.and_then(|_| {
        histories::saved(number, version).inspect_err(|_| drop(front.spool().discard(version)))
    });
    noted.map_err(|error| {
        let others = histories::unread(&front, number);
        histories::give_up(number);
        advised(error, others)
    })
}

/// The forward pass is over.
fn end(pass: &Pass<'_>) -> Result<(), Error> {
    let front = loops::find(pass.call.attribute("loop")?)?.front(pass.device())?;
    histories::end(pass.number(Phase::Written, &front)?)
}

/// A backward pass begins: says in which order it restores.
fn rewind(pass: &Pass<'_>) -> Result<(), Error> {
    let front = loops::find(pass.call.attribute("loop")?)?.front(pass.device())?;
    let number = pass.read_token(&front)?;
    let (front, versions) = histories::rewind(number, pass.place(), pass.execution())?;
    let uses = versions.into_iter().rev().map(|version| Use { version, then: Then::Ends });
    match front.spool().expect_uses(uses) {
        // It is advice: without it, states are read when their turn comes.
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::Closed => {
            histories::give_up(number);
            Err(error)
        }
        Err(_) => Ok(()),
    }
}

/// Restores the last state that was not restored yet into the results after the token.
fn restore(pass: &Pass<'_>) -> Result<(), Error> {
    let this = loops::find(pass.call.attribute("loop")?)?;
    let number = pass.number(Phase::Read, &*this.front(pass.device())?)?;
    let (front, version) = histories::next(number)?;
    let arrays = &pass.results[1..];
    let pieces = pass.pieces(arrays);
    let same = |ticket: &unspool::RestoreTicket| {
        let regions = &ticket.head().regions;
        let same = |(region, array): (&unspool::Region, &Operand)| {
            region.dtype == array.dtype && region.shape == array.shape
        };
        Ok(regions.len() == arrays.len() && regions.iter().zip(arrays).all(same))
    };
    let copies = Copies::new(front.spool(), &pieces)?;
    let at: Vec<usize> = (0..arrays.len()).collect();
    // SAFETY: as for `save`, and results are XLA's to be written.
    let restored =
        unsafe { restore_pieces(front.spool(), copies, version, &at, &Wait::default(), same) };
    restored
        .and_then(|done| done.ok_or_else(|| odd("a state has other arrays than were saved")))
        .inspect_err(|_| histories::give_up(number))?;
    histories::restored(number, pass.call.run().ok());
    discarded(&front, version)
}

/// Discards what nobody reads again; what was announced to be read back once is gone.
fn discarded(front: &Front, version: i64) -> Result<(), Error> {
    match front.spool().discard(version) {
        Err(error) if !matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Discarded) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Says, where there was no room, what takes it.
fn advised(error: Error, unread: usize) -> Error {
    let full = matches!(error.kind(), ErrorKind::Full | ErrorKind::TooLarge | ErrorKind::Timeout);
    if !full || unread == 0 {
        return error;
    }
    let text = format!(
        "{} The spool still has what {unread} other forward passes have saved, whose backward \
         passes have not run: unspool.jax.forget() gives that up.",
        error.message()
    );
    Error::new(error.kind(), text)
}

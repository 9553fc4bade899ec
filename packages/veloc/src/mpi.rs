//! The ranks of a communicator of MPI, whichever MPI the program uses: its functions are found in
//! the process when they are needed, so that one library serves all of them.
//!
//! Three ways of passing handles are known: those of Open MPI and of the standard ABI of MPI 5 are
//! pointers, those of MPICH and its kin are numbers of 32 bits. All of them fit into a register, so
//! handles are passed as numbers of 64 bits here, of which MPICH looks at the lower half.
//!
//! Only calls that return at once are used, so that every wait for another rank has an end. A rank
//! that waits for long tells rank 0 that it is there; so rank 0 knows who is not, and tells those
//! that wait.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unspool_restart::{Ranks, Unanswered};

/// A handle of MPI, as it is passed in a register.
type Handle = usize;

/// `MPI_BYTE` of MPICH and of the standard ABI; Open MPI has an address for it.
const BYTE_OF_MPICH: Handle = 0x4c00_010d;
const BYTE_OF_STANDARD: Handle = 0x247;

/// Handles of the standard ABI that are predefined are numbers up to this one.
const PREDEFINED: Handle = 0xfff;

/// Tags of the messages in which ranks say that they wait, and rank 0 who does.
const HERE: c_int = 1;
const MISSING: c_int = 2;

/// How long rank 0 waits for those that are about to say that they are there.
const GRACE: Duration = Duration::from_secs(1);

/// Room for an `MPI_Status`, which has 20 to 32 bytes.
type Status = [u64; 16];

type Flag = unsafe extern "C" fn(*mut c_int) -> c_int;
type OfComm = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type Idup = unsafe extern "C" fn(Handle, *mut Handle, *mut Handle) -> c_int;
type Test = unsafe extern "C" fn(*mut Handle, *mut c_int, *mut Status) -> c_int;
type Free = unsafe extern "C" fn(*mut Handle) -> c_int;
type Iallgather = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Handle,
    *mut c_void,
    c_int,
    Handle,
    Handle,
    *mut Handle,
) -> c_int;

type Isend =
    unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;
type Irecv =
    unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle) -> c_int;

/// The functions that are used.
#[derive(Clone, Copy)]
struct Calls {
    finalized: Flag,
    test: Test,
    iallgather: Iallgather,
    isend: Isend,
    irecv: Irecv,
    free: Free,
}

/// The ranks of a communicator, over one of its own.
pub(crate) struct Mpi {
    calls: Calls,
    comm: Handle,
    byte: Handle,
    rank: u32,
    size: u32,
    /// The calls in which all ranks gave something.
    gathered: AtomicU64,
}

/// A message to or from one rank. It is never freed, as MPI may use it: there are a few for each
/// wait that was long.
struct Letter {
    request: Handle,
    bytes: Vec<u8>,
}

/// What MPI writes to while a call is on its way. It stays in place until that is over.
struct Flight {
    request: Handle,
    comm: Handle,
    mine: Vec<u8>,
    all: Vec<u8>,
}

impl Mpi {
    /// The ranks of `comm`, on all of them.
    ///
    /// # Errors
    /// Why there are none, in a sentence.
    ///
    /// # Safety
    /// `comm` is a communicator of the MPI that the program uses.
    pub(crate) unsafe fn of(comm: Handle, timeout: Duration) -> Result<Mpi, String> {
        let (mut begun, mut over, mut rank, mut size) = (0, 0, 0, 1);
        let rank_of = symbol(c"MPI_Comm_rank")?;
        // SAFETY: these are the functions of MPI with these names; see the module for handles.
        let (initialized, finalized, comm_rank, comm_size, idup, calls) = unsafe {
            let calls = Calls {
                finalized: std::mem::transmute::<*mut c_void, Flag>(symbol(c"MPI_Finalized")?),
                test: std::mem::transmute::<*mut c_void, Test>(symbol(c"MPI_Test")?),
                iallgather: std::mem::transmute::<*mut c_void, Iallgather>(symbol(
                    c"MPI_Iallgather",
                )?),
                isend: std::mem::transmute::<*mut c_void, Isend>(symbol(c"MPI_Isend")?),
                irecv: std::mem::transmute::<*mut c_void, Irecv>(symbol(c"MPI_Irecv")?),
                free: std::mem::transmute::<*mut c_void, Free>(symbol(c"MPI_Comm_free")?),
            };
            (
                std::mem::transmute::<*mut c_void, Flag>(symbol(c"MPI_Initialized")?),
                calls.finalized,
                std::mem::transmute::<*mut c_void, OfComm>(rank_of),
                std::mem::transmute::<*mut c_void, OfComm>(symbol(c"MPI_Comm_size")?),
                std::mem::transmute::<*mut c_void, Idup>(symbol(c"MPI_Comm_idup")?),
                calls,
            )
        };
        // SAFETY: these two may be called at any time.
        unsafe { (initialized(&raw mut begun), finalized(&raw mut over)) };
        if begun == 0 || over != 0 {
            return Err("MPI is not initialised: call MPI_Init before VELOC_Init, and \
                        VELOC_Finalize before MPI_Finalize."
                .to_owned());
        }
        let byte = byte_of(rank_of, comm);
        let mut flight = Box::new(Flight { request: 0, comm: 0, mine: vec![], all: vec![] });
        // SAFETY: the caller's communicator; what is written to lives in the box.
        let codes = unsafe {
            [
                comm_rank(comm, &raw mut rank),
                comm_size(comm, &raw mut size),
                idup(comm, &raw mut flight.comm, &raw mut flight.request),
            ]
        };
        if codes != [0; 3] {
            return Err(format!("MPI refused the communicator, with codes {codes:?}."));
        }
        let flight = land(&calls, flight, timeout, || {}).map_err(|why| match why {
            Unanswered::Failed(why) => why,
            Unanswered::Late(_) => format!(
                "After {:.0} s a rank has not called VELOC_Init: all ranks of the communicator \
                 have to.",
                timeout.as_secs_f64()
            ),
        })?;
        let (rank, size, gathered) = (rank as u32, size as u32, AtomicU64::new(0));
        Ok(Mpi { calls, comm: flight.comm, byte, rank, size, gathered })
    }

    /// Gives every rank as many bytes.
    fn gather(&self, mine: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, Unanswered> {
        let count = c_int::try_from(mine.len())
            .map_err(|_| Unanswered::Failed("the message is too long.".to_owned()))?;
        let all = vec![0; mine.len() * self.size as usize];
        let mut flight = Box::new(Flight { request: 0, comm: 0, mine, all });
        // SAFETY: both buffers have that many bytes, for each rank, and live in the box.
        let code = unsafe {
            (self.calls.iallgather)(
                flight.mine.as_ptr().cast(),
                count,
                self.byte,
                flight.all.as_mut_ptr().cast(),
                count,
                self.byte,
                self.comm,
                &raw mut flight.request,
            )
        };
        if code != 0 {
            return Err(Unanswered::Failed(format!("MPI_Iallgather returned {code}.")));
        }
        let number = self.gathered.fetch_add(1, Ordering::Relaxed);
        let waits = || {
            if self.rank != 0 {
                let _ = self.send(0, HERE, number.to_le_bytes().to_vec());
            }
        };
        land(&self.calls, flight, timeout, waits).map(|flight| flight.all).map_err(
            |why| match why {
                Unanswered::Late(_) if self.rank == 0 => Unanswered::Late(self.missing(number)),
                Unanswered::Late(_) => Unanswered::Late(self.said_missing(timeout)),
                failed => failed,
            },
        )
    }

    /// Hands a message to MPI; `None` when it refused.
    fn send(&self, to: u32, tag: c_int, bytes: Vec<u8>) -> Option<&'static mut Letter> {
        let letter = Box::leak(Box::new(Letter { request: 0, bytes }));
        let (at, count) = (letter.bytes.as_ptr().cast(), letter.bytes.len() as c_int);
        let (calls, to) = (&self.calls, to as c_int);
        // SAFETY: the bytes are there for ever.
        let code = unsafe {
            (calls.isend)(at, count, self.byte, to, tag, self.comm, &raw mut letter.request)
        };
        (code == 0).then_some(letter)
    }

    /// Room for a message of another rank; `None` when MPI refused.
    fn receive(&self, from: u32, tag: c_int, bytes: usize) -> Option<&'static mut Letter> {
        let letter = Box::leak(Box::new(Letter { request: 0, bytes: vec![0; bytes] }));
        let (at, count) = (letter.bytes.as_mut_ptr().cast(), bytes as c_int);
        let (calls, from) = (&self.calls, from as c_int);
        // SAFETY: the room is there for ever, and nobody looks at it before the message is there.
        let code = unsafe {
            (calls.irecv)(at, count, self.byte, from, tag, self.comm, &raw mut letter.request)
        };
        (code == 0).then_some(letter)
    }

    /// Whether a message that is expected has come, or MPI has done with one that was sent.
    fn is_there(&self, letter: &mut Letter) -> bool {
        let (mut done, mut status) = (0, Status::default());
        // SAFETY: the request of a message that is on its way.
        let code =
            unsafe { (self.calls.test)(&raw mut letter.request, &raw mut done, &raw mut status) };
        code == 0 && done != 0
    }

    /// The ranks that have not said that they wait in this call, at rank 0, which tells the others.
    fn missing(&self, number: u64) -> Vec<u32> {
        let begun = Instant::now();
        let mut there = vec![0_u8; self.size as usize];
        there[0] = 1;
        let expect = |rank| Some((rank, self.receive(rank, HERE, size_of::<u64>())?));
        let mut expected: Vec<_> = (1..self.size).filter_map(expect).collect();
        while !expected.is_empty() && begun.elapsed() < GRACE {
            let mut left = Vec::new();
            for (rank, letter) in expected {
                if !self.is_there(letter) {
                    left.push((rank, letter));
                } else if letter.bytes == number.to_le_bytes() {
                    there[rank as usize] = 1;
                } else {
                    // It waited for long in an earlier call too.
                    left.extend(expect(rank));
                }
            }
            expected = left;
            thread::sleep(Duration::from_millis(1));
        }
        let heard = (1..self.size).filter(|rank| there[*rank as usize] == 1);
        let send = |rank| self.send(rank, MISSING, there.clone());
        let (mut sent, begun): (Vec<_>, _) = (heard.filter_map(send).collect(), Instant::now());
        while !sent.is_empty() && begun.elapsed() < GRACE {
            sent.retain_mut(|letter| !self.is_there(letter));
            thread::sleep(Duration::from_millis(1));
        }
        (1..self.size).filter(|rank| there[*rank as usize] == 0).collect()
    }

    /// The ranks that rank 0 names; itself, when it says nothing.
    fn said_missing(&self, timeout: Duration) -> Vec<u32> {
        let (begun, patience) = (Instant::now(), timeout / 10 + 2 * GRACE);
        let Some(letter) = self.receive(0, MISSING, self.size as usize) else { return vec![] };
        while !self.is_there(letter) {
            if begun.elapsed() >= patience {
                return vec![0];
            }
            thread::sleep(Duration::from_millis(1));
        }
        (0..self.size).filter(|rank| letter.bytes[*rank as usize] == 0).collect()
    }
}

/// Waits until a call is done. What is late stays in place for ever, as MPI may write to it.
/// `waits` is called when a quarter of the time is over.
fn land(
    calls: &Calls,
    flight: Box<Flight>,
    timeout: Duration,
    waits: impl FnOnce(),
) -> Result<Box<Flight>, Unanswered> {
    let begun = Instant::now();
    let mut waits = Some(waits);
    let flight = Box::leak(flight);
    let (mut done, mut looks, mut status) = (0, 0_u32, Status::default());
    loop {
        // SAFETY: the request of a call that is on its way.
        let code = unsafe { (calls.test)(&raw mut flight.request, &raw mut done, &raw mut status) };
        if code != 0 {
            return Err(Unanswered::Failed(format!("MPI_Test returned {code}.")));
        }
        if done != 0 {
            // SAFETY: it was leaked above, and MPI has done with it.
            return Ok(unsafe { Box::from_raw(flight) });
        }
        let waited = begun.elapsed();
        if waited >= timeout {
            return Err(Unanswered::Late(Vec::new()));
        }
        if waited >= timeout / 4
            && let Some(waits) = waits.take()
        {
            waits();
        }
        looks += 1;
        if looks < 1000 { thread::yield_now() } else { thread::sleep(Duration::from_micros(50)) }
    }
}

impl Ranks for Mpi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn all_gather(&self, mine: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
        let lengths = self.gather((mine.len() as u64).to_le_bytes().to_vec(), timeout)?;
        let (lengths, _) = lengths.as_chunks::<8>();
        let lengths: Vec<usize> =
            lengths.iter().map(|bytes| u64::from_le_bytes(*bytes) as usize).collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let mut padded = mine.to_vec();
        padded.resize(most.max(1), 0);
        let all = self.gather(padded, timeout)?;
        let parts = all.chunks(most.max(1)).zip(lengths);
        Ok(parts.map(|(part, length)| part[..length].to_vec()).collect())
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let mut over = 1;
        // SAFETY: it may be called at any time, and the communicator is our own.
        unsafe {
            if (self.calls.finalized)(&raw mut over) == 0 && over == 0 {
                (self.calls.free)(&raw mut self.comm);
            }
        }
    }
}

/// `MPI_BYTE` of the MPI that has this function and gave this communicator.
fn byte_of(function: *mut c_void, comm: Handle) -> Handle {
    if library_of(function).starts_with(b"libmpi_abi") || comm <= PREDEFINED {
        return BYTE_OF_STANDARD;
    }
    // SAFETY: a name that ends with a zero byte.
    let byte = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_byte".as_ptr()) };
    if byte.is_null() { BYTE_OF_MPICH } else { byte as Handle }
}

/// The name of the file that has this function.
fn library_of(function: *mut c_void) -> Vec<u8> {
    // SAFETY: a plain record, for which zeros are a value.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function, and room for what is found.
    let is_found = unsafe { libc::dladdr(function, &raw mut found) } != 0;
    if !is_found || found.dli_fname.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader's own text, which ends with a zero byte.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
}

fn symbol(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        let name = name.to_string_lossy();
        return Err(format!(
            "This process has no {name}: link the program with MPI, or use VELOC_Init_single."
        ));
    }
    Ok(found)
}

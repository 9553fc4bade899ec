//! The loops of which compiled programs have the numbers: into which spool, and how encoded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use unspool::{Codecs, Error, ErrorKind};

use crate::front::Front;

/// Where a loop keeps its states. Programs that are compiled keep its number for as long as JAX
/// keeps them, which must not keep a spool open.
#[derive(Debug)]
pub struct Loop {
    /// One spool, or one for each GPU.
    fronts: Vec<Weak<Front>>,
    /// In place of the spools' codecs.
    pub codec: Option<Codecs>,
}

#[derive(Debug, Default)]
struct Loops {
    known: HashMap<i64, Arc<Loop>>,
    last: i64,
}

static LOOPS: Mutex<Option<Loops>> = Mutex::new(None);

/// Remembers a loop; its number.
pub fn remember(fronts: &[Arc<Front>], codec: Option<Codecs>) -> i64 {
    let mut loops = LOOPS.lock().unwrap_or_else(PoisonError::into_inner);
    let loops = loops.get_or_insert_with(Loops::default);
    loops.known.retain(|_, each| each.fronts.iter().any(|front| front.strong_count() > 0));
    loops.last += 1;
    let fronts = fronts.iter().map(Arc::downgrade).collect();
    loops.known.insert(loops.last, Arc::new(Loop { fronts, codec }));
    loops.last
}

/// The loop with this number.
///
/// # Errors
/// When its spool was closed and dropped.
pub fn find(number: i64) -> Result<Arc<Loop>, Error> {
    let loops = LOOPS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = loops.as_ref().and_then(|loops| loops.known.get(&number).cloned());
    found.ok_or_else(gone)
}

impl Loop {
    /// Whether what a codec does to a value depends on the rest of its state.
    pub fn depends_on_states(&self) -> bool {
        match &self.codec {
            Some(codec) => codec.depend_on_regions(),
            None => {
                let mut fronts = self.fronts.iter().filter_map(Weak::upgrade);
                fronts.any(|front| front.spool().codecs().depend_on_regions())
            }
        }
    }

    /// The spool for arrays of GPU `device`, or of the host.
    ///
    /// # Errors
    /// When none is for that GPU, or it was closed.
    pub fn front(&self, device: Option<u32>) -> Result<Arc<Front>, Error> {
        let fronts: Vec<Arc<Front>> = self.fronts.iter().filter_map(Weak::upgrade).collect();
        let on = |front: &Arc<Front>| front.spool().gpu().map(unspool::gpu::Gpu::ordinal);
        let exact = fronts.iter().find(|front| on(front) == device);
        let chosen =
            exact.or_else(|| fronts.iter().find(|front| device.is_none() || on(front).is_none()));
        match (chosen, device) {
            (Some(front), _) if front.spool().is_closed() => Err(gone()),
            (Some(front), _) => Ok(Arc::clone(front)),
            (None, Some(device)) if !fronts.is_empty() => Err(elsewhere(device)),
            (None, _) => Err(gone()),
        }
    }
}

fn gone() -> Error {
    let text = "unspool.jax: the spool that this compiled function names was closed. A function \
                under jax.jit keeps the spool that it was traced with: make the spool an argument \
                of it (static_argnames), or compile it anew.";
    Error::new(ErrorKind::Closed, text)
}

fn elsewhere(device: u32) -> Error {
    let text = format!(
        "unspool.jax: this loop runs on CUDA device {device}, and its spool is for another one: \
         give one spool for each GPU, such as \
         spool=[Spool(..., device=\"cuda:0\"), Spool(..., device=\"cuda:1\")]."
    );
    Error::new(ErrorKind::WrongDevice, text)
}

//! What is known of the datatypes of the program: how large a value is, of which type, and whether
//! the values lie one after the other, so that they can be looked at where they are.

use std::collections::HashMap;

use unspool_messages::Values;
use unspool_messages::hash::Quickly;

use crate::abi::Handle;
use crate::mpi::{Mpi, TypeLayout};

/// Datatypes that are remembered at most; beyond, all are asked for again.
const MOST: usize = 4096;
/// Bytes of the largest datatype of which it is found out whether its bytes are in order.
const LARGEST: i64 = 1 << 24;
/// How deep datatypes of datatypes are followed.
const DEEPEST: u32 = 8;

/// A datatype, as far as it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Datatype {
    pub(crate) handle: Handle,
    /// Bytes of one.
    pub(crate) size: u64,
    pub(crate) values: Values,
    layout: TypeLayout,
    /// Whether MPI sends its bytes in the order in which they lie: a matrix by columns has no gaps
    /// and another order.
    in_order: bool,
}

impl Datatype {
    /// Where the bytes of `count` items begin, counted from the address of a buffer; `None` when
    /// there are gaps between them, or they are sent in another order.
    pub(crate) fn dense(&self, count: i64) -> Option<isize> {
        let layout = self.layout;
        (self.in_order && (count == 1 || layout.extent as i64 == layout.size))
            .then_some(layout.begins)
    }
}

/// The datatypes that were seen.
#[derive(Debug, Default)]
pub(crate) struct Datatypes {
    known: HashMap<Handle, Datatype, Quickly>,
}

impl Datatypes {
    pub(crate) fn get(&mut self, mpi: &Mpi, handle: Handle) -> Option<Datatype> {
        if let Some(known) = self.known.get(&handle) {
            return Some(*known);
        }
        // MPI ends a program that asks about no datatype.
        if handle == 0 || handle == mpi.abi.null_type() {
            return None;
        }
        let layout = mpi.layout(handle)?;
        let size = u64::try_from(layout.size).ok()?;
        let values = values_of(mpi, handle, size as usize, DEEPEST).unwrap_or_default();
        let in_order = is_in_order(mpi, handle, layout);
        let datatype = Datatype { handle, size, values, layout, in_order };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(handle, datatype);
        Some(datatype)
    }

    /// Forgets a datatype that the program gives up: another may get its handle.
    pub(crate) fn forget(&mut self, handle: Handle) {
        self.known.remove(&handle);
    }
}

/// Whether the bytes of one of a datatype have no gaps and are sent in the order in which they lie:
/// bytes that are their own places are packed, as far as a byte of the place goes, and compared.
fn is_in_order(mpi: &Mpi, handle: Handle, layout: TypeLayout) -> bool {
    if layout.reach as i64 != layout.size {
        return false;
    }
    if mpi.predefined(handle).is_some() {
        return true;
    }
    let size = layout.size;
    (0..=LARGEST).contains(&size)
        && [0, 8, 16].into_iter().all(|shift| {
            let item: Vec<u8> = (0..size).map(|place| (place >> shift) as u8).collect();
            let buffer = (item.as_ptr() as usize).wrapping_add_signed(-layout.begins);
            mpi.packed(buffer, 1, handle, mpi.abi.world()).is_some_and(|packed| packed == item)
        })
}

/// The type that all values of a datatype have; `None` when there are several.
fn values_of(mpi: &Mpi, handle: Handle, size: usize, depth: u32) -> Option<Values> {
    if let Some(name) = mpi.predefined(handle) {
        return Some(Values::of_mpi(&name, size));
    }
    let depth = depth.checked_sub(1)?;
    let (mut found, mut same) = (None, true);
    mpi.each_part(handle, |part| {
        let size = mpi.layout(part).map_or(0, |layout| layout.size as usize);
        let values = values_of(mpi, part, size, depth);
        same &= values.is_some() && *found.get_or_insert(values) == values;
    })?;
    found.flatten().filter(|_| same)
}

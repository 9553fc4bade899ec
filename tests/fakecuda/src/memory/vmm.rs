//! Virtual memory management: addresses are reserved, memory is created, mapped at addresses, and
//! opened to a device. Memory that is not open cannot be accessed at all: a late access by the host
//! ends the test, one by the device breaks the context.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codes::{Code, Outcome};
use crate::memory::{Budget, enclosing};
use crate::pages::{self, Backing};

/// Granularity of lengths and addresses.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// The first handle of memory.
const FIRST_HANDLE: u64 = 0x3e3_0000_0000;

/// Memory of a device, referenced by its handle and by every mapping.
#[derive(Debug)]
struct Piece {
    backing: Backing,
    device: u32,
}

#[derive(Debug)]
struct Mapped {
    piece: Arc<Piece>,
    len: u64,
    /// The device that may use it.
    open_to: Option<u32>,
}

#[derive(Debug)]
struct Reservation {
    len: u64,
    mapped: BTreeMap<u64, Mapped>,
}

/// All reservations and handles.
#[derive(Debug, Default)]
pub(crate) struct Vmm {
    reservations: BTreeMap<u64, Reservation>,
    handles: BTreeMap<u64, Arc<Piece>>,
    created: u64,
}

fn aligned(numbers: &[u64]) -> Outcome {
    let fits = numbers.iter().all(|number| number.is_multiple_of(GRANULARITY));
    if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

impl Vmm {
    pub(crate) fn reserve(&mut self, len: u64) -> Outcome<u64> {
        aligned(&[len])?;
        if len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = pages::reserve(len, GRANULARITY)?;
        self.reservations.insert(address, Reservation { len, mapped: BTreeMap::new() });
        Ok(address)
    }

    pub(crate) fn give_back(&mut self, address: u64, len: u64) -> Outcome {
        let found = self.reservations.get(&address);
        found.filter(|r| r.len == len && r.mapped.is_empty()).ok_or(Code::INVALID_VALUE)?;
        self.reservations.remove(&address);
        // SAFETY: the whole reservation, and nothing in it is mapped.
        unsafe { pages::unmap(address, len) };
        Ok(())
    }

    pub(super) fn create(&mut self, budget: &mut Budget, device: u32, len: u64) -> Outcome<u64> {
        aligned(&[len])?;
        if len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        budget.charge(len)?;
        let backing = Backing::new(len).inspect_err(|_| budget.give_back(len))?;
        self.created += 1;
        let handle = FIRST_HANDLE + self.created;
        self.handles.insert(handle, Arc::new(Piece { backing, device }));
        Ok(handle)
    }

    pub(super) fn release(&mut self, budgets: &mut [Budget], handle: u64) -> Outcome {
        let piece = self.handles.remove(&handle).ok_or(Code::INVALID_VALUE)?;
        let_go(budgets, piece);
        Ok(())
    }

    pub(crate) fn map(&mut self, address: u64, len: u64, offset: u64, handle: u64) -> Outcome {
        aligned(&[address, len, offset])?;
        let piece = self.handles.get(&handle).ok_or(Code::INVALID_VALUE)?;
        let end = offset.checked_add(len).ok_or(Code::INVALID_VALUE)?;
        let reservation = around(&mut self.reservations, address, len)?;
        let is_free = enclosing(&reservation.mapped, |m| m.len, (address, address + len));
        if end > piece.backing.len() || len == 0 || is_free != Ok(None) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: a part of our reservation without a mapping.
        unsafe { piece.backing.map_at(address, len, offset) }?;
        let mapped = Mapped { piece: Arc::clone(piece), len, open_to: None };
        reservation.mapped.insert(address, mapped);
        Ok(())
    }

    /// Opens a fully mapped range to `device`.
    pub(crate) fn open(&mut self, address: u64, len: u64, device: u32) -> Outcome {
        aligned(&[address, len])?;
        let reservation = around(&mut self.reservations, address, len)?;
        let inside = whole_pieces(reservation, address, len)?;
        for begin in inside {
            let Some(mapped) = reservation.mapped.get_mut(&begin) else {
                continue;
            };
            // SAFETY: mapped there.
            unsafe { pages::open(begin, mapped.len) }?;
            mapped.open_to = Some(device);
        }
        Ok(())
    }

    pub(super) fn unmap(&mut self, budgets: &mut [Budget], address: u64, len: u64) -> Outcome {
        aligned(&[address, len])?;
        let reservation = around(&mut self.reservations, address, len)?;
        for begin in whole_pieces(reservation, address, len)? {
            let Some(mapped) = reservation.mapped.remove(&begin) else {
                continue;
            };
            // SAFETY: mapped there; the caller unmaps it.
            unsafe { pages::close(begin, mapped.len) };
            let_go(budgets, mapped.piece);
        }
        Ok(())
    }

    pub(super) fn free_all_of(&mut self, budgets: &mut [Budget], device: u32) {
        for reservation in self.reservations.values_mut() {
            let own = reservation.mapped.iter().filter(|(_, m)| m.piece.device == device);
            for begin in own.map(|(&begin, _)| begin).collect::<Vec<_>>() {
                let Some(mapped) = reservation.mapped.remove(&begin) else {
                    continue;
                };
                // SAFETY: mapped there, and its device has ended.
                unsafe { pages::close(begin, mapped.len) };
                let_go(budgets, mapped.piece);
            }
        }
        let own = self.handles.iter().filter(|(_, piece)| piece.device == device);
        for handle in own.map(|(&handle, _)| handle).collect::<Vec<_>>() {
            let _ = self.release(budgets, handle);
        }
    }

    /// The device that may use the whole range; an error when it is reserved and not usable.
    pub(super) fn owner(&self, address: u64, end: u64) -> Outcome<Option<u32>> {
        let Some(begin) = enclosing(&self.reservations, |r| r.len, (address, end))? else {
            return Ok(None);
        };
        let (mut at, mut owner) = (address, None);
        while at < end.max(address + 1) {
            let mapped = &self.reservations[&begin].mapped;
            let (&begin, piece) = mapped.range(..=at).next_back().ok_or(Code::INVALID_VALUE)?;
            let usable = at < begin + piece.len && piece.open_to.is_some();
            if !usable || owner.is_some_and(|owner| Some(owner) != piece.open_to) {
                return Err(Code::INVALID_VALUE);
            }
            (at, owner) = (begin + piece.len, piece.open_to);
        }
        Ok(owner)
    }

    /// Numbers of reservations, mappings and handles.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let mapped = self.reservations.values().map(|r| r.mapped.len() as u64).sum();
        (self.reservations.len() as u64, mapped, self.handles.len() as u64)
    }
}

/// The reservation that contains the whole range.
fn around(
    reservations: &mut BTreeMap<u64, Reservation>,
    address: u64,
    len: u64,
) -> Outcome<&mut Reservation> {
    let end = address.checked_add(len).ok_or(Code::INVALID_VALUE)?;
    let (&begin, reservation) =
        reservations.range_mut(..=address).next_back().ok_or(Code::INVALID_VALUE)?;
    if end <= begin + reservation.len { Ok(reservation) } else { Err(Code::INVALID_VALUE) }
}

/// The pieces that make up the range, which must be mapped without gaps, each as a whole.
fn whole_pieces(reservation: &Reservation, address: u64, len: u64) -> Outcome<Vec<u64>> {
    let (mut at, end, mut found) = (address, address + len, Vec::new());
    while at < end {
        let piece = reservation.mapped.get(&at).ok_or(Code::INVALID_VALUE)?;
        found.push(at);
        at += piece.len;
    }
    if at == end { Ok(found) } else { Err(Code::INVALID_VALUE) }
}

/// Drops one reference to a piece; the last one frees its memory.
fn let_go(budgets: &mut [Budget], piece: Arc<Piece>) {
    if let Some(piece) = Arc::into_inner(piece) {
        budgets[piece.device as usize].give_back(piece.backing.len());
    }
}

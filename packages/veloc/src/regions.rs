//! The regions of memory that are protected, and which of them a call means. Pure.

use std::collections::BTreeMap;
use std::ffi::c_int;

/// Memory that the program has protected, on the host or on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Protected {
    /// The address of its first byte.
    pub(crate) address: usize,
    /// How many bytes it has.
    pub(crate) bytes: u64,
    /// How many of them are one item.
    pub(crate) item: usize,
}

/// Which regions a call means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    /// All of them.
    All,
    /// These.
    Some(Vec<c_int>),
    /// All but these.
    Rest(Vec<c_int>),
}

impl Selection {
    /// What the numbers of the interface mean.
    pub(crate) fn of(mode: c_int, ids: Vec<c_int>) -> Result<Selection, String> {
        match mode {
            0 => Ok(Selection::All),
            1 => Ok(Selection::Some(ids)),
            2 => Ok(Selection::Rest(ids)),
            _ => {
                Err(format!("There is no mode {mode}: use 0 for all, 1 for some, 2 for the rest."))
            }
        }
    }

    /// Whether it has this region.
    pub(crate) fn has(&self, id: c_int) -> bool {
        match self {
            Selection::All => true,
            Selection::Some(ids) => ids.contains(&id),
            Selection::Rest(ids) => !ids.contains(&id),
        }
    }
}

/// The regions that are protected, for every checkpoint or for those of one name.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    every: BTreeMap<c_int, Protected>,
    of_name: BTreeMap<String, BTreeMap<c_int, Protected>>,
}

impl Regions {
    /// Protects a region, in place of what had its number. `name`: for checkpoints of this name
    /// only.
    pub(crate) fn protect(&mut self, id: c_int, region: Protected, name: Option<&str>) {
        self.table(name).insert(id, region);
    }

    /// Whether there was such a region.
    pub(crate) fn unprotect(&mut self, id: c_int, name: Option<&str>) -> bool {
        self.table(name).remove(&id).is_some()
    }

    /// Forgets all regions, or those of a name.
    pub(crate) fn clear(&mut self, name: Option<&str>) {
        self.table(name).clear();
    }

    fn table(&mut self, name: Option<&str>) -> &mut BTreeMap<c_int, Protected> {
        match name {
            None => &mut self.every,
            Some(name) => self.of_name.entry(name.to_owned()).or_default(),
        }
    }

    /// The regions of checkpoints with this name, by number: those of the name before others.
    pub(crate) fn of(&self, name: &str) -> BTreeMap<c_int, Protected> {
        let mut all = self.every.clone();
        all.extend(self.of_name.get(name).into_iter().flatten());
        all
    }
}

/// The bytes of `count` items of `size` bytes.
pub(crate) fn bytes(count: usize, size: usize) -> Result<u64, String> {
    let bytes = count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize);
    let bytes = bytes
        .ok_or_else(|| format!("{count} items of {size} bytes are more than memory can have."))?;
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_all_some_or_the_rest() {
        let has = |mode, id| Selection::of(mode, vec![1, 2]).unwrap().has(id);
        assert!(has(0, 1) && has(0, 3));
        assert!(has(1, 1) && !has(1, 3));
        assert!(!has(2, 1) && has(2, 3));
        assert!(Selection::of(3, vec![]).is_err() && Selection::of(-1, vec![]).is_err());
    }

    #[test]
    fn regions_of_a_name_come_before_those_of_every_checkpoint() {
        let region = |address| Protected { address, bytes: 8, item: 8 };
        let mut regions = Regions::default();
        regions.protect(1, region(10), None);
        regions.protect(1, region(20), Some("heat"));
        regions.protect(2, region(30), Some("heat"));
        regions.protect(1, region(11), None);
        assert_eq!(regions.of("heat"), BTreeMap::from([(1, region(20)), (2, region(30))]));
        assert_eq!(regions.of("other"), BTreeMap::from([(1, region(11))]));
        assert!(regions.unprotect(2, Some("heat")) && !regions.unprotect(2, Some("heat")));
        regions.clear(Some("heat"));
        assert_eq!(regions.of("heat"), BTreeMap::from([(1, region(11))]));
        regions.clear(None);
        assert!(regions.of("heat").is_empty());
    }

    #[test]
    fn sizes_that_no_memory_has_are_refused() {
        assert_eq!(bytes(3, 8), Ok(24));
        assert_eq!(bytes(0, 8), Ok(0));
        assert!(bytes(usize::MAX, 2).is_err() && bytes(usize::MAX, 1).is_err());
    }
}

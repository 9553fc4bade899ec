//! Which codec the regions of a checkpoint get: what the user said, and what it means for a dtype.

use std::collections::BTreeMap;

use unspool_codec::{RegionSpec, Spec};

use crate::error::{Error, ErrorKind};

/// The codecs of a spool, or of one save.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Codecs {
    /// For the regions that are not named. Integers, booleans and opaque items are taken without
    /// loss where this loses something. Default: the bytes are kept as they are.
    pub default: Spec,
    /// For single regions, by name. A codec that cannot take the dtype is refused here.
    pub by_region: BTreeMap<String, Spec>,
}

impl Codecs {
    /// One codec for all regions.
    #[must_use]
    pub fn all(codec: Spec) -> Codecs {
        Codecs { default: codec, by_region: BTreeMap::new() }
    }

    /// Whether the bytes of all regions are kept as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.specs().all(|spec| spec == Spec::Raw)
    }

    /// Whether what one of them does to a value depends on the rest of its region.
    #[must_use]
    pub fn depend_on_regions(&self) -> bool {
        self.specs().any(|spec| spec.depends_on_array())
    }

    /// Every codec that is asked for.
    pub(crate) fn specs(&self) -> impl Iterator<Item = Spec> {
        std::iter::once(self.default).chain(self.by_region.values().copied())
    }

    /// The codec for `region`, as its dtype takes it.
    ///
    /// # Errors
    /// `Invalid` when a codec is named for this region that cannot take its dtype.
    pub(crate) fn of(&self, region: &RegionSpec) -> Result<Spec, Error> {
        let named = self.by_region.get(&region.name).copied();
        let codec = named.unwrap_or(self.default);
        let is_meant = named.is_some() || !codec.is_lossy() || region.dtype.is_float();
        if is_meant && codec.takes(&region.dtype) {
            return Ok(codec);
        }
        match named {
            None => Ok(Spec::Lossless),
            Some(_) => Err(refused(codec, region)),
        }
    }

    /// Refuses codecs whose numbers make no sense, before anything is made.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let checked = self.specs().try_for_each(|spec| spec.check());
        checked.map_err(|cause| Error::new(ErrorKind::Invalid, cause.to_string()))
    }

    /// Refuses codecs whose streams may not outlive this machine's libraries.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check_durable(&self) -> Result<(), Error> {
        if !self.specs().any(|spec| spec.needs_gpu()) {
            return Ok(());
        }
        let message = "A durable history is not encoded with nvCOMP, whose streams only its \
                       library can read. Choose the lossless codec, a bound or zfp.";
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

fn refused(codec: Spec, region: &RegionSpec) -> Error {
    let message = format!(
        "Region {:?} has items of dtype {}, which {codec} cannot take. Choose the lossless codec \
         for it, or none.",
        region.name,
        region.dtype.name(),
    );
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use unspool_codec::{Bound, Dtype, Zfp};

    use super::*;

    fn region(name: &str, dtype: Dtype) -> RegionSpec {
        RegionSpec { name: name.to_owned(), dtype, shape: vec![100] }
    }

    #[test]
    fn integers_under_a_bound_for_all_regions_are_taken_without_loss() {
        for codec in [Spec::Bounded(Bound::Absolute(1e-3)), Spec::Zfp(Zfp::Precision(20))] {
            let codecs = Codecs::all(codec);
            for dtype in [Dtype::Int32, Dtype::Bool, Dtype::UInt8, Dtype::Float8E5m2] {
                assert_eq!(codecs.of(&region("u", dtype)).unwrap(), Spec::Lossless);
            }
            assert_eq!(codecs.of(&region("u", Dtype::Float64)).unwrap(), codec);
        }
        let bounded = Codecs::all(Spec::Bounded(Bound::Absolute(1e-3)));
        assert_ne!(bounded.of(&region("u", Dtype::Complex64)).unwrap(), Spec::Lossless);
    }

    #[test]
    fn one_codec_of_many_that_depends_on_its_region_counts() {
        let range = Spec::Bounded(Bound::Range(1e-3));
        let by_region = BTreeMap::from([("k".to_owned(), range)]);
        assert!(Codecs { by_region, ..Codecs::default() }.depend_on_regions());
        assert!(Codecs::all(range).depend_on_regions());
        assert!(!Codecs::all(Spec::Lossless).depend_on_regions());
    }

    #[test]
    fn zfp_takes_the_integers_that_it_is_named_for() {
        let zfp = Spec::Zfp(Zfp::Precision(20));
        let by_region = BTreeMap::from([("k".to_owned(), zfp)]);
        let codecs = Codecs { by_region, ..Codecs::default() };
        assert_eq!(codecs.of(&region("k", Dtype::Int32)).unwrap(), zfp);
    }

    #[test]
    fn a_bound_that_is_named_for_integers_is_refused_with_what_to_do() {
        let bound = Spec::Bounded(Bound::Absolute(1e-3));
        let by_region = BTreeMap::from([("k".to_owned(), bound)]);
        let codecs = Codecs { by_region, ..Codecs::default() };
        let error = codecs.of(&region("k", Dtype::Int16)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("int16") && error.message().contains("lossless"));
        assert_eq!(codecs.of(&region("u", Dtype::Int16)).unwrap(), Spec::Raw);
        assert!(!codecs.is_raw() && Codecs::default().is_raw());
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused_wherever_they_stand() {
        let bad = Spec::Bounded(Bound::Range(-1.0));
        let by_region = BTreeMap::from([("k".to_owned(), bad)]);
        let error = Codecs { by_region, ..Codecs::default() }.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(Codecs::all(Spec::Lossless).check().is_ok());
    }
}

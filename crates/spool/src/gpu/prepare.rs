//! The kernels of a spool's codecs, compiled or loaded in the background from when its GPU is
//! opened: nobody has to wait for them who does not come sooner.

use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Bound, Codec, Zfp};

use super::Gpu;
use crate::coding::{Choice, CodecChoice};

/// The longest wait at close for a compiler at work, which cannot be stopped: the process may end
/// next. What it makes is there for the next run.
const LIMIT: Duration = Duration::from_secs(30);

/// What codecs will be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Needs {
    lossless: bool,
    bounded: bool,
    /// A bound depends on the values.
    reduces: bool,
    zfp: bool,
    nvcomp: bool,
}

impl Needs {
    fn of(choice: &CodecChoice) -> Needs {
        choice.choices().fold(Needs::default(), |needs, choice| match choice {
            Choice::Auto | Choice::Fixed(Codec::Lossless) => Needs { lossless: true, ..needs },
            Choice::Fixed(Codec::Bounded(bound)) => {
                let known = matches!(bound, Bound::Absolute(_) | Bound::Relative { .. });
                Needs { bounded: true, reduces: needs.reduces || !known, ..needs }
            }
            Choice::Fixed(Codec::Zfp(Zfp::Rate(_))) => Needs { zfp: true, ..needs },
            Choice::Fixed(Codec::NvComp(_)) => Needs { nvcomp: true, ..needs },
            Choice::Fixed(_) => needs,
        })
    }
}

impl Gpu {
    /// Begins to prepare what `choice` needs.
    pub(crate) fn prepare(&self, choice: &CodecChoice) {
        let needs = Needs::of(choice);
        let twine = self.coders.twine();
        if needs.zfp {
            let coders = Arc::clone(&self.coders);
            twine.background().push(move || coders.zfp().prepare());
        }
        if needs.nvcomp {
            self.prepare_nvcomp();
        }
        if needs.lossless || needs.bounded {
            twine.prepare_ahead(needs.lossless, needs.bounded, needs.reduces);
        }
    }

    /// Begins to load nvCOMP and to prepare the kernels around it.
    pub(crate) fn prepare_nvcomp(&self) {
        let coders = Arc::clone(&self.coders);
        self.coders.twine().background().push(move || coders.nvcomp().prepare());
    }

    /// Kernels that are still to be prepared.
    pub(crate) fn preparing(&self) -> usize {
        self.coders.twine().background().pending()
    }

    /// Ends that, within `left`.
    pub(crate) fn end_preparing(&self, left: Duration) {
        self.coders.twine().background().end(left.min(LIMIT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_follows_from_the_codecs() {
        let needs = |codec| Needs::of(&CodecChoice::all(codec));
        assert_eq!(needs(Codec::Raw), Needs::default());
        assert_eq!(needs(Codec::Zfp(Zfp::Accuracy(1e-3))), Needs::default());
        assert_eq!(needs(Codec::Zfp(Zfp::Rate(8.0))), Needs { zfp: true, ..Needs::default() });
        let bounded = Needs { bounded: true, ..Needs::default() };
        assert_eq!(needs(Codec::Bounded(Bound::Absolute(1e-3))), bounded);
        let reduces = Needs { reduces: true, ..bounded };
        assert_eq!(needs(Codec::Bounded(Bound::Range(1e-3))), reduces);
        let auto = CodecChoice { default: Choice::Auto, ..CodecChoice::default() };
        assert_eq!(Needs::of(&auto), Needs { lossless: true, ..Needs::default() });
    }
}

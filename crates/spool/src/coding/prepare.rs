//! The kernels of a spool's codecs, compiled or loaded in the background from when its GPU is
//! opened: nobody has to wait for them who does not come sooner.

use std::sync::Arc;
use std::time::Duration;

use unspool_codec::{Spec, Zfp};
use unspool_gpu_codec::GpuCodec;

use super::codecs::Codecs;
use crate::gpu::Gpu;

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
    fn of(codecs: &Codecs) -> Needs {
        codecs.specs().fold(Needs::default(), |needs, spec| match spec {
            Spec::Auto | Spec::Lossless => Needs { lossless: true, ..needs },
            Spec::Bounded(bound) => {
                let reduces = needs.reduces || bound.depends_on_values();
                Needs { bounded: true, reduces, ..needs }
            }
            Spec::Zfp(Zfp::Rate(_)) => Needs { zfp: true, ..needs },
            spec => Needs { nvcomp: needs.nvcomp || spec.needs_gpu(), ..needs },
        })
    }
}

impl Gpu {
    /// Begins to prepare what `codecs` need.
    pub(crate) fn prepare(&self, codecs: &Codecs) {
        let needs = Needs::of(codecs);
        let twine = self.coders.twine();
        if needs.zfp {
            let coders = Arc::clone(&self.coders);
            // Whoever needs them is told what fails.
            twine.background().push(move || drop(coders.zfp().prepare(&[])));
        }
        if needs.nvcomp {
            let coders = Arc::clone(&self.coders);
            twine.background().push(move || drop(coders.nvcomp().prepare(&[])));
        }
        if needs.lossless || needs.bounded {
            twine.prepare_ahead(needs.lossless, needs.bounded, needs.reduces);
        }
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
    use unspool_codec::Bound;

    use super::*;

    #[test]
    fn what_is_prepared_follows_from_the_codecs() {
        let needs = |codec| Needs::of(&Codecs::all(codec));
        assert_eq!(needs(Spec::Raw), Needs::default());
        assert_eq!(needs(Spec::Zfp(Zfp::Tolerance(1e-3))), Needs::default());
        assert_eq!(needs(Spec::Zfp(Zfp::Rate(8.0))), Needs { zfp: true, ..Needs::default() });
        let bounded = Needs { bounded: true, ..Needs::default() };
        assert_eq!(needs(Spec::Bounded(Bound::Absolute(1e-3))), bounded);
        let reduces = Needs { reduces: true, ..bounded };
        assert_eq!(needs(Spec::Bounded(Bound::Range(1e-3))), reduces);
        let auto = Codecs { default: Spec::Auto, ..Codecs::default() };
        assert_eq!(Needs::of(&auto), Needs { lossless: true, ..Needs::default() });
    }
}

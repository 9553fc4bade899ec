//! The imaging condition: what a restored wavefield and the backward one have in common.

use rayon::prelude::*;

/// Elements that one thread takes at a time.
const CHUNK: usize = 16 * 1024;

/// Adds `forward * backward` to `image` and `forward^2` to `illumination`, element by element.
///
/// (Zero-lag cross-correlation, Claerbout 1971; the illumination is the source's.)
pub(crate) fn correlate(
    image: &mut [f32],
    illumination: &mut [f32],
    forward: &[f32],
    backward: &[f32],
) {
    image
        .par_chunks_mut(CHUNK)
        .zip(illumination.par_chunks_mut(CHUNK))
        .zip(forward.par_chunks(CHUNK).zip(backward.par_chunks(CHUNK)))
        .for_each(|((image, illumination), (forward, backward))| {
            let fields = forward.iter().zip(backward);
            for ((image, light), (u, v)) in image.iter_mut().zip(illumination).zip(fields) {
                *image += u * v;
                *light += u * u;
            }
        });
}

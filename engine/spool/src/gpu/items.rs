//! Where a codec reads or writes the items of an array itself.

use unspool_cuda::Context;
use unspool_gpu_codec::{GpuLayout, Items};

use super::DeviceArray;

/// The items of an array that an encoder reads where they are; `None` where it needs a dense copy.
pub(crate) fn in_place(
    context: &Context,
    layout: &GpuLayout,
    array: &DeviceArray,
) -> Option<Items> {
    if !array.address().is_multiple_of(layout.alignment()) {
        return None;
    }
    let Some(strided) = array.layout() else { return Some(array.span(context).into()) };
    let steps = layout.steps(strided)?;
    array.extent(context).map(|extent| Items::at(extent, steps))
}

/// The items of an array that a decoder writes where they are. Those that lie apart are faster
/// scattered, and what shares memory is left to the copy of dense items, which refuses it.
pub(crate) fn to_write(
    context: &Context,
    layout: &GpuLayout,
    array: &DeviceArray,
) -> Option<Items> {
    if let Some(strided) = array.layout() {
        let is_fast = layout.steps(strided)?.have_neighbours();
        if !is_fast || strided.may_overlap().unwrap_or(true) {
            return None;
        }
    }
    in_place(context, layout, array)
}

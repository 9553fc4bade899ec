//! Where a codec reads or writes the items of an array itself.

use unspool_cuda::Context;
use unspool_gpu_codec::{GpuLayout, Items, Steps};

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
    let steps = Steps::of(layout, strided)?;
    array.extent(context).map(|extent| Items::at(extent, steps))
}

/// The items of an array that a decoder writes where they are. Items that share memory are left to
/// the copy of dense ones, which refuses them.
pub(crate) fn to_write(
    context: &Context,
    layout: &GpuLayout,
    array: &DeviceArray,
) -> Option<Items> {
    let may_overlap = array.layout().is_some_and(|layout| layout.may_overlap().unwrap_or(true));
    in_place(context, layout, array).filter(|_| !may_overlap)
}

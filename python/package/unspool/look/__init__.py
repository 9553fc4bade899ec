"""Looking inside: two histories compared, a step shown, a dataset of xarray, a store of Zarr."""

from .comparing import diff
from .opening import zarr_store
from .outcome import Comparison, Difference

__all__ = ["Comparison", "Difference", "diff", "zarr_store"]

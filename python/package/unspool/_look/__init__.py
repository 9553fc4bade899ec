"""Looking inside: two histories compared, a step shown, a dataset of xarray, a store of Zarr."""

from .diff import diff
from .outcome import Comparison, Difference
from .zarr import zarr_store

__all__ = ["Comparison", "Difference", "diff", "zarr_store"]

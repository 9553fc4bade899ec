"""Looking inside: two histories compared, a step shown, a dataset of xarray, a store of Zarr."""

from .diff import diff
from .outcome import Comparison, Difference

__all__ = ["Comparison", "Difference", "diff"]

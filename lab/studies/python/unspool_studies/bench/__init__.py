"""`unspool-bench`: figures of this machine, each beside the raw operation of the same run."""

from unspool_studies.bench.options import add_options

__all__ = ["add_options"]

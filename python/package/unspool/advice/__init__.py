"""Asking what would be best on a machine, before the run: the records of `unspool.plan` and
`unspool.advise`, and other questions of theirs.

Each question is asked of figures that are given or measured here: `measure_links` measures the
links of a spool, `Place.measured` a directory, `Compression.of` a codec, `Meter` the power of a
program. `print` an answer for a table; `to_dict` gives the figures.
"""

from .advising import Advice, advise
from .coding import Compression
from .jobs import Choice, Prices
from .links import Link, Links, LinksError, Rate
from .options import Costs, Failures, Waits
from .places import Place
from .planning import measure_links, plan, predict, what_if
from .plans import Candidate, LeftOut, LinkBytes, NoPlanError, Plan, WhatIf
from .power import Meter, Power
from .sizes import Tiers, tiers_of

__all__ = [
    "Advice",
    "Candidate",
    "Choice",
    "Compression",
    "Costs",
    "Failures",
    "LeftOut",
    "Link",
    "LinkBytes",
    "Links",
    "LinksError",
    "Meter",
    "NoPlanError",
    "Place",
    "Plan",
    "Power",
    "Prices",
    "Rate",
    "Tiers",
    "Waits",
    "WhatIf",
    "advise",
    "measure_links",
    "plan",
    "predict",
    "tiers_of",
    "what_if",
]

"""Accumulated compression: which checkpoints to compress, and which of them in one call.

A run is recorded once (`Profile`), and the best schedule for the runs after it is computed
(`plan`). It has one decision for each checkpoint: `"raw"` (send it as it is), `"alone"` (compress
it alone), `"hold"` (keep it for later) or `"together"` (compress it with those that are held).
These are U, C, A and X of Maurya et al., "Towards Efficient I/O Pipelines using Accumulated
Compression" (HiPC 2023), whose problem this is; the guide `docs/howto/accumulated.md` says what the
model contains.

    from unspool import accumulate

    profile = accumulate.Profile.load_from("run.json")
    found = accumulate.plan(profile, codec=accumulate.NVCOMP, cache="128MiB", link=25e9)
    print(found)
"""

from ..advice.accumulating import Accumulation, Outcome, follow, plan
from ..advice.profile import NVCOMP, TWINE, CodecCost, Layout, Profile, ProfileError, Recorded
from .batched import Batched
from .watch import PlanDroppedWarning, Watch, open_profile

__all__ = [
    "NVCOMP",
    "TWINE",
    "Accumulation",
    "Batched",
    "CodecCost",
    "Layout",
    "Outcome",
    "PlanDroppedWarning",
    "Profile",
    "ProfileError",
    "Recorded",
    "Watch",
    "follow",
    "open_profile",
    "plan",
]

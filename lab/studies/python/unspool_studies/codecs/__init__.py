"""Codecs compared on arrays of yours: how small, how fast, how exact.

import numpy as np
from unspool import Bound, codecs
from unspool_studies.codecs import quality

wave = np.random.default_rng(0).normal(size=(512, 512)).cumsum(1).astype(np.float32)
again = codecs.decode(codecs.encode(wave, Bound(range=1e-4)))
print(quality(wave, again, Bound(range=1e-4)))
"""

from unspool_studies.codecs.quality import Quality, quality

__all__ = ["Quality", "quality"]

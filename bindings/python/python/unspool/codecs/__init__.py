"""Codecs: what a spool may do with the bytes of an array, and the same on arrays by themselves.

import numpy as np
from unspool import Bound, codecs

wave = np.random.default_rng(0).normal(size=(512, 512)).cumsum(1).astype(np.float32)
again = codecs.decode(codecs.encode(wave, Bound(range=1e-4)))
print(codecs.quality(wave, again, Bound(range=1e-4)))
"""

from unspool.codecs.coding import Encoded, decode, encode
from unspool.codecs.quality import Quality, quality
from unspool.codecs.values import Achieved, Bound, NvComp, Zfp

__all__ = [
    "Achieved",
    "Bound",
    "Encoded",
    "NvComp",
    "Quality",
    "Zfp",
    "decode",
    "encode",
    "quality",
]

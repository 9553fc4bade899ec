"""Codecs: what a spool may do with the bytes of an array, and the same on arrays by themselves.

import numpy as np
from unspool import Bound, codecs

wave = np.random.default_rng(0).normal(size=(512, 512)).cumsum(1).astype(np.float32)
encoded = codecs.encode(wave, Bound(range=1e-4))
again = codecs.decode(encoded)
print(encoded.ratio, encoded.achieved)
"""

from unspool.codecs.coding import Encoded, decode, encode
from unspool.codecs.values import Achieved, Bound, NvComp, Zfp

__all__ = [
    "Achieved",
    "Bound",
    "Encoded",
    "NvComp",
    "Zfp",
    "decode",
    "encode",
]

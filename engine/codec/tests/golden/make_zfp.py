"""Writes zfp.txt: streams of libzfp, and what libzfp decodes from them.

Needs the packages zfpy and numpy: `python make_zfp.py > zfp.txt`. A line is the dtype, the shape,
the mode, its parameter, the stream and the decoded values, both in hexadecimal digits.
"""

import numpy as np
import zfpy

SHAPES = [(1,), (37,), (9, 11), (4, 8), (3, 5, 7), (2, 3, 4, 5)]
MODES = [("rate", 3.0), ("rate", 9.5), ("precision", 14), ("accuracy", 0.03)]
DTYPES = ["float32", "float64", "int32", "int64"]


def values(dtype, shape):
    """A field that is the same in every language: small integers, divided by powers of two."""
    flat = np.arange(np.prod(shape), dtype=np.int64)
    whole = (flat * flat * 5 + flat * 11) % 1021 - 400 + flat * 16
    whole[flat % 23 == 7] = 0
    array = whole / 256 if dtype.startswith("float") else whole
    return np.ascontiguousarray(array.astype(dtype).reshape(shape))


def line(dtype, shape, mode, parameter):
    """The line of one case."""
    name = "tolerance" if mode == "accuracy" else mode
    array = values(dtype, shape)
    stream = zfpy.compress_numpy(array, write_header=False, **{name: parameter})
    kind = zfpy.dtype_to_ztype(array.dtype)
    back = zfpy._decompress(stream, kind, shape, **{name: parameter})
    sizes = "x".join(str(size) for size in shape)
    return f"{dtype} {sizes} {mode} {parameter} {stream.hex()} {np.asarray(back).tobytes().hex()}"


for dtype in DTYPES:
    for shape in SHAPES:
        for mode, parameter in MODES:
            if mode != "accuracy" or dtype.startswith("float"):
                print(line(dtype, shape, mode, parameter))

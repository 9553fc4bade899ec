"""Arrays whose tiles are those of CuPy and PyTorch on a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unspool

from helpers import gpu_library

pytestmark = pytest.mark.gpu

SHAPE = (60, 256, 256)


@pytest.mark.parametrize("codec", [None, "lossless", unspool.Bound(abs=1e-4)], ids=str)
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_stencil_is_that_of_numpy(library: str, codec: object, tmp_path: Path) -> None:
    module = gpu_library(library)
    z, y, x = (np.linspace(0, 3, extent, dtype="f4") for extent in SHAPE)
    plain = np.sin(z)[:, None, None] + np.cos(y)[:, None] * x
    tiers = {"device_memory": "8MiB", "host_memory": "12MiB", "disk": tmp_path, "device": "cuda"}
    with unspool.tiled(SHAPE, "f4", tile=4, codec=codec, to=library, **tiers) as array:
        array[...] = plain
        array.expect(cycle=range(array.tiles))
        for _ in range(3):
            for index, a in array.sweep(halo=1):
                here = array.slices(index)[0]
                new = a * 1
                new[1:-1] += (a[:-2] + a[2:] - 2 * a[1:-1]) * 0.125
                low = min(1, here.start)
                with array.tile(index, "w") as out:
                    assert isinstance(out, module.ndarray if library == "cupy" else module.Tensor)
                    out[...] = new[low : low + here.stop - here.start]
            new = plain.copy()
            new[1:-1] += (plain[:-2] + plain[2:] - 2 * plain[1:-1]) * np.float32(0.125)
            plain = new
        lossy = isinstance(codec, unspool.Bound)
        np.testing.assert_allclose(array[...], plain, rtol=1e-5, atol=4.1e-4 if lossy else 1e-6)
        assert array.stats().lossy_most == lossy


def test_a_kernel_over_all_tiles_in_place(tmp_path: Path) -> None:
    cupy = gpu_library("cupy")
    tiers = {"device_memory": "8MiB", "host_memory": "64MiB", "device": "cuda"}
    with unspool.tiled(SHAPE, "f4", tile="1MiB", fill=1, **tiers) as array:
        for _ in range(3):
            array.map(lambda _, a: cupy.multiply(a, 2, out=a))
        assert (array[...] == 8).all()

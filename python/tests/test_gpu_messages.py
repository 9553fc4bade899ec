"""Messages of arrays of CuPy and PyTorch on a real GPU, on streams of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from message_comms import FakeComm, Wire
from unspool import Bound, codecs
from unspool.messages import Channel

from codec_arrays import BOUNDS, assert_holds, wave, with_specials
from helpers import gpu_library, same_bits

pytestmark = pytest.mark.gpu

SHAPES = [(0,), (7,), (2000,), (301, 400), (9, 100, 1000)]


def pair(bound: Bound | None = None) -> tuple[Channel, Channel]:
    """The channels of ranks 0 and 1 with each other."""
    wire = Wire()
    return Channel(FakeComm(wire, 0), 1, bound=bound), Channel(FakeComm(wire, 1), 0)


@pytest.mark.parametrize("bound", [None, *BOUNDS], ids=repr)
def test_arrays_of_cupy_arrive(bound: Bound | None) -> None:
    cupy = gpu_library("cupy")
    left, right = pair(bound)
    with cupy.cuda.Stream(non_blocking=True):
        for number, shape in enumerate(SHAPES):
            values = with_specials(wave(shape, "float32", number), number)
            out = cupy.zeros(shape, "float32")
            left.send(cupy.asarray(values))
            right.recv(out)
            check(values, cupy.asnumpy(out), bound)


@pytest.mark.parametrize("bound", [None, *BOUNDS], ids=repr)
def test_tensors_of_torch_arrive(bound: Bound | None) -> None:
    torch = gpu_library("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    left, right = pair(bound)
    with torch.cuda.stream(torch.cuda.Stream()):
        for number, shape in enumerate(SHAPES):
            values = with_specials(wave(shape, "float64", number), number)
            # Strided on both sides.
            sent = torch.from_numpy(np.stack([values, values], -1)).cuda()[..., 1]
            out = torch.zeros((*shape, 3), dtype=torch.float64, device="cuda")[..., 1]
            left.send(sent)
            right.recv(out)
            check(values, out.cpu().contiguous().numpy(), bound)


def check(values: np.ndarray, found: np.ndarray, bound: Any) -> None:
    if bound is None:
        assert same_bits(values, found)
    else:
        assert_holds(values, found, bound)
        assert same_bits(found, codecs.decode(codecs.encode(values, bound)))

"""Tensors of PyTorch in main memory through `unspool.messages.Channel`."""

from __future__ import annotations

import numpy as np
import pytest
from message_comms import FakeComm, Wire
from unspool.errors import ArrayError, OptionError
from unspool.messages import Channel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer

DTYPES = """bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64
    complex128""".split()


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_of_every_dtype_arrive_in_any_strides(name: str) -> None:
    wire, dtype = Wire(), getattr(torch, name)
    left, right = Channel(FakeComm(wire, 0), 1), Channel(FakeComm(wire, 1), 0)
    whole = torch.arange(6000).reshape(20, 300).remainder(2 if name == "bool" else 100).to(dtype)
    for cut in (np.s_[:], np.s_[:, 3:70], np.s_[::2], np.s_[5], np.s_[:0]):
        target = torch.zeros_like(whole)
        left.send(whole[cut])
        right.recv(target[cut])
        wanted = torch.zeros_like(whole)
        wanted[cut] = whole[cut]
        assert torch.equal(target, wanted)


def test_a_tensor_and_an_array_are_the_same_message() -> None:
    wire = Wire()
    left, right = Channel(FakeComm(wire, 0), 1), Channel(FakeComm(wire, 1), 0)
    values = np.linspace(0, 1, 500).reshape(20, 25)
    left.send(torch.from_numpy(values))
    out = np.zeros_like(values)
    right.recv(out)
    assert (out == values).all()
    with pytest.raises(ArrayError):
        left.send(torch.zeros(3, device="meta"))


def test_without_a_group_torch_distributed_is_refused() -> None:
    with pytest.raises(OptionError, match="init_process_group"):
        Channel(None, 1)
    with pytest.raises(OptionError, match="communicator of mpi4py"):
        Channel("world", 1)

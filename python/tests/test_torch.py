"""Tensors of PyTorch on the CPU. PyTorch is large: these tests run where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import unspool

torch = pytest.importorskip("torch")

DTYPES = """bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64
    complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    float8_e8m0fnu""".split()


def random_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = int(np.prod(shape)) * torch.empty(0, dtype=dtype).element_size()
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 256, count, np.uint8))
    if dtype is torch.bool:
        return (bits % 2).bool().reshape(shape)
    return bits.view(dtype).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_with_its_bits(spool: unspool.Spool, name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"this PyTorch has no {name}")
    dtype = getattr(torch, name)
    whole = random_tensor(dtype, 6, 10)
    for version, saved in enumerate([whole, whole[::2, 1:], whole.T]):
        spool.save(version, saved)
        assert spool.regions(version)[0].dtype == name
        loaded = spool.load(version, to="torch", device="cpu")
        assert loaded.dtype == dtype and bits(loaded) == bits(saved)
        target = torch.empty_like(whole)
        target = [target, target[::2, 1:], target.T][version]
        spool.restore(version, target)
        assert bits(target) == bits(saved)


def test_scalars_and_empty_tensors(spool: unspool.Spool) -> None:
    spool.save(0, torch.tensor(2.5), torch.zeros(0, 3))
    scalar, empty = spool.load(0, to="torch", device="cpu")
    assert scalar == 2.5 and empty.shape == (0, 3)


def test_a_tensor_that_requires_a_gradient_is_refused_with_the_remedy(
    spool: unspool.Spool,
) -> None:
    for tensor in (torch.zeros(3, requires_grad=True), torch.nn.Parameter(torch.zeros(3))):
        with pytest.raises(unspool.errors.ArrayError, match=r"tensor\.detach\(\)"):
            spool.save(0, tensor)
    spool.save(0, tensor.detach())
    with pytest.raises(unspool.errors.ArrayError, match=r"tensor\.detach\(\)"):
        spool.restore(0, tensor)
    tensor.data += 1
    spool.restore(0, tensor.detach())
    assert (tensor == 0).all()


def test_lazy_views_are_refused_because_their_bytes_are_another_value(
    spool: unspool.Spool,
) -> None:
    conjugated = torch.full((3,), 1 + 2j).conj()
    with pytest.raises(unspool.errors.ArrayError, match=r"resolve_conj\(\)"):
        spool.save(0, conjugated)
    with pytest.raises(unspool.errors.ArrayError, match=r"resolve_neg\(\)"):
        spool.save(0, conjugated.imag)
    spool.save(0, conjugated.resolve_conj(), conjugated.imag.resolve_neg())
    assert (spool.load(0)[1] == -2).all()


def test_tensors_without_cpu_memory_are_refused_in_one_line(spool: unspool.Spool) -> None:
    for tensor in (torch.zeros(3, device="meta"), torch.zeros(3).to_sparse()):
        with pytest.raises(unspool.errors.ArrayError) as refusal:
            spool.save(0, tensor)
        assert "\n" not in str(refusal.value)


def test_an_expanded_tensor_is_saved_and_not_restored_into(spool: unspool.Spool) -> None:
    expanded = torch.arange(3.0).expand(4, 3)
    spool.save(0, expanded)
    assert (spool.load(0) == expanded.numpy()).all()
    with pytest.raises(unspool.errors.ArrayError):
        spool.restore(0, expanded)


def test_libraries_mix(spool: unspool.Spool) -> None:
    spool.save(0, torch.arange(6.0).reshape(2, 3))
    target = np.zeros((2, 3), "f4")
    spool.restore(0, target)
    assert (target == np.arange(6).reshape(2, 3)).all()
    spool.save(1, np.zeros(3, "M8[s]"))
    with pytest.raises(unspool.errors.ArrayError, match="numpy"):
        spool.load(1, to="torch")

"""Deepwave's histories with a `Gradient`: bounds that follow from the accuracy of the gradient."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool.errors import OptionError
from unspool.types import FidelityWarning

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
deepwave = pytest.importorskip("deepwave", reason="pip install 'deepwave>=0.1,<0.2'")

from unspool.interop.deepwave import history  # noqa: E402

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]

MARMOUSI = Path(__file__).parents[3] / "shared" / "data" / "marmousi_vp_x1601_z401.f32"
STEPS, DX, DT = 150, 10.0, 0.002
WAVELET = deepwave.wavelets.ricker(12.0, STEPS, DT, 0.1).repeat(2, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    # What is computed is small, and threads that wait for one another would take most of the time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def layers():
    """A speed that varies, m/s."""
    return 1500 + 500 * torch.rand(30, 24, generator=torch.Generator().manual_seed(1))


def gradient(speed, codec=None, seen=1.0, wavelet=WAVELET, kind="scalar", **options):
    """The gradient of what two shots record, what was told, and the bytes of the history."""
    told, width = [], speed.shape[0]
    given, options = speed.clone().requires_grad_(), {"pml_width": 6, "pml_freq": 12.0} | options
    shots = torch.tensor([[[width // 3, 2]], [[width - 5, 2]]])
    receivers = torch.stack([torch.arange(2, width - 2), torch.full((width - 4,), 3)], -1)
    step = options.pop("dt", DT)
    options |= {"source_amplitudes": wavelet, "source_locations": shots}
    options |= {"receiver_locations": receivers.repeat(2, 1, 1)}
    tell = {"codec": codec, "fidelity": told.append} if codec is not None else {}
    with unspool.Spool(host_memory="64MiB", device="cpu") as spool:
        with history(spool, once=options.pop("once", True), **tell):
            received = getattr(deepwave, kind)(given, options.pop("dx", DX), step, **options)[-1]
        assert len(spool) > 0
        (seen * received[:, ::2]).square().sum().backward()
        assert len(spool) == 0
        stored = spool.stats().codec.stored_bytes
    return given.grad, told, stored


def off(found, exact):
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("target", [1e-2, 1e-4])
def test_gradients_are_as_accurate_as_asked_for(target):
    speed, order = layers(), unspool.Gradient(target)
    exact, _, _ = gradient(speed)
    first, (told,), _ = gradient(speed, order)
    assert torch.equal(first, exact), "the first one is that of lossless states"
    assert told.trials > 0 and told.estimate == 0 and set(told.arrays) == {"v"}
    second, (told,), stored = gradient(speed, order)
    assert target / 20 < off(second, exact) <= target
    assert off(second, exact) / 2 < told.estimate < 2 * off(second, exact)
    assert told.trials == 0 and 0 < told.stored_bytes == stored < told.raw_bytes / 3


@pytest.mark.skipif(not MARMOUSI.exists(), reason="the Marmousi model is not here")
def test_a_tenth_of_the_marmousi_model():
    speed = np.fromfile(MARMOUSI, "<f4").reshape(1601, 401)[::16, ::16].copy()
    given = {"dx": 120.0, "dt": 0.01, "pml_freq": 2.0}
    given["wavelet"] = deepwave.wavelets.ricker(2.0, STEPS, 0.01, 0.6).repeat(2, 1, 1)
    speed, order, target = 1000 * torch.from_numpy(speed), unspool.Gradient(1e-3), 1e-3
    exact, _, _ = gradient(speed, **given)
    gradient(speed, order, **given)
    second, (told,), stored = gradient(speed, order, **given)
    assert target / 20 < off(second, exact) <= target and told.estimate <= target
    assert stored < told.raw_bytes / 4


def test_a_graph_that_is_gone_back_through_twice_and_one_that_is_dropped():
    speed, order = layers(), unspool.Gradient(1e-2)
    with unspool.Spool(host_memory="64MiB", device="cpu") as spool:
        for _ in range(2):
            given = speed.clone().requires_grad_()
            with history(spool, codec=order):
                received = deepwave.scalar(
                    given,
                    DX,
                    DT,
                    source_amplitudes=WAVELET[:1],
                    source_locations=torch.tensor([[[9, 2]]]),
                    receiver_locations=torch.tensor([[[20, 3]]]),
                    pml_width=6,
                )[-1]
            energy = received.square().sum()
            found = [torch.autograd.grad(energy, given, retain_graph=True)[0] for _ in range(2)]
            assert torch.equal(*found)
            del received, energy
        assert len(spool) == 0


def test_where_nothing_can_be_promised_the_history_stays_lossless():
    speed, order = layers(), unspool.Gradient(1e-2)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", FidelityWarning)
        _, (told,), _ = gradient(speed, order, seen=0.0)
    assert any("the gradient is zero" in str(each.message) for each in said)
    assert told.bounds == () and order.learned is None


def test_what_makes_no_sense_is_refused():
    speed, order = layers(), unspool.Gradient(1e-2)
    with unspool.Spool(host_memory="1MiB", device="cpu") as spool:
        for wrong, match in (
            ({"codec": "lossless"}, "those of the spool"),
            ({"fidelity": print}, "give codec="),
            ({"codec": order, "fidelity": 3}, "not a function"),
            ({"codec": unspool.Gradient(1e-2, strict=True)}, "strict=True"),
        ):
            with pytest.raises(OptionError, match=match), history(spool, **wrong):
                pass
    with pytest.raises(OptionError, match="is measured"):
        density = torch.full_like(speed, 2000.0).requires_grad_()
        with unspool.Spool(host_memory="64MiB", device="cpu") as spool, history(spool, codec=order):
            received = deepwave.acoustic(
                speed.requires_grad_(),
                density,
                DX,
                DT,
                source_amplitudes_p=WAVELET[:1],
                source_locations_p=torch.tensor([[[9, 2]]]),
                receiver_locations_p=torch.tensor([[[20, 3]]]),
                pml_width=6,
            )[-3]
            received.square().sum().backward()
    with pytest.raises(OptionError, match="backward_callback would be called"):
        gradient(layers(), order, backward_callback=lambda state: None)

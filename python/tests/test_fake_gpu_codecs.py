"""Arrays on a GPU that are encoded, on the driver in plain memory: what the GPU reconstructs is
what the CPU does, bit for bit, and nothing waits that need not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import unspool
from unspool import Bound, Disk, Spool, codecs
from unspool.codecs import NvComp, Zfp

from codec_arrays import BOUNDS, FLOATS, SHAPES, assert_holds, wave, with_specials
from fake_gpu import LEGACY, CaiArray, DlpackArray, Driver
from helpers import same_bits

pytestmark = pytest.mark.fake_gpu

BOUND = Bound(range=1e-3)


@pytest.fixture
def spool(driver: Driver) -> Iterator[Spool]:
    options = {
        "device_memory": "32MiB",
        "host_memory": "32MiB",
        "device": "cuda",
        "debug": unspool.Debug(check_order=True),
    }
    with Spool(**options, codec=BOUND) as opened:
        yield opened


def expected(values: np.ndarray, codec: object = BOUND) -> np.ndarray:
    return codecs.decode(codecs.encode(values, codec))


def restored(spool: Spool, driver: Driver, version: int, like: np.ndarray) -> np.ndarray:
    target = CaiArray(driver, np.zeros_like(like))
    spool.restore(version, target)
    driver.synchronize()
    return target.numpy().reshape(like.shape)


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
def test_the_gpu_reconstructs_what_the_cpu_does(driver: Driver, bound: Bound) -> None:
    with Spool(device_memory="32MiB", host_memory="32MiB", device="cuda", codec=bound) as spool:
        for number, (dtype, shape) in enumerate((d, s) for d in FLOATS for s in SHAPES):
            values = with_specials(wave(shape, dtype, number), number)
            spool.save(number, CaiArray(driver, values))
            found = restored(spool, driver, number, values)
            assert same_bits(found, expected(values, bound))
            assert_holds(values, found, bound)
            assert same_bits(np.asarray(spool.load(number)), found)


def test_sizes_and_errors_are_those_of_the_cpu(spool: Spool, driver: Driver) -> None:
    for version, dtype in enumerate(FLOATS):
        values = wave((100, 120), dtype)
        spool.save(version, CaiArray(driver, values))
        found, wanted = spool.achieved(version)["0"], codecs.encode(values, BOUND).achieved
        assert wanted is not None and found.codec == "twine"
        assert found.stored_bytes == wanted.stored_bytes and found.outliers == wanted.outliers
        assert found.max_error == wanted.max_error
        assert found.rms_error == pytest.approx(wanted.rms_error)


def test_strided_arrays_are_encoded_as_dense_ones(spool: Spool, driver: Driver) -> None:
    whole = wave((60, 80), "float32")
    for version, cut in enumerate([np.s_[::2], np.s_[:, 3:70], np.s_[::-1, ::-3], np.s_[5]]):
        view = whole[cut]
        for offset, array in enumerate((CaiArray(driver, view), DlpackArray(driver, view))):
            spool.save(2 * version + offset, array)
        dense = expected(np.ascontiguousarray(view))
        target = CaiArray(driver, np.zeros_like(whole)[cut])
        spool.restore(2 * version, target)
        driver.synchronize()
        assert same_bits(target.numpy(), dense)
        assert same_bits(spool.load(2 * version + 1), dense)


def test_saves_and_restores_do_not_wait_for_the_gpu(spool: Spool, driver: Driver) -> None:
    values = [wave((64, 64), "float32", seed) for seed in range(12)]
    arrays = [CaiArray(driver, one) for one in values]
    target = CaiArray(driver, np.zeros_like(values[0]))
    spool.save(-1, arrays[0])
    driver.synchronize()
    driver.control("hold")
    for version, array in enumerate(arrays):
        spool.save(version, array)
    assert len(spool) == 13
    driver.control("release")
    for version, one in enumerate(values):
        spool.restore(version, target)
        driver.synchronize()
        assert same_bits(target.numpy(), expected(one))


def test_an_array_that_changes_behind_its_save_is_saved_as_it_was(
    spool: Spool, driver: Driver
) -> None:
    values = wave((64, 64), "float32")
    stream = driver.stream()
    array = CaiArray(driver, values, stream)
    spool.save(0, array)
    driver.fill(array.block, 0, array.count, stream)
    driver.synchronize()
    assert same_bits(restored(spool, driver, 0, values), expected(values))


def test_several_arrays_of_a_checkpoint_have_codecs_of_their_own(driver: Driver) -> None:
    chosen = {"u": BOUND, "w": Zfp(rate=8), "mask": None, "*": "lossless"}
    arrays = {name: wave((64, 64), "float32", seed) for seed, name in enumerate("uvw")}
    arrays["mask"] = (arrays["u"] > 0).astype(np.uint8)
    with Spool(
        device_memory="16MiB", device="cuda", codec=chosen, debug=unspool.Debug(check_codec=True)
    ) as spool:
        spool.save(0, **{name: CaiArray(driver, one) for name, one in arrays.items()})
        targets = {name: CaiArray(driver, np.zeros_like(one)) for name, one in arrays.items()}
        spool.restore(0, **targets)
        driver.synchronize()
        for name, codec in (("u", BOUND), ("w", Zfp(rate=8)), ("v", "lossless"), ("mask", None)):
            assert same_bits(targets[name].numpy(), expected(arrays[name], codec)), name
        made_by = {name: one.codec for name, one in spool.achieved(0).items()}
        assert made_by == {"u": "twine", "v": "twine", "w": "zfp", "mask": "raw"}


def test_arrays_of_host_and_gpu_cross_over(spool: Spool, driver: Driver) -> None:
    values = wave((100, 100), "float32")
    spool.save(0, values)
    assert same_bits(restored(spool, driver, 0, values), expected(values))
    spool.save(1, CaiArray(driver, values))
    target = np.zeros_like(values)
    spool.restore(1, target)
    assert same_bits(target, expected(values))


def test_a_long_history_goes_through_all_tiers(driver: Driver, tmp_path: Path) -> None:
    disk = Disk(tmp_path, compress="zstd")
    with Spool(
        device_memory="96KiB", host_memory="96KiB", disk=disk, device="cuda", codec=BOUND
    ) as spool:
        values = [wave((96, 128), "float32", seed) for seed in range(60)]
        spool.expect(reversed(range(60)), once=True)
        for version, one in enumerate(values):
            spool.save(version, CaiArray(driver, one))
        for version in reversed(range(60)):
            found = restored(spool, driver, version, values[version])
            assert same_bits(found, expected(values[version]))
        stats = spool.stats()
    assert stats.codec.ratio > 3 and stats.codec.codecs[0].encodes == 60
    assert stats.links and all(link.flush.transfers for link in stats.links)


def test_a_device_tier_is_written_and_read_in_place(spool: Spool, driver: Driver) -> None:
    values = wave((64, 64), "float32")
    with spool.writing(0, (64, 64), "float32") as room:
        driver.write(room.ptr, values)
    assert same_bits(restored(spool, driver, 0, values), expected(values))
    with spool.reading(0) as found:
        driver.synchronize()
        assert driver.read(found.ptr, found.nbytes) == expected(values).tobytes()


def test_a_device_tier_of_few_states_holds_what_the_codec_makes_of_them(driver: Driver) -> None:
    values = [np.zeros(65_536, np.float32) for _ in range(24)]
    for version, array in enumerate(values):
        noise = np.random.default_rng(version).integers(0, 2**32, 65_536, dtype=np.uint32)
        # A third cannot be compressed; all of the one in the middle cannot.
        part = 65_536 if version == 12 else 65_536 // 3
        array.view(np.uint32)[:part] = noise[:part]
    sizes = {"device_memory": 3 * values[0].nbytes, "host_memory": "16MiB"}
    debug = unspool.Debug(check_order=True)
    with Spool(**sizes, device="cuda", codec="lossless", debug=debug) as spool:
        array = CaiArray(driver, values[0])
        held = []
        for version, state in enumerate(values):
            driver.write(array.address, state)
            spool.save(version, array)
            driver.fill(array.address, 0xEE, state.nbytes, LEGACY)
            spool.achieved(version)
            held.append(spool.stats().tiers[0].copies)
        assert sum(held[6:12]) / 6 >= 0.8 * 3 * 2.9, held
        assert spool.stats().codec.launched == len(values) + 1
        for version in reversed(range(len(values))):
            assert same_bits(restored(spool, driver, version, values[0]), values[version])


def test_zfp_refuses_values_that_it_cannot_express(driver: Driver) -> None:
    values = with_specials(wave((64, 64), "float32"))
    with Spool(device_memory="16MiB", device="cuda", codec=Zfp(rate=8)) as spool:
        with pytest.raises(unspool.Error):
            spool.save(0, CaiArray(driver, values))
            spool.flush()
            spool.achieved(0)
        fine = wave((64, 64), "float32")
        spool.save(1, CaiArray(driver, fine))
        assert same_bits(restored(spool, driver, 1, fine), expected(fine, Zfp(rate=8)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zfp_of_a_fixed_rate_comes_back_from_every_tier_as_the_cpu_decodes_it(
    driver: Driver, tmp_path: Path, dtype: str
) -> None:
    shapes = [(1000,), (33, 47), (9, 10, 11)]
    arrays = [wave(shape, dtype, seed) for seed, shape in enumerate(shapes * 4)]
    options = {
        "device_memory": "16KiB",
        "host_memory": "16KiB",
        "disk": Disk(tmp_path),
        "device": "cuda",
    }
    for rate in (4, 8, 16):
        codec = Zfp(rate=rate)
        with Spool(**options, codec=codec) as spool:
            for version, values in enumerate(arrays):
                spool.save(version, CaiArray(driver, values))
            for version, values in reversed(list(enumerate(arrays))):
                wanted = expected(values, codec)
                assert spool.achieved(version)["0"].codec == "zfp"
                assert same_bits(restored(spool, driver, version, values), wanted)
                assert same_bits(np.asarray(spool.load(version)), wanted)


@pytest.fixture
def nvcomp(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has an nvCOMP too."""
    monkeypatch.setenv("UNSPOOL_NVCOMP", os.environ["UNSPOOL_CUDA_DRIVER"])


@pytest.mark.usefixtures("nvcomp")
@pytest.mark.parametrize("codec", [NvComp("lz4"), NvComp("bitcomp")], ids=repr)
def test_nvcomp_brings_back_every_bit(driver: Driver, tmp_path: Path, codec: NvComp) -> None:
    values = [np.repeat(wave((64, 64), "float32", seed), 16, axis=0) for seed in range(6)]
    with Spool(
        device_memory="512KiB",
        host_memory="512KiB",
        disk=Disk(tmp_path),
        device="cuda",
        codec=codec,
    ) as spool:
        for version, one in enumerate(values):
            spool.save(version, CaiArray(driver, one))
        for version, one in reversed(list(enumerate(values))):
            assert spool.achieved(version)["0"].codec == "nvcomp"
            assert same_bits(restored(spool, driver, version, one), one)
            assert same_bits(np.asarray(spool.load(version)), one)
        spool.save(6, values[0])
        assert same_bits(spool.load(6), values[0])


def test_a_gpu_without_nvcomp_says_what_to_install(driver: Driver) -> None:
    values = CaiArray(driver, wave((64, 64), "float32"))
    with (
        Spool(device_memory="1MiB", device="cuda", codec=NvComp("lz4")) as spool,
        pytest.raises(unspool.errors.ArrayError, match=r"pip install unspool\[nvcomp\]"),
    ):
        spool.save(0, values)

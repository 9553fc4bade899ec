"""Spools that encode: what comes back, what is told about it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import unspool
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unspool import Bound, Disk, Spool, codecs
from unspool.codecs import NvComp, Zfp

from codec_arrays import (
    BOUNDS,
    FLOATS,
    INTEGERS,
    SHAPES,
    any_bound,
    assert_holds,
    wave,
    with_specials,
)
from helpers import random_array, same_bits

COMPRESS = [None, "zstd", "lz4", "archive"]


def places(path: Path) -> list[dict[str, object]]:
    """Spools with memory, with both, and with a disk alone."""
    return [
        {"host_memory": "64MiB"},
        {"device_memory": "8MiB", "host_memory": "64MiB", "device": "cpu"},
        {"disk": path},
    ]


@pytest.mark.parametrize("bound", BOUNDS, ids=repr)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_bound_holds_through_a_spool(dtype: str, bound: Bound) -> None:
    with Spool(host_memory="64MiB", codec=bound) as spool:
        for version, shape in enumerate(SHAPES):
            values = with_specials(wave(shape, dtype, version), version)
            spool.save(version, values)
            target = np.zeros_like(values)
            spool.restore(version, target)
            assert_holds(values, target, bound)
            assert same_bits(np.asarray(spool.load(version)), target)


def test_every_place_gives_the_same_reconstruction(tmp_path: Path) -> None:
    values, bound = wave((100, 120), "float32"), Bound(range=1e-3)
    expected = codecs.decode(codecs.encode(values, bound))
    for options in places(tmp_path):
        with Spool(**options, codec=bound) as spool:
            for version in range(8):
                spool.save(version, values)
            spool.flush()
            for version in reversed(range(8)):
                assert same_bits(spool.load(version), expected)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
def test_lossless_keeps_every_bit(dtype: str) -> None:
    with Spool(
        host_memory="64MiB", codec="lossless", debug=unspool.Debug(check_codec=True)
    ) as spool:
        for version, shape in enumerate(SHAPES):
            values = random_array(shape, np.dtype(dtype))
            spool.save(version, values)
            assert same_bits(np.asarray(spool.load(version)), values)


def test_integers_under_a_bound_for_all_are_taken_without_loss() -> None:
    with Spool(host_memory="16MiB", codec=Bound(abs=0.1)) as spool:
        numbers, mask = np.arange(5000), np.arange(5000) % 3 == 0
        spool.save(0, u=wave((5000,), "float32"), n=numbers, mask=mask)
        found = spool.load(0)
        assert same_bits(found["n"], numbers) and same_bits(found["mask"], mask)
        achieved = spool.achieved(0)
        assert achieved["n"].max_error == 0.0 and achieved["n"].ratio > 2
        assert achieved["u"].max_error > 0.0


def test_each_array_may_have_a_codec_of_its_own() -> None:
    chosen = {"u": Bound(range=1e-3), "w": Zfp(rate=8), "mask": None, "*": "lossless"}
    arrays = {name: wave((64, 64), "float32", seed) for seed, name in enumerate("uvw")}
    arrays["mask"] = random_array((64, 64), np.dtype("uint8"))
    with Spool(host_memory="16MiB", codec=chosen) as spool:
        spool.save(3, **arrays)
        found, achieved = spool.load(3), spool.achieved(3)
        assert_holds(arrays["u"], found["u"], Bound(range=1e-3))
        assert same_bits(found["v"], arrays["v"]) and same_bits(found["mask"], arrays["mask"])
        made_by = {name: one.codec for name, one in achieved.items()}
        assert made_by == {"u": "twine", "v": "twine", "w": "zfp", "mask": "raw"}
        assert achieved["w"].stored_bytes < 64 * 64 * 4 / 3
        assert achieved["mask"].ratio == 1.0
        assert list(achieved) == [region.name for region in spool.regions(3)]
    with Spool(host_memory="16MiB", codec={0: "lossless"}) as spool:
        spool.save(0, arrays["u"], arrays["v"])
        assert [one.codec for one in spool.achieved(0).values()] == ["twine", "raw"]


def test_a_save_may_have_a_codec_of_its_own() -> None:
    values = wave((100, 100), "float32")
    with Spool(host_memory="16MiB", codec=Bound(range=1e-2)) as spool:
        spool.save(0, values)
        spool.save(1, values, codec="lossless")
        spool.save(2, values, codec="raw")
        spool.save(3, values, codec={"0": Bound(range=1e-4)})
        errors = [spool.achieved(version)["0"].max_error for version in range(4)]
        assert errors[0] > errors[3] > errors[1] == 0.0
        assert spool.achieved(2)["0"].codec == "raw"
        assert same_bits(spool.load(1), values) and same_bits(spool.load(2), values)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    shape=st.lists(st.integers(0, 40), max_size=3).map(tuple),
    dtype=st.sampled_from(FLOATS),
    bound=any_bound(),
    cut=st.sampled_from([np.s_[...], np.s_[::2], np.s_[::-1], np.s_[..., ::3]]),
    seed=st.integers(0, 1000),
)
def test_strided_arrays_of_any_shape_hold_their_bound(
    shape: tuple[int, ...], dtype: str, bound: Bound, cut: object, seed: int
) -> None:
    values = with_specials(wave(shape, dtype, seed), seed)
    values = values[cut] if shape else values
    values.flags.writeable = False
    # Targets for a whole array may be missed where errors are not spread evenly.
    check = bound.kind not in ("psnr", "l2")
    with Spool(host_memory="8MiB", codec=bound, debug=unspool.Debug(check_codec=check)) as spool:
        spool.save(0, values)
        whole = np.zeros(shape, dtype)
        target = whole[cut] if shape else whole
        spool.restore(0, target)
        assert_holds(np.ascontiguousarray(values), np.ascontiguousarray(target), bound)


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_other_libraries_save_into_and_load_from_encoded_spools(name: str) -> None:
    library = pytest.importorskip("jax.numpy" if name == "jax" else name)
    values, bound = wave((64, 64), "float32"), Bound(abs=1e-3)
    expected = codecs.decode(codecs.encode(values, bound))
    with Spool(host_memory="16MiB", codec=bound) as spool:
        spool.save(0, library.asarray(values))
        assert same_bits(np.asarray(spool.load(0, to=name)), expected)


def test_a_block_computes_in_memory_that_is_encoded_when_it_is_left() -> None:
    values, bound = wave((64, 64), "float32"), Bound(abs=1e-3)
    with Spool(host_memory="16MiB", codec={"u": bound}) as spool:
        with spool.writing(0, (64, 64), "float32", to="numpy") as u:
            u[:] = values
        with spool.writing(1, u=((64, 64), "float32"), n=(5, "int64")) as room:
            np.asarray(room["u"])[:] = values
            np.asarray(room["n"])[:] = 7
        assert same_bits(spool.load(0), values)
        with spool.reading(1) as found:
            assert_holds(values, np.asarray(found["u"]), bound)
            assert (np.asarray(found["n"]) == 7).all()
        with pytest.raises(ZeroDivisionError), spool.writing(2, 8, "float32"):
            raise ZeroDivisionError
        assert 2 not in spool and spool.achieved(1)["u"].codec == "twine"


@pytest.mark.parametrize("compress", COMPRESS)
def test_a_durable_history_is_found_again(tmp_path: Path, compress: str | None) -> None:
    values, bound = wave((200, 100), "float32"), Bound(range=1e-3)
    disk = Disk(tmp_path, durable=True, compress=compress)
    codec = {"u": bound, "w": Zfp(tolerance=1e-3), "*": "lossless"}
    with Spool(host_memory="16MiB", disk=disk, codec=codec) as spool:
        for version in range(4):
            spool.save(version, u=values * (1 + version), v=values, w=values, k=np.arange(100))
        expected = [spool.load(version)["u"] for version in range(4)]
    # Neither the codec nor the way of compressing need be given to read.
    with Spool(host_memory="16MiB", disk=Disk(tmp_path, durable=True)) as spool:
        assert spool.versions() == [0, 1, 2, 3]
        for version in range(4):
            found = spool.load(version)
            assert same_bits(found["u"], expected[version])
            assert_holds(values * np.float32(1 + version), found["u"], bound)
            assert same_bits(found["v"], values) and same_bits(found["k"], np.arange(100))
            assert spool.achieved(version)["u"].ratio > 3


@pytest.mark.parametrize("compress", ["zstd", "lz4", "archive"])
def test_a_compressed_disk_holds_fewer_bytes_and_loses_none(tmp_path: Path, compress: str) -> None:
    values = np.round(wave((300, 400), "float32"), 3)
    used = []
    for name, how in (("plain", None), ("small", compress)):
        (tmp_path / name).mkdir()
        with Spool(disk=Disk(tmp_path / name, compress=how)) as spool:
            spool.save(0, values)
            spool.flush()
            frames = [path for path in (tmp_path / name).rglob("*") if path.is_file()]
            used.append(sum(path.stat().st_size for path in frames))
            assert same_bits(spool.load(0), values)
    assert used[1] < 0.8 * used[0]


def test_the_figures_count_what_encoding_brought(tmp_path: Path) -> None:
    values = wave((128, 128), "float32")
    with Spool(host_memory="1MiB", disk=tmp_path, codec=Bound(range=1e-3)) as spool:
        assert spool.stats().codec == unspool.stats.CodecStats()
        for version in range(20):
            spool.save(version, values, np.arange(100))
        for version in range(20):
            spool.load(version)
        stats, achieved = spool.stats().codec, spool.achieved(7)
    assert stats.raw_bytes == 20 * (values.nbytes + 800)
    assert stats.stored_bytes < stats.raw_bytes / 3
    assert stats.ratio == stats.raw_bytes / stats.stored_bytes
    assert stats.max_error == achieved["0"].max_error > 0
    assert stats.rms_error <= achieved["0"].rms_error
    (twine,) = stats.codecs
    assert (twine.name, twine.encodes, twine.raw_bytes) == ("twine", 40, stats.raw_bytes)
    assert twine.decodes >= 40 and twine.encode_seconds > 0 and twine.decode_seconds > 0
    whole = spool.stats()
    assert json.loads(json.dumps(whole.to_dict()))["codec"]["ratio"] == stats.ratio
    rows = [line.split() for line in str(whole).splitlines()]
    assert ["twine", "40"] in [row[:2] for row in rows]


def test_a_spool_without_codecs_shows_none_of_their_figures() -> None:
    with Spool(host_memory="1MiB") as spool:
        spool.save(0, np.zeros(100))
        assert spool.stats().codec.codecs == () and "codec" not in str(spool.stats())
        achieved = spool.achieved(0)["0"]
        assert (achieved.codec, achieved.ratio) == ("raw", 1.0)


def test_auto_never_loses_anything(tmp_path: Path) -> None:
    with Spool(host_memory="2MiB", disk=tmp_path, codec="auto") as spool:
        for version in range(40):
            spool.save(version, wave((64, 256), "float32", version), np.arange(10))
        for version in reversed(range(40)):
            found = spool.load(version)
            assert same_bits(found[0], wave((64, 256), "float32", version))
        used = {one.codec for one in spool.achieved(3).values()}
        assert used <= {"raw", "twine"}
        auto = spool.stats().auto
        assert auto is not None and auto.latest
        decided = auto.stays + auto.keeps_up + auto.not_worth_it
        assert decided + auto.chosen + auto.tried == 40
        assert spool.stats().to_dict()["auto"]["latest"] == auto.latest


def test_a_larger_history_fits_the_same_memory() -> None:
    values = wave((256, 256), "float32")
    with Spool(host_memory="2MiB", codec=Bound(range=1e-3)) as spool:
        for version in range(20):
            spool.save(version, values)
        assert len(spool) == 20 and spool.stats().tiers[0].peak <= 2 << 20
        for version in range(20):
            assert_holds(values, spool.load(version), Bound(range=1e-3))


def test_what_is_no_codec_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    for codec in ("gzip", 1e-3, Bound, {"u": "gzip"}, {}):
        with pytest.raises(unspool.errors.OptionError, match=r"Spool\(codec=...\)"):
            Spool(host_memory="1MiB", codec=codec)
    with (
        Spool(host_memory="1MiB") as spool,
        pytest.raises(unspool.errors.OptionError, match="save"),
    ):
        spool.save(0, np.zeros(3), codec="gzip")
    with pytest.raises(unspool.errors.OptionError, match="archive"):
        Spool(disk=Disk(tmp_path, compress="gzip"))
    with pytest.raises(unspool.errors.OptionError, match="durable"):
        Spool(host_memory="1MiB", disk=Disk(tmp_path, durable=True), codec=NvComp("lz4"))


def test_a_codec_that_is_named_for_an_array_has_to_fit_its_dtype() -> None:
    with Spool(host_memory="1MiB", codec={"n": Bound(abs=1)}) as spool:
        with pytest.raises(unspool.errors.ArrayError, match="lossless"):
            spool.save(0, n=np.arange(1000))
        spool.save(0, m=np.arange(1000))
        assert 0 in spool and len(spool) == 1


def test_zfp_refuses_what_it_cannot_express_and_the_spool_goes_on() -> None:
    values = wave((64, 64), "float32")
    with Spool(host_memory="1MiB", codec=Zfp(rate=8)) as spool:
        broken = values.copy()
        broken[3, 3] = np.nan
        with pytest.raises(unspool.Error):
            spool.save(0, broken)
        spool.save(0, values)
        assert np.abs(spool.load(0) - values).max() < 0.1


def test_a_name_that_no_array_has_is_said() -> None:
    spool = Spool(host_memory="1MiB", codec={"u": "lossless", "vv": "lossless"})
    spool.save(1, u=np.zeros(3), v=np.zeros(3))
    with pytest.warns(RuntimeWarning, match="names vv, and no array"):
        spool.close()
    with Spool(host_memory="1MiB", codec={"u": "lossless"}):
        pass
    with Spool(host_memory="1MiB") as spool:
        with pytest.raises(unspool.errors.OptionError, match="names w, and the arrays are u, v"):
            spool.save(1, u=np.zeros(3), v=np.zeros(3), codec={"w": "lossless"})
        spool.save(1, u=np.zeros(3), v=np.zeros(3), codec={"u": "lossless"})

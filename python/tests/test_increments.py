"""Histories of increments: what comes back, in any order, and what stays in the spool."""

from __future__ import annotations

import functools
import math
import random
import tracemalloc
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import unspool
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from unspool import Bound, IncrementalSpool, Spool
from unspool._increments.chain import Chain
from unspool.errors import (
    ArrayError,
    CapacityError,
    ClosedError,
    CorruptCheckpointError,
    LostCheckpointError,
    OptionError,
    StorageError,
    UnknownVersionError,
    VersionExistsError,
)

from helpers import same_bits

BOUND = 1e-3


@pytest.fixture
def base() -> Iterator[Spool]:
    """The spool that differences go to."""
    with Spool(host_memory="64MiB", device="cpu") as opened:
        yield opened


def within(found: np.ndarray, saved: np.ndarray, bound: float) -> bool:
    """Whether values are within the bound in real numbers, and others have the same bits."""
    if found.dtype.kind == "c":
        pairs = (found.real, saved.real), (found.imag, saved.imag)
        return all(within(one, other, bound) for one, other in pairs)
    found, saved = np.atleast_1d(found), np.atleast_1d(saved)
    finite = np.isfinite(saved)
    values = zip(found[finite].tolist(), saved[finite].tolist(), strict=True)
    limit = Fraction(bound)
    return same_bits(found[~finite], saved[~finite]) and all(
        math.isfinite(x) and abs(Fraction(x) - Fraction(y)) <= limit for x, y in values
    )


def on_grid(array: np.ndarray, bound: float = BOUND) -> np.ndarray:
    """What an array of ordinary values in float64 becomes by the rule of Twine."""
    step = 2 * (bound * (1 - 2.0**-48))
    return np.rint(array * (1 / step)) * step


def walk(count: int, shape: tuple[int, ...] = (40, 25), seed: int = 5) -> list[np.ndarray]:
    """States of a random walk, some with values that are not numbers."""
    drawn = np.random.default_rng(seed)
    state, found = drawn.normal(size=shape), []
    for step in range(count):
        state = state + BOUND * drawn.normal(size=shape)
        found.append(state.copy())
        if step % 7 == 3:
            found[-1].flat[step : step + 3] = np.nan, -np.inf, 1e300
    return found


FLOATS = st.sampled_from(["f4", "f8", "c8", "c16"])
BOUNDS = st.floats(5e-324, 1.7e308) | st.sampled_from([5e-324, 1e-40, 1e-30, 1.0, 1e38, 1.7e308])


@st.composite
def two_states(draw: st.DrawFn) -> list[np.ndarray]:
    shape = draw(arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    dtype = draw(FLOATS)
    return [draw(arrays_of.arrays(dtype, shape)) for _ in range(2)]


@given(two_states(), BOUNDS)
@settings(deadline=None)
def test_the_bound_holds_in_real_numbers_for_any_values(
    states: list[np.ndarray], bound: float
) -> None:
    with IncrementalSpool(Spool(host_memory="1MiB", device="cpu"), Bound(abs=bound)) as history:
        for version, state in enumerate(states):
            history.save(version, state)
        for version, state in enumerate(states):
            assert within(history.load(version), state, bound)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("bound", [1e-3, 0.25, 3e-30, 1e30])
def test_values_at_the_ends_of_whole_numbers_keep_to_the_bound(dtype: str, bound: float) -> None:
    ends = [2.0**k + d for k in (23, 24, 30, 31, 32, 51, 52, 53, 62, 63, 64) for d in (-1, -0.5, 0)]
    steps = np.array([*ends, 1e9, 999_999_999.5, 4.5e15, 1.5, 2.5, 0.5, -0.0], "f8")
    info = np.finfo(dtype)
    with np.errstate(over="ignore"):
        state = (np.concatenate([steps, -steps]) * 2 * bound).astype(dtype)
    others = np.array([info.max, -info.max, info.tiny, info.smallest_subnormal, np.nan], dtype)
    state = np.concatenate([state, others])
    with IncrementalSpool(Spool(host_memory="1MiB", device="cpu"), Bound(abs=bound)) as history:
        history.save(0, state)
        history.save(1, -state)
        assert within(history.load(0), state, bound) and within(history.load(1), -state, bound)


NAMES = ["f4", "f8", "c8", "c16", "f2", "i1", "u2", "i4", "u8", "?", "bfloat16"]


def drawn_state(seed: int) -> dict[str, np.ndarray]:
    """An array of each dtype, of other shapes now and then."""
    drawn = np.random.default_rng(seed)
    shape = (3, 0, 2) if seed % 11 == 0 else () if seed % 7 == 0 else (5, 3)
    found = {}
    for name in NAMES:
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
        values = drawn.normal(size=shape) + 100
        found[name] = np.asarray(values + 1j * values if dtype.kind == "c" else values).astype(
            dtype
        )
    return found


CALLS = st.lists(
    st.tuples(st.sampled_from(["save", "save", "save", "restore", "discard"]), st.integers(0, 12)),
    max_size=40,
)


@given(CALLS, st.integers(1, 5), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_order_of_calls_gives_what_full_frames_give(
    calls: list[tuple[str, int]], every: int, settles: bool
) -> None:
    with (
        Spool(host_memory="16MiB", device="cpu") as full,
        IncrementalSpool(
            base := Spool(host_memory="16MiB", device="cpu"), Bound(abs=BOUND), full=every
        ) as it,
    ):
        for number, (call, version) in enumerate(calls):
            if call == "save" and version not in full:
                full.save(version, **drawn_state(number))
                it.save(version, **drawn_state(number))
            elif call == "discard" and version in full:
                full.discard(version)
                it.discard(version)
            elif call == "restore" and version in full:
                check(it, full, version)
            if settles and number % 5 == 4:
                it.flush()
            assert it.versions() == full.versions()
            # What is left of discarded states is in the chains of others.
            assert len(base) <= every * len(full)
        for version in full:
            check(it, full, version)
        for version in list(full):
            it.discard(version)
        assert len(base) == len(it) == 0


def check(it: IncrementalSpool, full: Spool, version: int) -> None:
    """One version is right in both ways of asking for it."""
    saved, loaded = full.load(version), it.load(version)
    given_back = {name: np.full_like(array, 7) for name, array in saved.items()}
    it.restore(version, **given_back)
    for name, array in saved.items():
        assert same_bits(given_back[name], loaded[name])
        if name in ("f4", "f8", "c8", "c16"):
            assert within(loaded[name], array, BOUND)
        else:
            assert same_bits(loaded[name], array)


@pytest.mark.parametrize("every", [1, 7, 16, 1000])
def test_errors_do_not_add_up_in_a_chain_of_a_hundred(base: Spool, every: int) -> None:
    states = walk(100)
    history = IncrementalSpool(base, Bound(abs=BOUND), full=every)
    for version, state in enumerate(states):
        history.save(version, state)
    for version in [0, *reversed(range(100)), *np.random.default_rng(1).permutation(100)]:
        found = history.load(version)
        assert within(found, states[version], BOUND)
        ordinary = abs(states[version]) < 1e9
        assert (found[ordinary] == on_grid(states[version])[ordinary]).all()


def test_a_reverse_sweep_reads_one_difference_a_state_and_leaves_nothing(base: Spool) -> None:
    states, target = walk(40), np.empty((40, 25))
    history = IncrementalSpool(base, Bound(abs=BOUND), full=40)
    for version, state in enumerate(states):
        history.save(version, state)
    before = base.stats().restores
    for version in reversed(range(40)):
        history.restore(version, target)
        history.discard(version)
        assert within(target, states[version], BOUND)
        assert base.versions() == list(range(version))
    assert base.stats().restores - before == 39


def test_what_is_read_back_once_goes_after_its_last_restore(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND), full=3)
    for version in range(7):
        history.save(version, np.full(100, float(version)))
    history.expect([*reversed(range(7)), 2], once=True)
    for version in reversed(range(7)):
        assert abs(history.load(version) - version).max() <= BOUND
    assert history.versions() == [2]
    target = np.zeros(100)
    history.restore(2, target)
    assert abs(target - 2).max() <= BOUND and len(history) == len(base) == 0


def test_a_restore_in_any_order_reads_at_most_every_checkpoints(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND), full=8)
    for version, state in enumerate(walk(50)):
        history.save(version, state)
    for version in range(50):
        before = base.stats().restores
        history.load(version)
        assert base.stats().restores - before <= 8


def test_differences_take_less_where_states_change_little(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    with Spool(host_memory="64MiB", device="cpu", codec=Bound(abs=BOUND)) as plain:
        for version, state in enumerate(walk(33)):
            history.save(version, state)
            plain.save(version, state)
        plain.flush()
        assert len(base) == 32
        history.flush()
        assert len(base) == 33
        stored = base.stats().codec.stored_bytes, plain.stats().codec.stored_bytes
    assert stored[0] < stored[1] / 2


def test_memory_holds_the_newest_state_and_the_one_that_was_restored_last(base: Spool) -> None:
    state = np.random.default_rng(1).normal(size=(1 << 16,))
    # Two whole numbers for each value.
    size, history = 2 * state.nbytes, IncrementalSpool(base, Bound(abs=BOUND))
    tracemalloc.start()
    try:
        for version in range(3):
            history.save(version, state)
        assert round(tracemalloc.get_traced_memory()[0] / size) == 1
        history.restore(0, np.empty_like(state))
        assert round(tracemalloc.get_traced_memory()[0] / size) == 2
        history.save(3, state)
        assert round(tracemalloc.get_traced_memory()[0] / size) == 1
        history.restore(0, np.empty_like(state))
        history.discard(0)
        assert round(tracemalloc.get_traced_memory()[0] / size) == 1
        for version in (1, 2, 3):
            history.discard(version)
        assert round(tracemalloc.get_traced_memory()[0] / size) == 0
    finally:
        tracemalloc.stop()


def test_the_spool_hears_of_a_tier_when_the_state_is_stored(
    base: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, heard = IncrementalSpool(base, Bound(abs=BOUND)), []
    monkeypatch.setattr(Spool, "_prefer", lambda _, version, tier: heard.append((version, tier)))
    history.save(0, np.zeros(3))
    history._prefer(0, "host")
    assert heard == []
    history.save(1, np.ones(3))
    assert heard == [(0, "host")]
    history._prefer(0, "host")
    assert heard == [(0, "host")] * 2


def test_a_tier_that_is_not_there_is_refused_for_states_that_are_held_too(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    for version in (0, 1):
        history.save(version, np.ones(3))
    for version in (0, 1):
        with pytest.raises(OptionError, match="no disk tier"):
            history._prefer(version, "disk")
    history.save(2, np.zeros(3))
    assert within(history.load(1), np.ones(3), BOUND)


def test_arrays_may_be_changed_after_the_call_and_what_is_loaded_too(base: Spool) -> None:
    history = IncrementalSpool(base, {"u": Bound(abs=BOUND), "*": "lossless"})
    u, count = np.arange(6.0).reshape(2, 3), np.arange(6)
    for version in range(3):
        history.save(version, u=u.T, n=count[::-2])
        u += 1
        count += 1
    for _ in range(2):
        found = history.load(1)
        assert within(found["u"], np.arange(1.0, 7).reshape(2, 3).T, BOUND)
        assert found["n"].tolist() == [6, 4, 2]
        found["u"][:], found["n"][:] = 99, 99


def test_states_by_position_by_name_and_as_trees_come_back_as_they_were_given(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    u, v = np.zeros(3), np.ones((2, 2), "f4")
    history.save(0, u, v)
    history.save(1, u=u, v=v)
    history.save(2, {"u": u, "inner": [v, 0.5, "text"]})
    history.save(3, u)
    assert isinstance(history.load(0), tuple) and list(history.load(1)) == ["u", "v"]
    assert history.load(2)["inner"][1:] == [0.5, "text"] and history.load(3).shape == (3,)
    target = {"u": np.ones(3), "inner": [np.zeros((2, 2), "f4"), 0.0, ""]}
    history.restore(2, target)
    assert (target["u"] == u).all() and within(target["inner"][0], v, BOUND)
    assert target["inner"][1:] == [0.5, "text"]
    history.restore(1, v=(some := np.zeros((2, 2), "f4")))
    assert within(some, v, BOUND)
    assert sorted(history) == [0, 1, 2, 3] and len(history) == 4 and 2 in history


def test_anything_with_the_buffer_protocol_is_taken(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    buffer = bytearray(np.arange(4, dtype=np.uint8))
    history.save(0, memoryview(buffer))
    target = bytearray(4)
    history.restore(0, target)
    assert target == buffer


def test_a_codec_of_one_save_takes_the_place_of_the_bound(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=0.5))
    exact = np.array([0.1, 0.2])
    history.save(0, exact)
    history.save(1, exact, codec="raw")
    history.save(2, exact)
    assert (history.load(1) == exact).all()
    assert (history.load(0) == 0).all() and (history.load(2) == 0).all()


def test_a_version_can_be_saved_again_while_others_are_built_on_what_it_was(base: Spool) -> None:
    states = walk(8)
    history = IncrementalSpool(base, Bound(abs=BOUND))
    for version in range(4):
        history.save(version, states[version])
    history.discard(2)
    assert 2 in base and 2 not in history
    history.save(2, states[7])
    for version, number in {0: 0, 1: 1, 2: 7, 3: 3}.items():
        assert within(history.load(version), states[number], BOUND)
    for version in (1, 0, 2, 3):
        history.discard(version)
    assert len(base) == 0


def test_what_does_not_fit_is_not_saved_and_all_that_was_comes_back() -> None:
    states = walk(100, (64, 64))
    with Spool(host_memory="128KiB", device="cpu", timeout=5) as small:
        history = IncrementalSpool(small, Bound(abs=BOUND), full=10)
        with pytest.raises(CapacityError) as full:
            for version, state in enumerate(states):
                history.save(version, state)
        assert 4 < version < 100 and full.value.version == version
        assert full.value.__notes__ == [
            f"Version {version} is not saved: the state before it is stored first."
        ]
        assert history.versions() == list(range(version))
        for back in reversed(range(version)):
            assert within(history.load(back), states[back], BOUND)
            history.discard(back)
            # There is room again, and the chain goes on from the state that is the newest now.
            if back == version // 2:
                for again in range(back, back + 3):
                    history.save(again, states[again])
                for again in (back + 1, back, back + 2):
                    assert within(history.load(again), states[again], BOUND)
                for again in (back, back + 1, back + 2):
                    history.discard(again)
        assert len(small) == 0


def test_a_save_that_is_interrupted_leaves_no_difference_to_a_state_that_is_not_there(
    base: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, states = IncrementalSpool(base, Bound(abs=BOUND)), walk(4)
    for version in (0, 1):
        it.save(version, states[version])

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # After the difference of state 1 to this one was stored.
        patch.setattr(Chain, "_free", interrupted)
        with pytest.raises(KeyboardInterrupt):
            it.save(2, states[2])
    assert it.versions() == [0, 1]
    it.save(3, states[3])
    for version in (3, 1, 0):
        assert within(it.load(version), states[version], BOUND), version


class Failing:
    """A spool whose calls fail at random, before or after they have done what they do."""

    def __init__(self, spool: Spool, drawn: random.Random) -> None:
        self._spool, self._drawn, self.often = spool, drawn, 0.0

    def _do(self, name: str, *given: Any, **more: Any) -> Any:
        self._fail()
        done = getattr(self._spool, name)(*given, **more)
        self._fail()
        return done

    def _fail(self) -> None:
        if self._drawn.random() < self.often:
            raise StorageError("broken") if self._drawn.random() < 0.7 else KeyboardInterrupt

    def __contains__(self, version: object) -> bool:
        return bool(self._do("__contains__", version))

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._do, name)


def fails_at_random(seed: int) -> int:
    """One history whose spool fails now and then; how often it did."""
    drawn, values = random.Random(seed), np.random.default_rng(seed)
    kept: dict[int, np.ndarray] = {}
    failed = 0
    with Spool(host_memory="8MiB", device="cpu") as base:
        it = IncrementalSpool(base, Bound(abs=BOUND), full=drawn.randint(1, 5))
        it._chain._spool = spool = Failing(base, drawn)  # type: ignore[assignment]
        for _ in range(40):
            spool.often, version = drawn.choice([0, 0, 0.15, 0.4]), drawn.randrange(8)
            state = values.normal(size=drawn.choice([5, 5, 5, 7]))
            try:
                if version not in kept:
                    it.save(version, state)
                    kept[version] = state
                elif drawn.random() < 0.4:
                    it.discard(version)
                else:
                    assert within(it.load(version), kept[version], BOUND)
            except (StorageError, KeyboardInterrupt):
                failed += 1
            # A discard that fails may leave bytes in the spool, and not the version.
            kept = {key: one for key, one in kept.items() if key in it}
            assert it.versions() == sorted(kept)
        spool.often = 0
        for version in drawn.sample(sorted(kept), len(kept)):
            assert within(it.load(version), kept[version], BOUND), (seed, version)
    return failed


def test_calls_of_the_spool_that_fail_change_nothing_that_was_saved() -> None:
    assert sum(map(fails_at_random, range(100))) > 300


def on_disk(path: Path, states: list[np.ndarray], full: int) -> IncrementalSpool:
    """A history of which memory holds two states, on a disk that keeps its files."""
    room = 2 * states[0].nbytes
    spool = Spool(host_memory=room, disk=unspool.Disk(path, durable=True), device="cpu")
    history = IncrementalSpool(spool, Bound(abs=BOUND), full=full)
    for version, state in enumerate(states):
        history.save(version, state)
    history.flush()
    return history


def test_a_damaged_difference_is_named_with_what_is_built_on_it(tmp_path: Path) -> None:
    states = walk(100, (128, 128))
    with on_disk(tmp_path, states, full=10) as history:
        # The frames are in the order of the saves; one that has left memory is damaged.
        frame = sorted(tmp_path.glob("frame-*"))[25]
        content = bytearray(frame.read_bytes())
        content[len(content) // 2] ^= 1
        frame.write_bytes(content)
        broken = []
        for version in reversed(range(100)):
            try:
                assert within(history.load(version), states[version], BOUND)
            except CorruptCheckpointError as error:
                assert error.version == version and "version 25" in str(error)
                assert (f"Version {version} is built on" in str(error)) == (version != 25)
                broken.append(version)
        # A chain of ten ends with version 29, which is stored in full.
        assert broken == [25, 24, 23, 22, 21, 20]


def test_a_checkpoint_that_is_gone_is_named_with_what_is_built_on_it(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    for version, state in enumerate(walk(5)):
        history.save(version, state)
    base.discard(2)
    with pytest.raises(LostCheckpointError, match="Version 1 is built on version 2") as lost:
        history.load(1)
    assert lost.value.version == 1
    assert within(history.load(3), walk(5)[3], BOUND)


def test_spools_and_codecs_that_cannot_be_used_are_refused(base: Spool) -> None:
    for codec in (None, "lossless", {"u": "raw"}):
        with pytest.raises(OptionError, match="without a bound"):
            IncrementalSpool(base, codec)
    for codec in (Bound(range=1e-4), Bound(pointwise=1e-3), unspool.codecs.Zfp(rate=8), "auto"):
        with pytest.raises(OptionError, match=r"Bound\(abs=...\)"):
            IncrementalSpool(base, codec)
    for every in (0, 1.5):
        with pytest.raises(OptionError, match="full"):
            IncrementalSpool(base, Bound(abs=1), full=every)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="not a Spool"):
        IncrementalSpool("spool", Bound(abs=1))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="leave one of them out"):
        IncrementalSpool(base, Bound(abs=1)).expect([1], once=True, last=True)
    base.save(1, np.zeros(3))
    with pytest.raises(OptionError, match="not empty"):
        IncrementalSpool(base, Bound(abs=1))


class OnGpu:
    """An array of a GPU whose library is none that computes here."""

    def __init__(self) -> None:
        self.shape, self.dtype = (3,), np.dtype("f8")
        self.__cuda_array_interface__ = {"shape": (3,), "typestr": "<f8", "data": (8, False)}


def test_calls_that_make_no_sense_are_refused_and_change_nothing(base: Spool) -> None:
    history = IncrementalSpool(base, Bound(abs=BOUND))
    u = np.arange(3.0)
    history.save(5, u)
    read_only = np.zeros(3)
    read_only.flags.writeable = False
    refused: list[tuple[type[unspool.Error], Any]] = [
        (VersionExistsError, lambda: history.save(5, u)),
        (ArrayError, lambda: history.save(5 + 1)),
        (ArrayError, lambda: history.save(6, u, v=u)),
        (ArrayError, lambda: history.save(6, OnGpu())),
        (ArrayError, lambda: history.save(6, np.zeros(3, ">f8"))),
        (ArrayError, lambda: history.save(6, np.zeros(3, [("a", "f4")]))),
        (ArrayError, lambda: history.restore(5, np.zeros(4))),
        (ArrayError, lambda: history.restore(5, np.zeros(3, "f4"))),
        (ArrayError, lambda: history.restore(5, u, u)),
        (ArrayError, lambda: history.restore(5, u=u)),
        (ArrayError, lambda: history.restore(5)),
        (ArrayError, lambda: history.restore(5, read_only)),
        (ArrayError, lambda: history.restore(5, bytes(24))),
        (UnknownVersionError, lambda: history.restore(6, u)),
        (UnknownVersionError, lambda: history.discard(6)),
        (OptionError, lambda: history.load(5, to="mxnet")),
    ]
    for kind, call in refused:
        with pytest.raises(kind) as raised:
            call()
        assert raised.value.version in (5, 6), raised.value
    assert history.versions() == [5] and within(history.load(5), u, BOUND)
    with pytest.raises(AttributeError, match="no attribute 'reading'"):
        history.reading(5)
    history.close()
    assert history.closed
    with pytest.raises(ClosedError):
        history.load(5)


def test_arrays_of_jax_are_saved_and_loaded(base: Spool) -> None:
    jax = pytest.importorskip("jax")
    numbers = jax.numpy.arange(12, dtype="float32").reshape(3, 4) / 7
    history = IncrementalSpool(base, Bound(abs=BOUND))
    for version in range(5):
        history.save(version, u=numbers + version, z=numbers * (1 + 2j), flags=numbers > 1)
    for to in ("jax", "numpy", "jax"):
        for version in (4, 3, 0, 2):
            found = history.load(version, to=to, device="cpu")
            assert type(found["u"]).__module__.startswith("jax") == (to == "jax")
            assert within(np.asarray(found["u"]), np.asarray(numbers + version), BOUND)
            assert within(np.asarray(found["z"]), np.asarray(numbers * (1 + 2j)), BOUND)
            assert (np.asarray(found["flags"]) == np.asarray(numbers > 1)).all()
    with pytest.raises(ArrayError, match="use load"):
        history.restore(0, u=numbers)

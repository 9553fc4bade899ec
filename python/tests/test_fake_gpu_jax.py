"""What programs of JAX call on a GPU, on the driver that `UNSPOOL_CUDA_DRIVER` names: which history
a call means when nothing on the device can be read yet."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import unspool
from unspool._unspool import jax_forget, jax_loop, jax_tidied_by

from fake_gpu import Driver
from xla_calls import Extension, Failed, Frame, Metadata, Version, Xla, sized, token

pytestmark = pytest.mark.fake_gpu

STEPS = 5


@pytest.fixture
def spool(driver: Driver) -> Iterator[unspool.Spool]:
    with unspool.Spool(
        device_memory="4KiB",
        host_memory="32MiB",
        device="cuda",
        debug=unspool.Debug(check_order=True),
    ) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nobody_asks() -> Iterator[None]:
    """The tokens here are no arrays of JAX, which is asked where it is imported."""
    asked = jax_tidied_by(None)
    yield
    jax_tidied_by(asked)


class Program:
    """A loop on the device: a state that is counted up, and a token."""

    def __init__(self, driver: Driver, xla: Xla, loop: int, site: int = 1) -> None:
        self.driver, self.xla, self.names = driver, xla, {"loop": loop, "site": site}
        self.like = np.zeros((3, 100), np.float32)
        self.state = driver.allocate(self.like.nbytes)
        self.token = driver.allocate(8)

    def values(self, n: float) -> np.ndarray:
        return np.full_like(self.like, n)

    def call(self, name: str, *, operand: bool = False, result: bool = False) -> None:
        held, state = (self.token, token()), (self.state, self.like)
        operands = [held, state] if operand else [held]
        results = [held, state] if result else [held]
        self.xla.call(name, operands, results, **self.names)

    def begin(self) -> None:
        self.call("begin")

    def save(self, n: float) -> None:
        self.driver.write(self.state, self.values(n), self.xla.stream)
        self.call("save", operand=True)
        # The program goes on: what is saved is what was there when the call was enqueued.
        self.driver.fill(self.state, 255, self.like.nbytes, self.xla.stream)

    def forwards(self, first: float) -> None:
        self.begin()
        for n in range(STEPS):
            self.save(first + n)
        self.call("end")

    def restored(self) -> float:
        self.call("restore", result=True)
        self.driver.synchronize()
        found = np.frombuffer(self.driver.read(self.state, self.like.nbytes), np.float32)
        assert np.all(found == found[0])
        return float(found[0])

    def backwards(self) -> list[float]:
        self.call("rewind")
        return [self.restored() for _ in range(STEPS)]


def expected(first: float) -> list[float]:
    return [first + n for n in reversed(range(STEPS))]


@pytest.fixture
def xla(driver: Driver) -> Xla:
    return Xla(driver.stream())


def test_states_come_back_in_the_reverse_order(
    spool: unspool.Spool, driver: Driver, xla: Xla
) -> None:
    program = Program(driver, xla, jax_loop([spool]))
    program.forwards(1.0)
    # The backward pass is another execution.
    xla.run += 1
    assert program.backwards() == expected(1.0)
    assert len(spool) == 0


def test_a_forward_pass_waits_for_nothing_on_the_device(driver: Driver, xla: Xla) -> None:
    with unspool.Spool(device_memory="1MiB", device="cuda") as spool:
        program = Program(driver, xla, jax_loop([spool]))
        driver.control("hold_stream", ctypes.c_void_p(xla.stream))
        # Nothing that is enqueued takes effect before the release: who waited would wait for ever.
        program.forwards(1.0)
        driver.control("release")
        assert program.backwards() == expected(1.0)


def test_histories_of_one_place_in_one_execution_are_told_apart_by_their_tokens(
    spool: unspool.Spool, driver: Driver, xla: Xla
) -> None:
    loop = jax_loop([spool])
    first, second = Program(driver, xla, loop), Program(driver, xla, loop)
    # XLA may begin both before it runs either, and end both after it has run them.
    first.begin()
    second.begin()
    for n in range(STEPS):
        second.save(100.0 + n)
    for n in range(STEPS):
        first.save(n)
    second.call("end")
    first.call("end")
    assert first.backwards() == expected(0.0)
    assert second.backwards() == expected(100.0)
    assert len(spool) == 0


def test_executions_that_are_enqueued_in_turns_are_kept_apart(
    spool: unspool.Spool, driver: Driver
) -> None:
    loop = jax_loop([spool])
    programs = [Program(driver, Xla(driver.stream()), loop) for _ in range(3)]
    for number, program in enumerate(programs):
        program.xla.run = 10 + number
        program.begin()
    for n in range(STEPS):
        for number, program in enumerate(programs):
            program.save(100.0 * number + n)
    for program in programs:
        program.call("end")
    for program in programs:
        program.call("rewind")
    found = [[program.restored() for program in programs] for _ in range(STEPS)]
    assert found == [[100.0 * k + n for k in range(3)] for n in reversed(range(STEPS))]
    assert len(spool) == 0


def test_loops_in_loops_have_places_of_their_own(
    spool: unspool.Spool, driver: Driver, xla: Xla
) -> None:
    loop = jax_loop([spool])
    outer, inner = Program(driver, xla, loop, site=1), Program(driver, xla, loop, site=2)
    tokens = []
    outer.begin()
    for n in range(3):
        outer.save(n)
        inner.token = driver.allocate(8)
        tokens.append(inner.token)
        inner.forwards(10.0 * n)
    outer.call("end")
    outer.call("rewind")
    for n in reversed(range(3)):
        assert outer.restored() == n
        inner.token = tokens[n]
        assert inner.backwards() == expected(10.0 * n)
    assert len(spool) == 0


def test_a_history_is_read_once(spool: unspool.Spool, driver: Driver, xla: Xla) -> None:
    program = Program(driver, xla, jax_loop([spool]))
    program.forwards(0.0)
    program.backwards()
    for name in ("rewind", "restore", "save", "end"):
        with pytest.raises(Failed, match=r"read back already|given up"):
            program.call(name, operand=name == "save", result=name == "restore")
    program.forwards(0.0)
    assert jax_forget(spool) == 1 and len(spool) == 0


def test_what_does_not_fit_is_an_error_and_leaves_nothing(driver: Driver, xla: Xla) -> None:
    with unspool.Spool(host_memory="2KiB", device="cuda", timeout=5) as spool:
        program = Program(driver, xla, jax_loop([spool]))
        with pytest.raises(Failed, match="There is no room"):
            program.forwards(0.0)
        assert len(spool) == 0


def test_a_spool_for_each_gpu(driver: Driver) -> None:
    with (
        unspool.Spool(device_memory="1MiB", device="cuda:0") as first,
        unspool.Spool(device_memory="1MiB", device="cuda:1") as second,
    ):
        both, one = jax_loop([first, second]), jax_loop([first])
        driver.context(1)
        try:
            program = Program(driver, Xla(driver.stream()), both)
            program.forwards(0.0)
            assert (len(first), len(second)) == (0, STEPS)
            assert program.backwards() == expected(0.0)
            elsewhere = Program(driver, Xla(driver.stream()), one)
            with pytest.raises(Failed, match=r"CUDA device 1.*one spool for each GPU"):
                elsewhere.begin()
        finally:
            driver.context(0)


@pytest.mark.parametrize("found", [(1, 0), (0, 2)])
def test_another_version_of_the_interface_is_refused(
    found: tuple[int, int], driver: Driver
) -> None:
    xla = Xla(driver.stream())
    assert asked(xla) == (0, 3)
    xla.api.version.major, xla.api.version.minor = found
    with pytest.raises(Failed, match=rf"version {found[0]}\.{found[1]} .* version 0\.3"):
        asked(xla)


def asked(xla: Xla) -> tuple[int, int]:
    """The version of which a handler says it is."""
    metadata = Metadata(size=ctypes.sizeof(Metadata), version=sized(Version()))
    extension = Extension(size=32, kind=1, metadata=ctypes.addressof(metadata))
    frame = sized(Frame())
    frame.api = ctypes.pointer(xla.api)
    frame.extensions = ctypes.addressof(extension)
    if error := xla.handlers["unspool_save"](ctypes.byref(frame)):
        raise Failed(xla.errors[error].decode())
    return metadata.version.major, metadata.version.minor


def test_a_device_tier_without_room_says_what_jax_takes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> Any:
        with pytest.raises(unspool.Error) as raised:
            unspool.Spool(device_memory="1TiB", device="cuda")
        return str(raised.value)

    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    assert "not enough memory" in said() and "JAX" not in said()
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in said()
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    assert "JAX" not in said()

"""Arrays whose tiles are read, written and read again, against plain ones."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import unspool
from hypothesis import given
from hypothesis import strategies as st
from unspool import Bound, Disk
from unspool._tiled.grid import grid_of, ranges_of
from unspool._tiled.order import Order
from unspool.errors import ArrayError, CapacityError, ClosedError, OptionError
from unspool.types import TiledArray

TILE = 4 * 32 * 32 * 4
SHAPE = (30, 32, 32)


def tiled(shape: Any = SHAPE, dtype: Any = "float32", **options: Any) -> TiledArray:
    """Tiles of four planes, of which few fit into memory."""
    tiers = {"host_memory": 6 * TILE, "disk": None, "device": "cpu", "tile": 4, "timeout": 20.0}
    return unspool.tiled(shape, dtype, **{**tiers, **options})


@pytest.fixture
def array(tmp_path: Path) -> Iterator[TiledArray]:
    with tiled(disk=tmp_path) as made:
        yield made


def smooth(shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> Any:
    """Values that a codec makes fewer bytes of."""
    along = [np.linspace(0, 3, extent) for extent in shape]
    return sum(np.sin(one) for one in np.ix_(*along)).astype(dtype)


def noise(shape: tuple[int, ...] = SHAPE, seed: int = 1) -> Any:
    """Values that it does not."""
    return np.random.default_rng(seed).random(shape, np.float32)


def fill(array: TiledArray, values: Any) -> None:
    for index, a in array.sweep("w"):
        a[...] = values[array.slices(index)]


def test_what_was_written_is_read_and_written_again(array: TiledArray) -> None:
    plain = noise()
    fill(array, plain)
    assert array.tiles == 8 and array.tile_shape == (4, 32, 32)
    assert array.slices(7) == (slice(28, 30), slice(0, 32), slice(0, 32))
    for lap in range(3):
        for index, a in array.sweep("rw"):
            np.testing.assert_array_equal(a, plain[array.slices(index)] + lap)
            a += 1
    np.testing.assert_array_equal(array[...], plain + 1 + 1 + 1)
    # Nothing but the newest version of each tile is left.
    assert len(array.spool) == 8
    stats = array.stats()
    assert (stats.writes, stats.never_written, stats.lossy_most) == (32, 0, 0)


@pytest.mark.parametrize("codec", [None, "lossless", "auto", Bound(abs=1e-3)], ids=str)
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c8"])
def test_every_dtype_and_codec_keeps_values_as_it_says(
    dtype: str, codec: Any, tmp_path: Path
) -> None:
    plain = (smooth((10, 9)) * 20).astype(dtype)
    with tiled((10, 9), dtype, tile=3, disk=tmp_path, codec=codec) as array:
        assert array.dtype == plain.dtype and not array[...].any()
        array[...] = plain
        lossy = isinstance(codec, Bound) and dtype in ("f4", "f8", "c8")
        assert np.abs(array[...].astype("c16") - plain).max() <= (1.5e-3 if lossy else 0)


def test_a_bound_holds_for_each_rewrite_and_they_are_counted() -> None:
    bound, plain = 1e-3, smooth()
    with tiled(codec=Bound(abs=bound), host_memory="8MiB") as array:
        fill(array, plain)
        for lap in range(4):
            assert array.stats().lossy_most == lap + 1
            assert np.abs(array[...] - plain).max() <= (lap + 1) * bound
            for _, a in array.sweep("rw"):
                a *= np.float32(1)
        fill(array, plain)
        assert array.stats().lossy_most == 1


def test_tiles_that_are_read_again_are_dropped_and_not_encoded_again(array: TiledArray) -> None:
    fill(array, noise())
    array.spool.flush()
    before = array.spool.stats()
    for _ in range(3):
        for index, a in array.sweep():
            assert a[0, 0, 0] == noise()[4 * index, 0, 0]
    after = array.spool.stats()
    (down,) = [link.flush for link in after.links]
    assert after.saves == before.saves == 8
    assert down.transfers == before.links[0].flush.transfers
    assert after.tiers[0].evictions > before.tiers[0].evictions + 8


def test_tiles_never_written_hold_the_fill_and_cost_one() -> None:
    with tiled((1000, 32, 32), fill=2.5, host_memory=8 * TILE) as array:
        assert array.stats().never_written == 250
        assert (array[3::250] == 2.5).all() and len(array.spool) == 1
        with array.tile(7, "rw") as a:
            a += 1
        assert array[31, 5, 5] == 3.5 and array[32, 5, 5] == 2.5


CUTS = [
    np.s_[...],
    np.s_[5],
    np.s_[-1, ..., 3],
    np.s_[3:27:5, ::-1, 4],
    np.s_[::-7, 30:1:-3],
    np.s_[..., 2:2],
    np.s_[29, 31, 31],
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("tile", [4, (7, 10, 32)], ids=str)
def test_parts_are_those_of_a_plain_array(cut: Any, tile: Any) -> None:
    plain = noise()
    with tiled(tile=tile, host_memory="8MiB") as array:
        array[...] = plain
        np.testing.assert_array_equal(array[cut], plain[cut])
        array[cut] = plain[cut] = np.arange(plain[cut].size).reshape(plain[cut].shape)
        np.testing.assert_array_equal(array[...], plain)


@given(st.data())
def test_a_grid_covers_an_array_once(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple))
    tile = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    grid, plain = grid_of(shape, tile, 1), np.zeros(shape, int)
    for index in range(grid.tiles):
        assert plain[grid.slices(index)].shape == grid.shape_of(index)
        plain[grid.slices(index)] += 1
    key = tuple(
        slice(*data.draw(st.tuples(*[st.none() | st.integers(-9, 9)] * 2)), step)
        for step in data.draw(st.lists(st.sampled_from([1, 2, -1, -3]), max_size=len(shape)))
    )
    ranges, _, turns = ranges_of(key, shape)
    for index, inside, place in grid.parts(ranges):
        assert plain[grid.slices(index)][inside].shape == plain[np.ix_(*ranges)][place].shape
        plain[grid.slices(index)][inside] += 10
    assert (plain[key] == 11).all() and (plain % 10 == 1).all()
    assert plain[np.ix_(*ranges)][turns].shape == plain[key].shape


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_are_those_of_a_plain_array(seed: int, tmp_path: Path) -> None:
    draw, plain = random.Random(seed), np.zeros(SHAPE, np.float32)
    codec = draw.choice([None, "lossless"])
    with tiled(disk=tmp_path, host_memory=draw.randint(3, 9) * TILE, codec=codec) as array:
        for step in range(150):
            index, mode = draw.randrange(array.tiles), draw.choice(["r", "w", "rw", "fail"])
            here = array.slices(index)
            if draw.random() < 0.1:
                order = [draw.randrange(array.tiles) for _ in range(draw.randint(0, 20))]
                array.expect(order, cycle=draw.choice([None, range(3), order]), mode="rw")
            if draw.random() < 0.1:
                row = draw.randrange(SHAPE[0])
                array[row] = plain[row] = step
            elif mode == "r":
                with array.tile(index) as a:
                    np.testing.assert_array_equal(a, plain[here])
            elif mode == "fail":
                with pytest.raises(ZeroDivisionError), array.tile(index, "rw") as a:
                    a[...] = -1
                    raise ZeroDivisionError
            else:
                value = noise(plain[here].shape, step)
                with array.tile(index, mode) as a:
                    if mode == "rw":
                        np.testing.assert_array_equal(a, plain[here])
                    a[...] = plain[here] = value
        np.testing.assert_array_equal(array[...], plain)


def test_many_threads_read_what_they_wrote(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with tiled((64, 32, 32), disk=tmp_path, host_memory=10 * TILE) as array:
        array.expect(cycle=range(16))

        def work(thread: int) -> None:
            try:
                draw, values = random.Random(thread), dict.fromkeys(range(thread, 16, 4), 0)
                for step in range(60):
                    own = draw.choice(list(values))
                    with array.tile(own, "rw") as a:
                        assert (a == values[own]).all()
                        a[...] = values[own] = step
                    with array.tile(draw.randrange(16)) as a:
                        # Of the others' tiles one state is seen, never a mixture.
                        assert (a == a.flat[0]).all()
            except BaseException as failure:
                failures.append(failure)

        threads = [
            threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures and not any(each.is_alive() for each in threads), failures


def test_an_order_without_an_end_brings_tiles_back_ahead(tmp_path: Path) -> None:
    with tiled((128, 32, 32), disk=tmp_path, host_memory=12 * TILE, codec=None) as array:
        fill(array, noise((128, 32, 32)))
        array.expect(cycle=range(array.tiles))
        for lap in range(4):
            for index, a in array.sweep("rw"):
                assert a[1, 2, 3] == noise((128, 32, 32))[4 * index + 1, 2, 3] + lap
                a += 1
        stats = array.spool.stats()
        # All of them were announced under the versions that they then had.
        assert array.stats().corrections == 0
        assert stats.hinted_restores == 4 * array.tiles
        assert stats.links[0].prefetch.transfers > array.tiles


def versions(turns: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
    return [(tile, count) for tile, count, _ in turns]


def test_an_order_foresees_how_often_tiles_will_have_been_written() -> None:
    written = [0, 0, 0]
    there_and_back = Order(itertools.cycle([0, 1, 2, 2, 1, 0]), 3, rewritten=True)
    first = there_and_back.more(written)
    assert len(first) == 16
    assert versions(first)[:8] == [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1), (0, 1), (0, 2), (1, 2)]
    for tile, count in versions(first):
        assert written[tile] == count
        there_and_back.read(tile, count)
        written[tile] += 1
        there_and_back.wrote(tile, written[tile])
        added = there_and_back.more(written)
        assert len(added) == 1 and not there_and_back.stale


def test_an_order_notices_what_was_not_foreseen_and_learns_it() -> None:
    written, order = [0, 0, 0], Order(itertools.cycle(range(3)), 3, rewritten=True)
    order.more(written)
    order.read(0, 0)
    order.read(1, 0)
    order.read(2, 0)
    assert not order.stale
    # Nothing was written in the first lap, and twice in the second one.
    order.read(0, 0)
    assert order.stale
    assert versions(order.again(written))[:4] == [(1, 1), (2, 1), (0, 0), (1, 2)]
    written[0] = 2
    order.wrote(0, 2)
    assert order.stale
    assert (0, 2) in versions(order.again(written)) and not order.stale


def test_an_order_that_is_passed_over_twice_is_followed_to_where_the_program_went() -> None:
    order = Order(range(10), 10, rewritten=False)
    order.more([0] * 10)
    for tile in (0, 3, 4, 5):
        order.read(tile, 0)
    assert versions(order.again([0] * 10)) == [(6, 0), (7, 0), (8, 0), (9, 0)]
    for tile in (9, 6, 7, 8):
        order.read(tile, 0)
    assert not order.more([0] * 10) and not order


def test_a_declared_order_that_is_wrong_is_corrected_and_values_are_right(
    array: TiledArray,
) -> None:
    fill(array, noise())
    array.expect(cycle=range(array.tiles), mode="rw")
    for _ in range(3):
        for index, a in array.sweep():
            np.testing.assert_array_equal(a, noise()[array.slices(index)])
    first = array.stats().corrections
    assert 0 < first <= 2 * array.tiles
    for _ in array.sweep():
        pass
    # What the last lap was like is expected of the next one.
    assert array.stats().corrections == first


@pytest.mark.parametrize("writes", [False, True])
def test_parts_take_no_turn_of_the_order(array: TiledArray, writes: bool) -> None:
    fill(array, noise())
    array.expect(cycle=range(array.tiles))
    for _ in range(3):
        for index, a in array.sweep("rw"):
            if index == 3 and writes:
                array[20, 0, 0] = 5
            elif index == 3:
                assert array[20, 0, 0] == noise()[20, 0, 0]
            a *= 1
    # Those of the sweeps, and one for the part in each.
    assert array.spool.stats().hinted_restores == 3 * (array.tiles + 1)
    assert array[20, 0, 0] == (5 if writes else noise()[20, 0, 0])


def test_a_sweep_announces_itself_and_takes_that_back(array: TiledArray) -> None:
    fill(array, noise())
    for index, _ in array.sweep("rw"):
        if index == 2:
            break
    stats = array.spool.stats()
    assert stats.hinted_restores == 3 and stats.hints == 0
    # The tile at which the loop was left is as it was, and nobody writes it.
    with array.tile(2, "rw") as a:
        np.testing.assert_array_equal(a, noise()[array.slices(2)])


def stencil(u: Any) -> Any:
    v = u.copy()
    v[1:-1] += (u[:-2] + u[2:] - 2 * u[1:-1]) * np.float32(0.1)
    return v


@pytest.mark.parametrize("halo", [1, 3])
@pytest.mark.parametrize("rows", [29, 30, 33])
def test_halos_are_those_of_the_sweep_before(halo: int, rows: int, tmp_path: Path) -> None:
    plain = noise((rows, 8, 8))
    with tiled(plain.shape, disk=tmp_path) as array:
        fill(array, plain)
        array.expect(cycle=range(array.tiles))
        for _ in range(3):
            for index, a in array.sweep(halo=halo):
                here = array.slices(index)[0]
                low = min(halo, here.start)
                assert len(a) == min(here.stop + halo, rows) - max(here.start - halo, 0)
                new = stencil(a)[low : low + here.stop - here.start]
                with array.tile(index, "w") as out:
                    out[...] = new
            plain = stencil(plain)
        assert array.stats().corrections == 0
        np.testing.assert_array_equal(array[...], plain)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_kernel_is_called_with_every_tile_once(threads: int, array: TiledArray) -> None:
    plain, called = noise(), []
    fill(array, plain)

    def kernel(index: int, a: Any) -> None:
        called.append(index)
        np.sqrt(a, out=a)

    array.map(kernel, threads=threads)
    assert sorted(called) == list(range(array.tiles))
    np.testing.assert_array_equal(array[...], np.sqrt(plain))

    def failing(index: int, a: Any) -> None:
        a[...] = 0
        if index == 4:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        array.map(failing, threads=threads)
    kept = array[16:20]
    np.testing.assert_array_equal(kept, np.sqrt(plain[16:20]))
    # A tile that is not the one at which it ended may be begun by other threads at most.
    assert not array[:4].any() and (threads > 1 or array[20:].all())


def test_an_exception_in_a_block_leaves_the_tile_as_it_was(array: TiledArray) -> None:
    fill(array, noise())
    for mode in ("w", "rw"):
        with pytest.raises(KeyError), array.tile(1, mode) as a:
            a[...] = 0
            raise KeyError
    np.testing.assert_array_equal(array[4:8], noise()[4:8])
    assert array.stats().writes == 8 and len(array.spool) == 8


def test_an_interrupt_at_the_end_of_a_write_leaves_the_tile_as_it_was(
    array: TiledArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: Any, **_options: Any) -> None:
        raise KeyboardInterrupt

    fill(array, noise())
    with monkeypatch.context() as patched:
        patched.setattr(array, "_wrote", interrupted)
        with pytest.raises(KeyboardInterrupt), array.tile(1, "rw") as a:
            a[...] = 0
        with pytest.raises(KeyboardInterrupt):
            array[0] = 0
    np.testing.assert_array_equal(array[...], noise())
    with array.tile(1, "rw") as a:
        a[...] = 5
    array[0] = 5
    assert (array[4:8] == 5).all() and (array[0] == 5).all() and len(array.spool) == 8


def test_two_writers_of_a_tile_are_refused_and_readers_see_the_state_before(
    array: TiledArray,
) -> None:
    with array.tile(3, "rw") as a:
        a[...] = 7
        for mode in ("w", "rw"):
            with pytest.raises(OptionError, match="written by another") as refused:
                array.tile(3, mode).__enter__()
            assert refused.value.retryable
        with pytest.raises(OptionError, match="written by another"):
            array[12] = 5
        with array.tile(3) as old, array.tile(4, "w") as other:
            assert not old.any()
            other[...] = 9
    with array.tile(3) as before:
        with array.tile(3, "w") as a:
            a[...] = 8
        assert (before == 7).all()
    assert (array[12:16] == 8).all()


def test_a_reader_that_a_writer_overtakes_reads_the_new_state(
    array: TiledArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(array, noise())
    find, overtaken = array._saved, []

    def found(index: int, count: int) -> int:
        version = find(index, count)
        if not overtaken:
            overtaken.append(version)
            with array.tile(index, "w") as a:
                a[...] = 9
        return version

    monkeypatch.setattr(array, "_saved", found)
    with array.tile(1) as a:
        assert (a == 9).all()
    assert overtaken and overtaken[0] not in array.spool


def test_arrays_of_a_block_cannot_be_written_where_they_must_not(array: TiledArray) -> None:
    with array.tile(0) as a, pytest.raises(ValueError, match="read-only"):
        a[...] = 1
    with array.tile(0, "rw") as a:
        a[...] = 1
    with pytest.raises(ValueError, match="read-only"):
        a[...] = 2
    with pytest.raises(ValueError, match="read-only"):
        np.add(a, 1, out=a)


def test_tiers_that_are_full_keep_what_they_have() -> None:
    with tiled(host_memory=4 * TILE, codec=None, timeout=1.0) as array:
        done = []
        with pytest.raises(CapacityError):
            for index, a in array.sweep("w"):
                a[...] = index
                done.append(index)
        assert 1 < len(done) < 8
        for index in done[:-1]:
            with array.tile(index) as a:
                assert (a == index).all()


def test_a_tile_that_is_larger_than_the_fastest_tier_is_refused(tmp_path: Path) -> None:
    with (
        tiled(host_memory=TILE // 2, disk=tmp_path, codec=None) as array,
        pytest.raises(CapacityError, match="larger"),
        array.tile(0, "w"),
    ):
        pass


def test_a_disk_that_is_full_refuses_a_write_and_loses_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, capacity=2 * TILE)
    with tiled(disk=disk, host_memory=4 * TILE, codec=None, timeout=2.0) as array:
        done = {}
        with pytest.raises(unspool.Error):
            for index, a in array.sweep("w"):
                done[index] = noise((4, 32, 32), index)[: len(a)]
                a[...] = done[index]
        del done[index]
        assert len(done) > 3
        for index, expected in done.items():
            with array.tile(index) as a:
                np.testing.assert_array_equal(a, expected)


def test_a_tile_that_is_damaged_on_the_disk_is_an_error_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    with tiled(disk=tmp_path, host_memory=4 * TILE, codec=None) as array:
        fill(array, noise())
        array.spool.flush()
        for path in sorted(tmp_path.rglob("*-*")):
            if path.is_file() and path.stat().st_size > TILE // 2:
                content = bytearray(path.read_bytes())
                content[-3000] ^= 255
                path.write_bytes(content)
        wrong = 0
        for index in range(array.tiles):
            try:
                with array.tile(index, "rw") as a:
                    np.testing.assert_array_equal(a, noise()[array.slices(index)])
            except unspool.errors.CorruptCheckpointError:
                wrong += 1
        assert 0 < wrong < 8
        # What is lost may be written anew.
        fill(array, noise())
        np.testing.assert_array_equal(array[...], noise())


def test_a_closed_array_says_so(array: TiledArray) -> None:
    block = array.tile(0, "rw")
    block.__enter__()
    array.close()
    array.close()
    with pytest.raises(ClosedError):
        block.__exit__(None, None, None)
    for call in (
        lambda: array.tile(0).__enter__(),
        lambda: array.tile(0, "w").__enter__(),
        lambda: array[0],
        lambda: next(array.sweep()),
        lambda: array.expect(range(3)),
    ):
        with pytest.raises(ClosedError):
            call()
    assert array.stats().writes == 0


@pytest.mark.parametrize("shape", [0, (0, 5), (5, 0), (), 1, (3, 1, 1)], ids=str)
def test_small_and_empty_shapes(shape: Any) -> None:
    with tiled(shape, tile="1MiB") as array:
        assert array.tiles == (0 if 0 in np.empty(shape).shape else 1)
        for _, a in array.sweep("w"):
            a[...] = 4
        assert array[...].shape == np.empty(shape).shape and (array[...] == 4).all()
        array.map(lambda _, a: a.fill(5))
        assert (array[...] == 5).all()
        if array.tiles and shape:
            assert [a.shape for _, a in array.sweep(halo=1)] == [array[...].shape]


def test_tiles_are_cut_as_they_are_asked_for() -> None:
    for tile, counts, size in [
        ("4KiB", (30, 1, 1), (1, 32, 32)),
        ("1GiB", (1, 1, 1), SHAPE),
        (7, (5, 1, 1), (7, 32, 32)),
        ((100, 20, 8), (1, 2, 4), (30, 20, 8)),
    ]:
        with tiled(tile=tile, host_memory="8MiB") as array:
            assert array.tile_shape == size and array.tiles == np.prod(counts)
    with unspool.tiled((8, 1 << 20), "f4", host_memory="64MiB", device="cpu") as array:
        assert array.tile_shape == (4, 1 << 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": object}, "numbers"),
        ({"dtype": "S3"}, "numbers"),
        ({"dtype": ">f8"}, "order of bytes"),
        ({"shape": (-1, 3)}, "negative"),
        ({"shape": "many"}, "shape"),
        ({"tile": 0}, "at least one"),
        ({"tile": (3, 3)}, "axes"),
        ({"tile": "lots"}, "tile"),
        ({"tile": (1.5, 3, 3)}, "tile"),
        ({"fill": 1j}, "fill"),
        ({"fill": 2.5, "dtype": int}, "no such value"),
        ({"fill": 300, "dtype": "u1"}, "fill"),
        ({"to": "jax"}, "to="),
        ({"disk": Disk("/tmp", durable=True)}, "durable"),
        ({"learn": True}, "learn"),
        ({"host_memory": None, "disk": "/tmp"}, "memory"),
        ({"codec": "best"}, "codec"),
        ({"codec": {"0": "lossless"}}, "one codec"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((OptionError, TypeError), match=message):
        tiled(**options)


def test_calls_that_make_no_sense_are_refused(array: TiledArray) -> None:
    for call, kind, message in [
        (lambda: array.tile(8), OptionError, "no tile 8"),
        (lambda: array.tile(-1), OptionError, "no tile -1"),
        (lambda: array.tile(0, "a"), OptionError, "mode"),
        (lambda: array.sweep("rw", halo=1), OptionError, "halo"),
        (lambda: array.sweep(halo=5), OptionError, "rows"),
        (lambda: array.expect([8]), OptionError, "no tile 8"),
        (lambda: array.expect(["0"]), OptionError, "number of a tile"),
        (lambda: array.expect(3), OptionError, "iterable"),
        (lambda: array.expect([0], mode="w"), OptionError, "mode"),
        (lambda: array.map(print, threads=0), OptionError, "threads"),
        (lambda: array[30], ArrayError, "index"),
        (lambda: array[0, 0, 0, 0], ArrayError, "axes"),
        (lambda: array[[1, 2]], ArrayError, "slices"),
        (lambda: array[None], ArrayError, "slices"),
        (lambda: array[..., ...], ArrayError, "ellipsis"),
        (lambda: array.__setitem__(0, np.zeros(7)), ArrayError, "shape|broadcast"),
        (lambda: np.asarray(array), ArrayError, r"array\[...\]"),
        (lambda: list(array), TypeError, "iterable"),
    ]:
        with pytest.raises(kind, match=message):
            call()


def test_an_order_that_runs_into_nonsense_ends_and_the_tile_is_read_again(
    array: TiledArray,
) -> None:
    array.expect(itertools.chain(range(8), range(8), [99]))
    with pytest.raises(OptionError, match="no tile 99"):
        for _ in array.sweep():
            pass
    array.expect(None)
    assert array.spool.stats().hints == 0
    np.testing.assert_array_equal(array[...], np.zeros(SHAPE, "f4"))


def test_tensors_of_pytorch_on_the_cpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with tiled(dtype=torch.float32, disk=tmp_path, to="torch") as array:
        for index, a in array.sweep("w"):
            a.fill_(index)
        for index, a in array.sweep(halo=1):
            assert isinstance(a, torch.Tensor) and a[-1, 0, 0] == min(index + 1, 7)
        assert (array[4:8] == 1).all()


def test_the_package_is_imported_without_the_arrays_of_it() -> None:
    import helpers

    done = helpers.python("import unspool, sys; assert 'unspool._tiled.array' not in sys.modules")
    assert done.returncode == 0, done.stderr

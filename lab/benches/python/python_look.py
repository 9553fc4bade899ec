r"""What looking inside a history costs.

The time to open a durable history, to draw any step, to read a slice, and to read a point's series
over all steps, by `Spool.load`, xarray and Zarr where they are installed; and to compare two
histories that are equal, or differ in one item of each step. Beside them, the time in which NumPy
reads the same bytes from files of its own. The histories stay in the page cache. Run it with the
package installed:

    python lab/benches/python/python_look.py [--folder FOLDER] [--steps 3000] [--side 256] \
        [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import unspool
from unspool import Disk, Spool


def write(path: Path, options: argparse.Namespace, changed: bool = False) -> float:
    """A history of steps of two dimensions; the seconds it took."""
    made = np.random.default_rng(options.seed)
    field = made.normal(size=(options.side, options.side)).astype("f4")
    begun = time.perf_counter()
    with Spool(host_memory="256MiB", device="cpu", disk=Disk(path, durable=True)) as spool:
        for step in range(options.steps):
            field[step % options.side] += 0.001
            state = field.copy()
            if changed and step >= options.steps // 2:
                state[3, 4] += 1
            spool.save(step, u=state)
    return time.perf_counter() - begun


def once(call: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds of one call, and what it returned."""
    begun = time.perf_counter()
    found = call()
    return time.perf_counter() - begun, found


def print_row(what: str, seconds: float, unit: str = "ms") -> None:
    """A row of the table."""
    print(f"{what:<58} {seconds * (1e3 if unit == 'ms' else 1):>10.3f} {unit}")


def any_step(read: Callable[[int], Any], steps: list[int]) -> float:
    """The median time of a step."""
    return statistics.median(once(lambda step=step: read(step))[0] for step in steps)


def with_spool(path: Path, steps: list[int], every: range, point: tuple[int, int]) -> None:
    """`Spool.load`."""
    with Spool(device="cpu", disk=Disk(path, mode="r")) as spool:
        print_row("Spool.load: any step", any_step(lambda step: spool.load(step, "u"), steps))
        part = np.s_[5:9]
        seconds = any_step(lambda step: spool.load(step, "u", region=part), steps)
        print_row("Spool.load: four rows of any step", seconds)
        seconds, _ = once(lambda: [spool.load(step, "u", region=point) for step in every])
        print_row(f"Spool.load: a point's series over {len(every)} steps", seconds, "s")


def with_xarray(path: Path, steps: list[int], every: range, point: tuple[int, int]) -> None:
    """`xarray.open_dataset`."""
    try:
        import xarray as xr
        from unspool.look import dataset
    except ImportError as why:
        print(f"left out: xarray ({why})")
        return
    engine = dataset.Backend
    seconds, ds = once(lambda: xr.open_dataset(path, engine=engine))
    print_row(f"xarray: open {len(every)} steps", seconds, "s")
    print_row("xarray: any step", any_step(lambda step: ds.u.isel(step=step).values, steps))
    seconds, found = once(lambda: ds.u[:, point[0], point[1]].values)
    print_row(f"xarray: a point's series over {len(every)} steps", seconds, "s")
    assert found.shape == (len(every),)
    ds.close()


def with_zarr(path: Path, steps: list[int], every: range, point: tuple[int, int]) -> None:
    """`unspool.look.zarr_store`."""
    try:
        import zarr

        seconds, store = once(lambda: unspool.look.zarr_store(path))
    except ImportError as why:
        print(f"left out: Zarr ({why})")
        return
    print_row(f"Zarr: open {len(every)} steps", seconds, "s")
    u: Any = zarr.open_group(store, mode="r")["u"]
    print_row("Zarr: any step", any_step(lambda step: u[step], steps))
    seconds, _ = once(lambda: u[:, point[0], point[1]])
    print_row(f"Zarr: a point's series over {len(every)} steps", seconds, "s")
    store.close()


def with_files(folder: Path, path: Path, steps: list[int], point: tuple[int, int]) -> None:
    """Files of NumPy, as the raw operation."""
    with Spool(device="cpu", disk=Disk(path, mode="r")) as spool:
        for step in steps:
            np.save(folder / f"{step}.npy", spool.load(step, "u"))
    seconds = any_step(lambda step: np.load(folder / f"{step}.npy"), steps)
    print_row("NumPy: a step from a file of its own", seconds)
    reads = [lambda s=s: np.load(folder / f"{s}.npy", mmap_mode="r")[point] for s in steps]
    print_row("NumPy: a point from such a file", statistics.median(once(one)[0] for one in reads))


def with_diff(a: Path, b: Path, every: range) -> None:
    """`unspool.look.diff`."""
    for what, other in (("itself", a), ("one that differs in half of its steps", b)):
        seconds, found = once(lambda other=other: unspool.look.diff(a, other))
        count = len(found.differences)
        print_row(f"diff with {what}: {count} found", seconds, "s")
        print(f"    {found.bytes_read:,} bytes of {2 * len(every) * a_bytes(a):,} read")
    seconds, found = once(lambda: unspool.look.diff(a, b, which="first"))
    print_row(f"diff up to the first step that differs ({found.first.step})", seconds, "s")


def a_bytes(path: Path) -> int:
    """The bytes of the arrays of a step."""
    with Spool(device="cpu", disk=Disk(path, mode="r")) as spool:
        return sum(region.nbytes for region in spool.regions(spool.versions()[0]))


def main() -> None:
    """Writes the histories, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", help="where the histories go, on a disk of this machine")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, every = random.Random(options.seed), range(options.steps)
    steps = [draw.randrange(options.steps) for _ in range(50)]
    point = (options.side // 3, options.side // 2)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        a, b = folder / "a", folder / "b"
        seconds = write(a, options) + write(b, options, changed=True)
        print_row(f"two histories of {options.steps} steps of {a_bytes(a):,} bytes", seconds, "s")
        with_spool(a, steps, every, point)
        with_xarray(a, steps, every, point)
        with_zarr(a, steps, every, point)
        with_files(folder, a, steps, point)
        with_diff(a, b, every)


if __name__ == "__main__":
    main()

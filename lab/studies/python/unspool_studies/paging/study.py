"""Part `paging` of `unspool-bench`: Figures 3.2 to 3.9 from programs on paged arrays, compressed in
memory and on a disk as they are, beside what the dissertation has in print."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import unspool
from unspool.stats import size as size_text
from unspool_studies.bench.disk_tier import PlainFile
from unspool_studies.bench.machine import available_memory, fits
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.paging.measure import (
    STORES,
    Faults,
    Outcome,
    PagedOutcome,
    PagingStudyError,
    codec_speeds,
    faults_of,
    paged_runs,
    plain_runs,
)
from unspool_studies.paging.model import Speeds, access_seconds, memory_saved, predicted
from unspool_studies.paging.options import Paging
from unspool_studies.paging.programs import PROGRAMS, Program
from unspool_studies.paging.thesis import (
    ALPHA,
    DRAMS,
    FACTORS,
    LATENCIES,
    PAGE,
    SPEEDS,
    STANDS_FOR,
    SWEEP_DRAM,
    WORKING_SETS,
)

__all__ = ["Place", "Run", "Sweep", "run"]

MIB = 1 << 20

#: Arrays that a program has at once, its own temporary ones included.
ARRAYS = 3

#: KiB of memory in print with which single faults are measured: about half of the arrays.
FAULTS_DRAM = 2048

#: Chunks that are written to a plain file and read from it.
CHUNKS = 64


@dataclass(frozen=True)
class Place:
    """Where a bar stands in the figures.

    Attributes:
        program: its name.
        size: of its problem.
        dram: KiB of memory in print.
    """

    program: str
    size: str
    dram: int

    @property
    def working_set(self) -> int:
        """Bytes of the program in print."""
        return WORKING_SETS[STANDS_FOR[self.program]][self.size]

    @property
    def resident(self) -> float:
        """The part of them that is in memory."""
        return (self.dram << 10) / self.working_set


@dataclass(frozen=True)
class Run:
    """A program with a part of its array in memory.

    Attributes:
        place: in the figures.
        nbytes: of the array.
        plain: on an ordinary array.
        paged: by store, of `STORES`.
    """

    place: Place
    nbytes: int
    plain: Outcome
    paged: dict[str, PagedOutcome]

    def slowdown(self, store: str) -> float:
        """Time against that without paging."""
        return self.paged[store].seconds / self.plain.seconds


@dataclass(frozen=True)
class Sweep:
    """A program's run with `SWEEP_DRAM`, and the speeds by which others are computed from it.

    Attributes:
        run: the run.
        speeds: of the codec and of memory, as measured.
    """

    run: Run
    speeds: Speeds

    def slowdown(self, alpha: float, times_as_fast: float = 1.0) -> float:
        """Time against that without paging, by Equation 3.1."""
        plain, counts = self.run.plain.seconds, self.run.paged["compressed"].counts
        return predicted(plain, counts, self.speeds, alpha, times_as_fast) / plain


def run(plan: Plan, report: Report) -> None:
    """All tables, and pictures where they are wanted.

    Raises:
        RefusedError: the kernel does not let this process answer page faults.
        PagingStudyError: there is no room for the arrays, or a program computed something else.
    """
    asked = plan.paging
    # The kernel refuses this as it would the others, but before anything was waited for.
    unspool.paged(8 * asked.chunk, np.uint8, 4 * asked.chunk, chunk=asked.chunk)
    if not plan.directory.is_dir():
        raise PagingStudyError(f"{plan.directory} is not a directory: give one by --dir")
    runs: list[Run] = []
    sweeps: list[Sweep] = []
    faults = _faults_table(asked)
    alone = _alone(plan, faults)
    for name in asked.programs:
        found: list[Run] = []
        times = report.begin(_times_table(name, plan.rounds))
        for size in asked.sizes:
            speeds, some = _sized(name, size, plan)
            for one, each in some:
                found.append(one)
                times.add(*_times(one))
                for store in each:
                    faults.add(*_faults(one, store, each[store], speeds, alone, asked.chunk))
                if size == asked.sizes[-1] and one.place.dram == SWEEP_DRAM:
                    sweeps.append(Sweep(one, speeds))
        report.show(times)
        report.show(_latencies_table(name, found))
        report.show(_saved_table(name, found))
        runs += found
    report.show(faults)
    report.show(_factors_table(sweeps))
    report.show(_speeds_table(sweeps))
    if asked.plots is not None:
        from unspool_studies.paging.plot import draw

        for path in draw(runs, sweeps, asked.plots):
            print(f"written: {path}")


def _sized(name: str, size: str, plan: Plan) -> tuple[Speeds, list[tuple[Run, _Found]]]:
    """All runs of a program of one size, and the speeds of the codec on its array.

    It runs without paging before the others and after them, since a machine that others use too
    is not equally fast for long.
    """
    program = _program(name, size, plan.paging)
    _room(program, plan.directory)
    plain, array = plain_runs(program, plan.rounds)
    speeds = codec_speeds(array, plain.latencies.read_speed)
    del array
    found = [_measured(Place(name, size, dram), program, plain, plan) for dram in DRAMS]
    again, _ = plain_runs(program, plan.rounds)
    best = plain.best(again)
    return speeds, [(replace(one, plain=best), faults) for one, faults in found]


def _program(name: str, size: str, asked: Paging) -> Program:
    return PROGRAMS[name](asked.scale * WORKING_SETS[STANDS_FOR[name]][size] / MIB)


def _room(program: Program, directory: Path) -> None:
    """Refuses what would take the machine's last memory or its disk's last room."""
    needed = ARRAYS * program.nbytes
    if not fits(needed, available_memory()):
        raise PagingStudyError(
            f"the largest program needs {size_text(needed)} of memory, which is not free: give a "
            "smaller --paging-scale"
        )
    if 2 * program.nbytes > shutil.disk_usage(directory).free:
        raise PagingStudyError(
            f"{directory} has no room for {size_text(2 * program.nbytes)}: give another --dir, or "
            "a smaller --paging-scale"
        )


def _alone(plan: Plan, table: Table) -> Faults:
    """Seconds to read and to write as much as a chunk, one call each, in a plain file."""
    with PlainFile(plan.directory, plan.paging.chunk) as file:
        if not file.direct:
            table.note("this file system has no O_DIRECT: the disk is the page cache")
        write = file.write(CHUNKS) / CHUNKS
        return Faults(read=file.read(CHUNKS) / CHUNKS, write=write)


#: Single faults by store, of `STORES`, where they were measured.
_Found = dict[str, Faults]


def _measured(place: Place, program: Program, plain: Outcome, plan: Plan) -> tuple[Run, _Found]:
    """A run, and what faults take where the largest problem has `FAULTS_DRAM`."""
    asked = plan.paging
    resident = round(place.resident * program.nbytes)
    paged: dict[str, PagedOutcome] = {}
    faults: _Found = {}
    for store in STORES:
        outcome, array = paged_runs(
            program, resident, store, plan.directory, asked.chunk, plan.rounds
        )
        if outcome.result != plain.result:
            raise PagingStudyError(
                f"{place.program} computed {outcome.result} on paged memory and {plain.result} on "
                "plain memory: report this, with the command"
            )
        paged[store] = outcome
        if place.size == asked.sizes[-1] and place.dram == FAULTS_DRAM:
            faults[store] = faults_of(array)
        del array
    return Run(place, program.nbytes, plain, paged), faults


def _faults_table(asked: Paging) -> Table:
    title = (
        f"Table 3.3: microseconds of a fault, chunks of {size_text(asked.chunk)}, the largest "
        f"problem with {FAULTS_DRAM} KiB"
    )
    columns = ["program", "put aside", "read", "write", "read, computed", "write, computed"]
    columns += ["4 KiB read", "4 KiB write", "in print, read", "in print, write"]
    table = Table("paging-faults", title, columns)
    table.note("measured: faults in a drawn order; a write evicts a chunk that has changed")
    table.note("computed: Equation 3.1 with the codec's speed by one thread, or a plain file")
    table.note("4 KiB: the part of it for each page; in print a fault brings one page")
    return table


def _faults(
    one: Run, store: str, found: Faults, speeds: Speeds, alone: Faults, chunk: int
) -> list[Cell]:
    program = one.place.program
    if store == "disk":
        read, write = alone.read, alone.read + alone.write
        printed = LATENCIES["disk"]
    else:
        read = access_seconds(speeds.alpha, chunk, speeds.decode, speeds.memory)
        write = read + access_seconds(speeds.alpha, chunk, speeds.encode, speeds.memory)
        printed = LATENCIES[STANDS_FOR[program]]
    pages = chunk / PAGE
    seconds = (found.read, found.write, read, write, found.read / pages, found.write / pages)
    return [program, store, *(1e6 * each for each in seconds), *printed]


def _latencies_table(name: str, runs: Sequence[Run]) -> Table:
    title = f"Figure 3.{2 + _number(name)}: average latency of a read and of a write of {name}"
    stores = [f"{kind}, {store}" for kind in ("read", "write") for store in STORES]
    columns = (*_PLACE, "plain read ns", "plain write ns", *stores)
    table = Table(f"paging-latencies-{name}", title, columns)
    table.note("against no paging, of 64 bytes; read: a plane before it is used; write: its store")
    table.note("not printed: the text says that writes cost more than reads")
    for one in runs:
        plain = one.plain.latencies
        reads = [one.paged[store].latencies.read / plain.read for store in STORES]
        writes = [one.paged[store].latencies.write / plain.write for store in STORES]
        table.add(*_place(one), plain.read, plain.write, *reads, *writes)
    return table


def _times_table(name: str, rounds: int) -> Table:
    title = f"Figure 3.{5 + _number(name)}: time of {name} against no paging, the best of {rounds}"
    ratios = [word for store in STORES for word in (store, f"{store}, processors")]
    columns = (*_PLACE, "MB", "plain s", *ratios, *(f"loads, {store}" for store in STORES))
    table = Table(f"paging-times-{name}", title, columns)
    table.note("in print: under 1.04 compressed and under 1.08 on an SSD, in all; not bar by bar")
    table.note("processors: the time of all of them, threads of paging included; loads: of a run")
    return table


def _times(one: Run) -> list[Cell]:
    cells: list[Cell] = [*_place(one), one.nbytes / 1e6, one.plain.seconds]
    for store in STORES:
        cells += [one.slowdown(store), one.paged[store].work / one.plain.work]
    return cells + [round(one.paged[store].counts.loads) for store in STORES]


def _factors_table(sweeps: Sequence[Sweep]) -> Table:
    title = f"Figure 3.8: computed time against no paging by what is saved, {SWEEP_DRAM} KiB"
    names = [f"{100 * alpha:.0f} %" for alpha in FACTORS]
    columns = ("program", "problem", "measured", "saved here %", "computed", *names, "spread %")
    table = Table("paging-factors", title, columns)
    table.note("computed: loads and evictions of the measured run by Equation 3.1, each waited for")
    table.note("in print: the four differ by less than 0.3 %; heights are not printed")
    for one in sweeps:
        found = [one.slowdown(alpha) for alpha in FACTORS]
        alpha, spread = one.speeds.alpha, 100 * (found[-1] / found[0] - 1)
        cells = [one.run.slowdown("compressed"), 100 * alpha, one.slowdown(alpha)]
        table.add(one.run.place.program, one.run.place.size, *cells, *found, spread)
    return table


def _speeds_table(sweeps: Sequence[Sweep]) -> Table:
    title = f"Figure 3.9: computed time against no paging by the codec's speed, {SWEEP_DRAM} KiB"
    names = [f"{speed:g} times as fast" for speed in SPEEDS]
    columns = ("program", "problem", "encodes MB/s", "decodes MB/s", "memory GB/s", *names)
    table = Table("paging-speeds", title, columns)
    table.note("computed as Figure 3.8, with what the codec saves here")
    table.note(
        "not printed: the text says that ten times as fast is much the same, and slower hurts"
    )
    for one in sweeps:
        speeds = one.speeds
        rates = (speeds.encode / 1e6, speeds.decode / 1e6, speeds.memory / 1e9)
        found = [one.slowdown(speeds.alpha, times_as_fast) for times_as_fast in SPEEDS]
        table.add(one.run.place.program, one.run.place.size, *rates, *found)
    return table


def _saved_table(name: str, runs: Sequence[Run]) -> Table:
    title = f"Table 3.{4 + _number(name)}: memory that is saved of {name}, %"
    columns = (*_PLACE, "saved", "in print", "alpha", "alpha in print")
    table = Table(f"paging-saved-{name}", title, columns)
    table.note("saved: bytes of the array that are not in memory, neither as they were nor encoded")
    for one in runs:
        found, place = one.paged["compressed"], one.place
        printed = memory_saved(ALPHA, place.working_set, place.dram << 10)
        shares = (found.saved, printed, found.alpha, ALPHA)
        table.add(*_place(one), *(100 * share for share in shares))
    return table


def _number(name: str) -> int:
    """Which of the programs of the dissertation it stands for, from 0, as figures are numbered."""
    return list(STANDS_FOR).index(name)


_PLACE = ("problem", "KiB in print", "in memory %")


def _place(one: Run) -> list[Cell]:
    place = one.place
    return [place.size, place.dram, 100 * place.resident]

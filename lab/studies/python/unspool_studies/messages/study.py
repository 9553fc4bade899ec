"""Part `messages` of `unspool-bench`: Tables 4.2 to 4.5 and Figures 4.5 to 4.12 from our programs,
and the same programs on slowed networks, plain and coded."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.messages.network import (
    Comparison,
    Network,
    best_break_even,
    compare,
    networks_of,
)
from unspool_studies.messages.options import Messages
from unspool_studies.messages.programs import Bench, Program, known_programs
from unspool_studies.messages.record import Recorded, record, simulate
from unspool_studies.messages.samples import difference_name, factors, volume

__all__ = ["run"]

RANKS = 4

#: Tables 4.2 and 4.3: messages, and duplicates by sender and by receiver in percent.
PRINTED = {
    "HPCCG": (981, 0.175, 0.174),
    "miniFE": (2448, 0.001, 0.002),
    "miniMD": (3440, 0.0259, 0.0259),
    "LAMMPS": (6600, 0.022, 0.022),
    "MILC": (70094, 0.003, 0.003),
}

#: Table 4.4: nanoseconds a byte, and the change of the run time in percent.
BACK_ENDS: dict[str, tuple[float, dict[str, float]]] = {
    "xor + LZ4": (4, {"HPCCG": 0.27, "miniFE": 0.09, "miniMD": 0.06, "LAMMPS": 0.58, "MILC": 0.07}),
    "xdelta": (37, {"HPCCG": 6.77, "miniFE": 2.72, "miniMD": 1.59, "LAMMPS": 14.16, "MILC": 1.55}),
    "bsdiff": (
        250,
        {"HPCCG": 50.63, "miniFE": 21.63, "miniMD": 16.59, "LAMMPS": 101.83, "MILC": 9.33},
    ),
    "bzip2": (
        387,
        {"HPCCG": 84.10, "miniFE": 34.0, "miniMD": 26.92, "LAMMPS": 156.74, "MILC": 17.2},
    ),
}

#: Table 4.5: message rates against those without compression, single-peer and multi-peer.
RATES = {99: (1.75, 1.70), 95: (1.37, 1.34), 90: (1.41, 1.35), 80: (1.25, 1.20), 70: (1.19, 1.13)}

#: The size of which Table 4.5 takes parts, and that of the claim on two levels, in bytes.
LONG, SHORT = 256 << 10, 4 << 10

BINS = tuple(f"{ten}-{ten + 10} %" for ten in range(0, 100, 10))


def run(plan: Plan, report: Report) -> None:
    """All tables, and pictures where they are wanted.

    Raises:
        MessagesError: no MPI or no `unspool-messages` is here, or a program has failed.
    """
    asked = plan.messages
    programs, left_out = _programs(asked)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), asked.sources, asked.command)
        all_recorded = []
        table = report.begin(_found_table(left_out))
        for program in programs:
            one = record(bench, program, program.cube, RANKS, asked.compared, asked.analysis)
            all_recorded.append(one)
            table.add(*_found(one))
        report.show(table)
        _levels(all_recorded, report)
        _histograms(all_recorded, report)
        networks, why = networks_of(asked.networks)
        slowed = _slowed(bench, asked, programs, networks, why, report)
        _rates(bench, networks, asked, report)
        own = [one for one in all_recorded if one.program.data == "own"]
        scaled = {
            one.program.name: simulate(bench, one.run, asked.scales, _costs(one)) for one in own
        }
        _overheads(own, scaled, report)
        if asked.plots is not None:
            from unspool_studies.messages.plot import draw

            for file in draw(all_recorded, scaled, slowed, asked.plots):
                print(f"written: {file}")


def _programs(asked: Messages) -> tuple[list[Program], list[str]]:
    """Those that are asked for and are here, and why others are not."""
    known = known_programs(asked.programs, asked.small)
    left_out = [why for why in dict.fromkeys(program.lacks for program in known) if why]
    return [program for program in known if program.lacks is None], left_out


def _found_table(left_out: Sequence[str]) -> Table:
    title = f"Tables 4.2 and 4.3: messages of {RANKS} ranks, and how many were there before"
    columns = ("program", "problem of a rank", "messages", "messages in print", "MB")
    shares = ("by sender %", "by sender, in print", "by receiver %", "by receiver, in print")
    table = Table("messages-duplicates", title, (*columns, *shares))
    table.note("`random` has no counterpart in print; MILC is played by su3")
    for why in left_out:
        table.note(why)
    return table


def _found(one: Recorded) -> list[Cell]:
    program = one.program
    printed = PRINTED.get(program.stands_for) if program.data == "own" else None
    count, sent, received = printed or (None, None, None)
    found, problem = one.report, f"{program.cube[0]}, {program.cube[1]} steps"
    cells: list[Cell] = [program.title, problem, found["messages"], count, found["bytes"] / 1e6]
    return [*cells, one.share("sent"), sent, one.share("received"), received]


def _levels(recorded: Sequence[Recorded], report: Report) -> None:
    """The claim: more than 90 % less, and more than 90 % of the differences under 4 KB."""
    title = f"What is saved of all bytes, %: bzip2, and {difference_name()} with one and two levels"
    columns = ("program", "messages", "their mean, KiB", "bzip2", "one level", "two levels")
    claims = ("two levels, differences alone", "of them under 4 KiB, %", "messages under 4 KiB, %")
    ours = ("Zstandard", "Zstandard, one level", "Zstandard, two levels")
    twine = ("Twine, order 1", "Twine, 1e-6")
    table = Table("messages-levels", title, (*columns, *claims, *ours, *twine))
    for one in recorded:
        sizes = one.sizes
        count = len(sizes.originals)
        table.add(
            one.program.title,
            count,
            sum(sizes.originals) / count / 1024 if count else None,
            volume(sizes.alone, sizes.originals),
            volume(sizes.one, sizes.one_of),
            volume(sizes.window, sizes.window_of),
            volume(sizes.two, sizes.two_of),
            _under(sizes.two),
            _under(sizes.originals),
            one.factor("Zstandard"),
            one.factor("difference, one level"),
            one.factor("difference, two levels"),
            one.factor("predicted in time, order 1"),
            one.factor("within 1e-6, with the message before"),
        )
    table.note("two levels send bases and first differences as well; in print: more than 90 %")
    table.note("columns from Zstandard on are those of unspool-messages, over all channels")
    report.show(table)


def _under(sizes: Sequence[int]) -> float | None:
    return 100 * sum(size < SHORT for size in sizes) / len(sizes) if sizes else None


def _histograms(recorded: Sequence[Recorded], report: Report) -> None:
    """Figures 4.5 and 4.6 as numbers: messages by compression factor."""
    for name, title in (("alone", "Figure 4.5: bzip2"), ("one", "Figure 4.6: one level")):
        full = f"{title}, % of the messages by compression factor"
        table = Table(f"messages-{name}", full, ("program", "< 0", *BINS))
        for one in recorded:
            of = one.sizes.originals if name == "alone" else one.sizes.one_of
            found = factors(getattr(one.sizes, name), of)
            table.add(one.program.title, *shares_by_factor(found))
        report.show(table)


def shares_by_factor(found: Sequence[float]) -> list[float]:
    """The part of the messages below 0 and in each tenth, in percent."""
    counts = [0] * 11
    for factor in found:
        counts[0 if factor < 0 else 1 + min(9, int(factor // 10))] += 1
    return [100 * count / max(1, len(found)) for count in counts]


def _costs(one: Recorded) -> list[tuple[float, float]]:
    """The back ends of Table 4.4: without what they save, and with what was found that they do."""
    sizes = one.sizes
    bsdiff, alone = volume(sizes.one, sizes.one_of), volume(sizes.alone, sizes.originals)
    xor = one.factor("xor with the message before, LZ4") or 0.0
    saved = {"xor + LZ4": xor, "xdelta": bsdiff, "bsdiff": bsdiff, "bzip2": alone}
    plain = [(cost, 0.0) for cost, _ in BACK_ENDS.values()]
    parts = {name: min(max(percent, 0.0), 99.0) / 100 for name, percent in saved.items()}
    return plain + [(BACK_ENDS[name][0], part) for name, part in parts.items()]


def _overheads(
    own: Sequence[Recorded], scaled: dict[str, dict[int, list[float]]], report: Report
) -> None:
    scale = max(max(of, default=0) for of in scaled.values())
    title = f"Table 4.4: change of a step on {scale} ranks, %, network of Table 4.1"
    names = [one.program.name for one in own]
    pairs = [word for name in names for word in (name, f"{name} in print", f"{name} fewer bytes")]
    table = Table("messages-overhead", title, ("back end", "ns a byte", *pairs))
    for place, (back_end, (cost, printed)) in enumerate(BACK_ENDS.items()):
        cells: list[Cell] = []
        for one in own:
            changes = scaled[one.program.name][scale]
            in_print = printed.get(one.program.stands_for)
            cells += [changes[place], in_print, changes[place + len(BACK_ENDS)]]
        table.add(back_end, cost, *cells)
    table.note("`fewer bytes`: with what was found to be saved; xdelta is taken to save as bsdiff")
    report.show(table)
    title = "Figure 4.12: the same by number of ranks, %, without what is saved"
    table = Table("messages-scales", title, ("program", "ranks", *BACK_ENDS))
    for name, of in scaled.items():
        for ranks, changes in of.items():
            table.add(name, ranks, *changes[: len(BACK_ENDS)])
    report.show(table)


def _rates(bench: Bench, networks: Sequence[Network], asked: Messages, report: Report) -> None:
    """Table 4.5, between this machine's processes: the best of a few runs, as others use it too."""
    title = f"Table 4.5: message rates with what is left of {LONG >> 10} KiB, against all of it"
    columns = ("network", "peers", *(f"{saved} %" for saved in RATES))
    table = report.begin(Table("messages-rates", title, columns))
    for place, peers in enumerate(("single", "multi")):
        table.add("in print, Cray XC-30", peers, *(both[place] for both in RATES.values()))
    shaped = [network for network in networks if network.is_shaped]
    for network in (None, *shaped):
        for peers in ("single", "multi"):
            sizes = [LONG, *(LONG * (100 - saved) // 100 for saved in RATES)]
            full, *others = (
                max(_rate(bench, network, size, peers, asked.small) for _ in range(asked.rounds))
                for size in sizes
            )
            rates = [rate / full for rate in others]
            table.add("memory of this machine" if network is None else str(network), peers, *rates)
    report.show(table)


def _rate(bench: Bench, network: Network | None, size: int, peers: str, small: bool) -> float:
    # Windows for a tenth of a second or so: time slices of others are shorter.
    rounds = "10" if network is not None or small else "100"
    words: list[str | Path] = ["mpirun", "-n", str(RANKS), bench.folder / "rate", str(size)]
    words += [rounds, peers]
    environment: dict[str, str] = {}
    if network is not None:
        words, environment = network.wrap(words), network.environment(bench)
    printed, _ = bench.call(words, environment)
    found = re.search(r"messages ([0-9.]+)", printed)
    assert found is not None, printed
    return float(found[1])


def _slowed(
    bench: Bench,
    asked: Messages,
    programs: Sequence[Program],
    networks: Sequence[Network],
    why: str | None,
    report: Report,
) -> Table:
    title = (
        f"Two ranks on slowed networks, coded without loss; the best of {asked.rounds} runs each"
    )
    columns = ("program", "network", "coded by", "wire saved %", "pays up to, GB/s", "plain s")
    seconds = ("coded s", "expected change s", "measured change s", "same results")
    table = report.begin(Table("messages-networks", title, (*columns, *seconds)))
    for program in programs:
        if program.data == "random" and program.name in ("minimd", "lammps", "su3"):
            # Their own data are drawn as well.
            continue
        recorded = record(bench, program, program.slab, 2, 0, asked.analysis)
        for network in networks:
            found = compare(bench, recorded, network, asked.rounds)
            limit = best_break_even(recorded.report)
            table.add(program.title, str(network), *_compared(found, limit))
    table.note("pays up to: the break-even that the report of the recorded run predicts")
    table.note("where nothing pays on a network, what pays on the fastest other one is coded")
    if why:
        table.note(f"no network was slowed by tc: {why}")
    report.show(table)
    return table


def _compared(found: Comparison | None, limit: float) -> list[Cell]:
    if found is None:
        return ["nothing is coded", 0.0, limit / 1e9, *[None] * 5]
    cells: list[Cell] = [found.ways, found.saved, found.break_even / 1e9]
    cells += [min(found.plain), min(found.coded), found.expected, found.measured]
    return [*cells, "yes" if found.is_same else "NO"]

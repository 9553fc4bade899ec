"""Part `advise`: the dissertation's Figures 5.4 and 5.6 to 5.11, and the same for GPUs of today."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from unspool.advice import Place, Prices
from unspool_studies.advice.machines import THESIS, TODAY, YEAR, Machine, ratio_of
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Report, Table

__all__ = ["Panel", "panels_of", "run"]

#: Table 5.2 and 5.3: saved %, MB/s of the compressor and of the decompressor.
CODECS = {
    "LAMMPS pbzip2": (92.7, 154.2, 564.9),
    "LAMMPS zip": (91.6, 209.1, 195.5),
    "miniMD pbzip2": (91.0, 144.0, 478.8),
    "miniMD zip": (89.7, 193.6, 179.9),
    "LAMMPS' own, pbzip2": (43.0, 37.2, 104.5),
    "LAMMPS' own, zip": (41.9, 26.7, 97.1),
}

WAYS = ("none", "increments", "compressed", "both")

#: Drives of 256 GB in Table 5.5: price, how often they may be filled, and for how many weeks they
#: last with one checkpoint for each failure, as the text counts.
DRIVES = {
    "TLC": (200.0, 750, 47.4), "MLC": (460.0, 3_000, 189.5), "SLC": (4_800.0, 100_000, 6_315.0)
}  # fmt: skip

#: Seconds between two failures of 196,000 processes (12,250 nodes of 16), each of which fails once
#: in five years, as the text counts.
CORES_MTBF = 5 * YEAR / 196_000

GIB = 1 << 30


@dataclass(frozen=True)
class Panel:
    """One figure as numbers.

    Attributes:
        title: with the number that it has in the dissertation.
        x: the name of the axis.
        y: likewise.
        lines: points by name.
        is_log: whether the horizontal axis is logarithmic.
    """

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]
    is_log: bool = True


def run(plan: Plan, report: Report) -> None:
    """A table for each figure, and pictures of all where they are wanted."""
    _text_numbers(report)
    for machine in (THESIS, TODAY):
        panels = panels_of(machine)
        for number, panel in enumerate(panels):
            report.show(_table(f"advise-{machine.part}-{number}", panel, machine))
        if plan.advising.plots is not None:
            from unspool_studies.advice.plot import draw

            name = "thesis" if machine is THESIS else "today"
            file = plan.advising.plots / f"advise-{name}.png"
            draw(panels, machine.name, file)
            print(f"written: {file}")


def _table(name: str, panel: Panel, machine: Machine) -> Table:
    """At most eight points of each line."""
    names = list(panel.lines)
    table = Table(name, f"{panel.title} ({machine.name}): {panel.y}", (panel.x, *names))
    values = sorted({x for line in panel.lines.values() for x, _ in line})
    step = max(1, len(values) // 8)
    for value in values[::step]:
        cells = [dict(panel.lines[one]).get(value) for one in names]
        table.add(f"{value:g}", *cells)
    return table


def _text_numbers(report: Report) -> None:
    """What the text of the dissertation says in numbers, beside what comes out."""
    table = Table(
        "advise-text", "The dissertation's numbers", ("what", "in print", "from the model")
    )
    cores = replace(THESIS, part_mtbf=CORES_MTBF)
    joined = cores.with_joined_increments().efficiency(1, "compressed")
    table.add("efficiency of SCR, %", 90.94, 100 * cores.with_rate(211e6).efficiency(1, "none"))
    table.add("compressed increments, %", 78.92, 100 * joined)
    best, real = (
        replace(THESIS, ratio=ratio_of(saved)).efficiency(100_000, "compressed")
        for saved in (0.795, 0.676)
    )
    table.add("the best codec gains at 100,000 sockets, points", 7.2, 100 * (best - real))
    for name, (saved, encode, decode) in CODECS.items():
        table.add(f"break-even of {name}, MB/s", None, _break_even(saved, encode, decode))
    report.show(table)


def _break_even(saved: float, encode: float, decode: float) -> float:
    """Where exactly one recovery comes with each checkpoint: equation 5.1 as it is printed."""
    return 2 * saved / 100 * encode * decode / (encode + decode)


def panels_of(machine: Machine) -> list[Panel]:
    """All figures of a machine."""
    return [
        _break_evens(machine),
        _by_ratio(machine),
        _by_speed(machine),
        _gain_of_speed(machine),
        _software(machine),
        _hardware(machine),
        _price(machine),
    ]


def _break_evens(machine: Machine) -> Panel:
    """Figure 5.4: the bandwidth below which compressing pays, by what is saved."""
    saved = [place / 50 for place in range(1, 50)]
    count = machine.parts[-2]
    lines: dict[str, list[tuple[float, float]]] = {"this machine's codec": []}
    for share in saved:
        one = replace(machine, ratio=ratio_of(share)).choices(count).get("compressed")
        if one is not None and one.break_even is not None:
            lines["this machine's codec"].append((100 * share, one.break_even / 1e6))
    if machine is THESIS:
        for name, (percent, encode, decode) in CODECS.items():
            lines[name] = [(percent, _break_even(percent, encode, decode))]
    else:
        lines["the same, waited for"] = [
            (100 * share, _break_even(100 * share, machine.encode, machine.decode) / 1e6)
            for share in saved
        ]
    return Panel("5.4: break-even bandwidth", "saved, %", "MB/s of a rank", lines, False)


def _some(machine: Machine) -> tuple[int, ...]:
    return (10_000, 50_000, 100_000) if machine is THESIS else (1_024, 16_384, 100_000)


def _by_ratio(machine: Machine) -> Panel:
    """Figure 5.6: better codecs."""
    shares = [place / 40 for place in range(40)] + [0.99]
    lines = {
        f"{count:,} {machine.part}": [
            (
                100 * share,
                100 * replace(machine, ratio=ratio_of(share)).efficiency(count, "compressed"),
            )
            for share in shares
        ]
        for count in _some(machine)
    }
    return Panel("5.6: better codecs", "saved, %", "efficiency, %", lines, False)


def _by_speed(machine: Machine) -> Panel:
    """Figure 5.7: faster codecs."""
    factors = [10 ** (place / 4) for place in range(-8, 17)]
    lines = {
        f"{count:,} {machine.part}": [
            (x, 100 * machine.with_codec_times(x).efficiency(count, "compressed")) for x in factors
        ]
        for count in _some(machine)
    }
    return Panel("5.7: faster codecs", "times as fast", "efficiency, %", lines)


def _gain_of_speed(machine: Machine) -> Panel:
    """Figure 5.8: what a hundred times faster codec gains, by bandwidth."""
    span = range(-4, 17) if machine is THESIS else range(-4, 8)
    rates = [machine.write * 10 ** (place / 4) for place in span]
    lines: dict[str, list[tuple[float, float]]] = {}
    for count in _some(machine):
        line = lines[f"{count:,} {machine.part}"] = []
        for rate in rates:
            there = machine.with_rate(rate)
            faster = there.with_codec_times(100).efficiency(count, "compressed")
            gain = faster - there.efficiency(count, "compressed")
            line.append((rate / 1e6, 100 * gain))
    return Panel("5.8: a codec 100 times as fast", "MB/s of a rank", "points gained", lines)


def _software(machine: Machine) -> Panel:
    """Figure 5.9: what software does, by the size of the machine."""
    lines = {
        way: [(float(n), 100 * machine.efficiency(n, way)) for n in machine.parts] for way in WAYS
    }
    return Panel("5.9: software", machine.part, "efficiency, %", lines)


def _hardware(machine: Machine) -> Panel:
    """Figure 5.10: faster places beside it."""
    lines = {"both": _line(machine, "both"), "none": _line(machine, "none")}
    if machine is THESIS:
        lines["SCR, 211 MB/s"] = _line(machine.with_rate(211e6), "none")
        lines["SSD, 2 and 8 GB/s"] = _line(replace(machine, write=2e9, read=8e9), "none")
        return Panel("5.10: hardware", machine.part, "efficiency, %", lines)
    for rate in (10e9, 50e9):
        lines[f"{rate / 1e9:.0f} GB/s"] = _line(machine.with_rate(rate), "none")
    far = Place(machine.write, machine.read)
    near = replace(machine, write=6e9, read=12e9)
    lines["6 GB/s in the node, copies at 1"] = [
        (float(n), 100 * found["none, both"].efficiency)
        for n in machine.parts
        if "none, both" in (found := near.choices(n, remote=far))
    ]
    return Panel("5.10: hardware", machine.part, "efficiency, %", lines)


def _line(machine: Machine, way: str) -> list[tuple[float, float]]:
    return [(float(n), 100 * machine.efficiency(n, way)) for n in machine.parts]


def _price(machine: Machine) -> Panel:
    """Figure 5.11: work a price, by the price of a node."""
    if machine is not THESIS:
        return _wear(machine)
    nodes = [500.0 + 250.0 * place for place in range(11)]
    cores = replace(THESIS, part_mtbf=CORES_MTBF)
    software = {price: cores.choices(1, prices=Prices(price))["both"] for price in nodes}
    lines = {"software": [(price, one.work_per_price or 0.0) for price, one in software.items()]}
    drives = cores.with_rate(211e6)
    for name, (price_of_drive, cycles, weeks) in DRIVES.items():
        lines[name], lines[f"{name}, as printed"] = [], []
        for price in nodes:
            # One drive for the eight cores of a socket, and two sockets a node.
            prices = Prices(price / 2, price_of_drive)
            one = drives.choices(1, prices=prices, endurance=256 * GIB * cycles, writers=8)["none"]
            lines[name].append((price, (one.work_per_price or 0.0) / 2))
            bought = price + 2 * price_of_drive * math.ceil(260 / weeks)
            lines[f"{name}, as printed"].append((price, 260 * 168 * 0.9094 / bought))
    return Panel("5.11: work a price", "price of a node", "node hours a price unit", lines, False)


def _wear(machine: Machine) -> Panel:
    """What an NVMe drive of a node with eight GPUs bears: weeks at the best interval."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for way in WAYS:
        lines[way] = []
        for count in machine.parts:
            found = replace(machine, write=6e9, read=12e9).choices(
                count, endurance=4 * 14e15, writers=8
            )
            if way in found and found[way].drive_weeks is not None:
                lines[way].append((float(count), found[way].drive_weeks or 0.0))
    return Panel("5.2: life of four drives of 14 PB", machine.part, "weeks", lines)

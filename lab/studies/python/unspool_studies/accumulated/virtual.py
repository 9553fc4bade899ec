"""Part `accumulated`: the evaluation of accumulated compression (HiPC 2023), in virtual time.

Runs of equal checkpoints with the ratios, rates and caches of the paper, and runs whose ratios are
those of the wavefields of a migration, are planned with the measured costs of nvCOMP and of Twine.
It needs no GPU: times are those of the model in `unspool.accumulate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspool import Bound
from unspool.accumulate import NVCOMP, TWINE, CodecCost, Outcome, Profile
from unspool.accumulate import plan as plan_for
from unspool.stats import size as size_text
from unspool_studies.accumulated.options import Accumulated
from unspool_studies.bench.options import Plan
from unspool_studies.bench.report import Cell, Report, Table
from unspool_studies.rtm.codec import name_of_codec

__all__ = ["APPROACHES", "Case", "approaches", "cases_of", "costs_of", "run"]

#: What is compared; the paper has the first three.
APPROACHES = (
    "no compression",
    "nvCOMP single",
    "nvCOMP accumulated",
    "Twine single",
    "Twine batched",
)

#: What compresses the wavefields of a migration, by the name of the table.
WAVE_CODECS = {"frequency": "lossless", "bounded": Bound(range=1e-5)}

NOTES = (
    "GB/s: bytes of all checkpoints over the whole run, to the end of the last transfer; lost %: "
    "the share of the run for which the application is blocked",
    "single: every checkpoint alone; accumulated, batched: the best schedule of all",
    "schedule: checkpoints by decision, in the best schedule for nvCOMP, and for Twine",
    "in virtual time, from measured costs of codecs; made: while the application computes",
)


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        name: what is special about it, for people.
        profile: the run.
        cache: bytes on the device.
    """

    name: str
    profile: Profile
    cache: int


def run(plan: Plan, report: Report) -> None:
    """A table for each thing that varies, and a plot where one is wanted."""
    asked = plan.accumulated
    codecs = costs_of(asked)
    found: dict[str, list[tuple[str, dict[str, Outcome]]]] = {}
    for name, title, cases in _experiments(asked):
        columns = (name, "made GB/s", *(f"{one} GB/s" for one in APPROACHES), "lost %", "schedule")
        about = f"{title}; link {asked.link / 1e9:.0f} GB/s"
        table = report.begin(Table(f"accumulated-{name}", about, columns, notes=list(NOTES)))
        for case in cases:
            outcomes = approaches(case, codecs, asked.link)
            found.setdefault(name, []).append((case.name, outcomes))
            table.add(*_row(case, outcomes))
        report.show(table)
    if asked.plot is not None:
        from unspool_studies.accumulated.plot import draw

        draw({name: _drawn(cases) for name, cases in found.items()}, asked.plot)
        print(f"written: {asked.plot}")


def _drawn(
    cases: list[tuple[str, dict[str, Outcome]]],
) -> list[tuple[str, dict[str, float]]]:
    """GB/s of each approach, by case."""
    rates = ({name: one.throughput / 1e9 for name, one in all_.items()} for _, all_ in cases)
    return [(name, rate) for (name, _), rate in zip(cases, rates, strict=True)]


def costs_of(asked: Accumulated) -> tuple[CodecCost, CodecCost]:
    """What nvCOMP and Twine cost: as measured, where files say so, else as on an H100."""
    nvcomp = NVCOMP if asked.nvcomp is None else CodecCost.load_from(asked.nvcomp)
    twine = TWINE if asked.twine is None else CodecCost.load_from(asked.twine)
    return nvcomp, twine


def approaches(case: Case, codecs: tuple[CodecCost, CodecCost], link: float) -> dict[str, Outcome]:
    """What each approach makes of one run."""
    nvcomp, twine = (
        plan_for(case.profile, codec=codec, cache=case.cache, link=link) for codec in codecs
    )
    outcomes = (
        nvcomp.simple["raw"], nvcomp.simple["alone"], nvcomp.best, twine.simple["alone"], twine.best
    )  # fmt: skip
    return dict(zip(APPROACHES, outcomes, strict=True))


def _row(case: Case, outcomes: dict[str, Outcome]) -> list[Cell]:
    made = case.profile.raw_bytes / max(case.profile.seconds, 1e-12)
    rates = [one.throughput / 1e9 for one in outcomes.values()]
    lost = "/".join(f"{100 * one.overhead:.0f}" for one in outcomes.values())
    best = [outcomes[APPROACHES[2]], outcomes[APPROACHES[4]]]
    counts = "; ".join(_counts(one) for one in best)
    return [case.name, made / 1e9, *rates, lost, counts]


def _counts(one: Outcome) -> str:
    return ", ".join(f"{count} {name}" for name, count in one.counts.items() if count)


def cases_of(asked: Accumulated) -> dict[str, list[Case]]:
    """The runs of equal checkpoints, by what varies, as far as that is asked for."""

    def case(name: str, ratio: float, rate: float, cache: int) -> Case:
        sizes = [asked.size] * asked.checkpoints
        run = Profile.of(sizes, ratio=ratio, interval=asked.size / rate)
        return Case(name, run, cache)

    cases = {
        "ratio": [case(f"{ratio:g}", ratio, asked.rate, asked.cache) for ratio in asked.ratios],
        "rate": [
            case(f"{rate / 1e9:g} GB/s", asked.ratio, rate, asked.cache) for rate in asked.rates
        ],
        "cache": [case(size_text(cache), asked.ratio, asked.rate, cache) for cache in asked.caches],
    }
    return {name: runs for name, runs in cases.items() if name in asked.tables}


def _experiments(asked: Accumulated) -> Iterator[tuple[str, str, list[Case]]]:
    many = f"{asked.checkpoints} checkpoints of {size_text(asked.size)}"
    made, room = f"made at {asked.rate / 1e9:.0f} GB/s", f"cache {size_text(asked.cache)}"
    small = f"compressed {asked.ratio:g} times"
    titles = {"ratio": f"{made}, {room}", "rate": f"{small}, {room}", "cache": f"{made}, {small}"}
    for name, cases in cases_of(asked).items():
        yield name, f"{many}, {titles[name]}", cases
    if "frequency" not in asked.tables:
        return
    try:
        from unspool_studies.accumulated.waves import wave_cases
    except ModuleNotFoundError:
        return
    waves = f"66 wavefields of a migration by source frequency, {room}"
    for name, codec in WAVE_CODECS.items():
        yield name, f"{waves}, {name_of_codec(codec)}", wave_cases(asked, codec)

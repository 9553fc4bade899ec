"""A plan as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from unspool._plan.links import Links, Rate
from unspool._plan.outcome import Candidate, Plan, WhatIf
from unspool._plan.problem import Problem
from unspool.stats import size, table, time

__all__ = ["links_table", "report", "sentence", "what_if_table"]

#: Stall of less than this share of the time is not worth a word.
WORTH_A_WORD = 0.005

#: Schedules that were left out of which a table tells.
SHOWN = 8


def report(plan: Plan) -> str:
    """Everything: the computation, the candidates, what was left out, and the sentence."""
    blocks = [_head(plan), _candidates(plan)]
    if plan.left_out:
        blocks.append("\n".join(_left_out(plan)))
    blocks.append(sentence(plan))
    return "\n\n".join(blocks)


def _left_out(plan: Plan) -> Iterator[str]:
    for one in plan.left_out[:SHOWN]:
        yield f"left out: {one.name}: {one.reason}"
    if len(plan.left_out) > SHOWN:
        yield f"left out: {len(plan.left_out) - SHOWN} more, see `left_out`, or --json"


def _head(plan: Plan) -> str:
    problem = plan.problem
    tiers = ", ".join(f"{name} {size(count)}" for name, count in plan.tiers.capacity.items())
    part = ""
    if problem.reverse_bytes != problem.state_bytes:
        part = f" ({size(problem.reverse_bytes)} of it for a reverse step)"
    return (
        f"{problem.steps:,} steps of {time(problem.step_seconds)} forward and "
        f"{time(problem.reverse_seconds)} in reverse, states of {size(problem.state_bytes)}{part}; "
        f"{tiers}{_compression(problem)}"
    )


def _compression(problem: Problem) -> str:
    """What the codec was taken to be, and who says so."""
    found = problem.compression
    if found is None:
        return ""
    of_ratio, of_encoder, of_decoder = found.sources
    name = "" if found.codec is None else f" by {_option(found.codec)}"
    encode, decode = _speed(found.encode), _speed(found.decode)
    speeds = f"encoder {encode} ({of_encoder}), decoder {decode} ({of_decoder})"
    if of_encoder == of_decoder:
        speeds = f"encoder {encode}, decoder {decode} ({of_encoder})"
    held = size(problem.state_held)
    return f"\nstored{name} in {held}, a ratio of {found.ratio:.3g} ({of_ratio}); {speeds}"


def _speed(rate: Rate) -> str:
    return f"{rate.bytes_per_second / 1e9:.3g} GB/s"


def _candidates(plan: Plan) -> str:
    names = plan.tiers.names
    head = ("schedule", "time", "steps", "again", "copying", "stall", "lead", *names)
    moved = [f"{fast}<>{slow}" for fast, slow in pairwise(names)]
    rows = [_row(candidate, names) for candidate in plan.candidates]
    return table([(*head, *moved), *rows])


def _row(candidate: Candidate, names: Sequence[str]) -> tuple[str, ...]:
    peaks = (candidate.peak_bytes.get(name) for name in names)
    moved = {(link.fast, link.slow): link.flushed + link.prefetched for link in candidate.links}
    pairs = pairwise(names)
    return (
        candidate.name,
        time(candidate.seconds),
        f"{candidate.forward_steps:,}",
        f"{candidate.recomputed_steps:,}",
        time(candidate.copy_seconds),
        time(candidate.stall_seconds),
        "-" if candidate.lead is None else f"{candidate.lead:,}",
        *("-" if peak is None else _brief(peak) for peak in peaks),
        *(_brief(moved[pair]) if pair in moved else "-" for pair in pairs),
    )


def _brief(count: int) -> str:
    """Bytes in at most four digits: `1.5 GiB`, `714 GiB`."""
    number, unit = size(count).split(" ")
    value = float(number)
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def sentence(plan: Plan) -> str:
    """What to take and what it costs."""
    best = plan.best
    options = ", ".join(f"{name}={_option(value)}" for name, value in best.options.items())
    costs = [f"{best.recomputed_steps:,} steps are computed again"]
    if not best.recomputed_steps:
        costs = ["no step is computed again"]
    if best.stall_seconds > WORTH_A_WORD * best.seconds:
        costs.append(f"{time(best.stall_seconds)} are spent waiting for data or room")
    else:
        costs.append("nothing waits for data or room")
    unused = [name for name in plan.tiers.names if name not in best.tiers]
    spare = f"; it has no use for the {' and the '.join(unused)} tier" if unused else ""
    return (
        f"Take {best.name} with Spool({options}): about {time(best.seconds)}, in which "
        f"{' and '.join(costs)}{spare}.{_simpler(plan)}"
    )


def _simpler(plan: Plan) -> str:
    """What takes little longer and needs fewer tiers."""
    other = plan.simpler
    if other is None:
        return ""
    more = other.seconds / plan.best.seconds - 1
    unused = [name for name in plan.best.tiers if name not in other.tiers]
    return f" Without the {' and the '.join(unused)} tier {other.name} takes {more:.1%} longer."


def _option(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_option, value))})"
    if not isinstance(value, int | str):
        return repr(value)
    return f'"{_exact(value) if isinstance(value, int) else value}"'


def _exact(count: int) -> str:
    """A size as `Spool` takes it: the largest binary unit of which it is a whole number."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % (1 << 10 * power) == 0:
            return f"{count >> 10 * power}{unit}"
    return f"{count}B"


def what_if_table(plan: Plan, rows: Sequence[WhatIf]) -> str:
    """The best time with other sizes, beside that of the plan."""
    lines = [("with", "best", "time", "against now")]
    lines.append(("what there is", plan.best.name, time(plan.best.seconds), ""))
    for row in rows:
        name = f"{row.tier} {size(row.capacity)}" if row.capacity else f"no {row.tier}"
        if row.best is None:
            lines.append((name, "nothing fits", "-", "-"))
        else:
            change = row.best.seconds / plan.best.seconds - 1 if plan.best.seconds else 0.0
            lines.append((name, row.best.name, time(row.best.seconds), f"{change:+.1%}"))
    return table(lines)


def links_table(links: Links) -> str:
    """The speeds of a machine."""
    rows = [("movement", "rate", "latency", "slows computing by"), *_movements(links)]
    notes = f"on {links.on}"
    if links.first_touch:
        cost = links.first_touch * (1 << 30)
        notes += f"; writing 1 GiB of main memory for the first time takes {time(cost)} more"
    return f"{table(rows)}\n{notes}"


def _movements(links: Links) -> Iterator[tuple[str, ...]]:
    first = links.tiers[0]
    yield _movement(f"application -> {first}", links.save, "-")
    yield _movement(f"{first} -> application", links.restore, "-")
    for link in links.links:
        yield _movement(f"{link.fast} -> {link.slow}", link.flush, f"{link.contention:.0%}")
        yield _movement(f"{link.slow} -> {link.fast}", link.prefetch, f"{link.contention:.0%}")


def _movement(name: str, rate: Rate, slows: str) -> tuple[str, ...]:
    return name, f"{rate.bytes_per_second / 1e9:.2f} GB/s", time(rate.latency), slows

"""What codecs did with an array: a table for people, a dictionary for machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from unspool.codecs.host import name_of
from unspool.stats import size
from unspool_studies.codecs.entropy import Entropy
from unspool_studies.codecs.quality import Quality
from unspool_studies.codecs.source import Source
from unspool_studies.codecs.trial import Trial, has_ssim

__all__ = ["Finding", "as_dict", "show"]

#: The narrowest table, where the output is not a terminal.
WIDTH = 132


@dataclass(slots=True)
class Finding:
    """All that was found out about one array.

    Attributes:
        source: where it comes from.
        facts: its range and RMS.
        trials: what each codec did.
        refused: codecs that do not take it, and why, in words.
        notes: what else there is to say.
        entropy: that of its values, where it was asked for.
    """

    source: Source
    facts: Quality
    trials: list[Trial] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    entropy: Entropy | None = None


def as_dict(finding: Finding) -> dict[str, Any]:
    """All figures, ready for `json.dump`."""
    values = finding.source.array
    return {
        "name": finding.source.name,
        "dtype": name_of(values.dtype),
        "shape": list(values.shape),
        "bytes": values.nbytes,
        "range": finding.facts.range,
        "rms": finding.facts.rms,
        "notes": [*finding.source.notes, *finding.notes],
        "entropy": None if finding.entropy is None else finding.entropy.as_dict(),
        "codecs": [trial.as_dict() for trial in finding.trials],
        "refused": [{"codec": name, "why": why} for name, why in finding.refused],
    }


def show(finding: Finding, console: Console) -> None:
    """Prints the table of an array."""
    values = finding.source.array
    shape = " x ".join(map(str, values.shape)) or "one value"
    title = f"{finding.source.name}: {name_of(values.dtype)}, {shape}, {size(values.nbytes)}"
    console.print(f"{title}; range {finding.facts.range:.4g}, RMS {finding.facts.rms:.4g}")
    for note in finding.source.notes:
        console.print(f"  {note}")
    console.print(_table(finding))
    for line in _entropy(finding):
        console.print(f"  {line}")
    for name, why in finding.refused:
        console.print(f"  {name}: {why}")
    for note in (*finding.notes, *_explained(finding)):
        console.print(f"  {note}")


def _table(finding: Finding) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("codec", no_wrap=True)
    shown = ("ratio", "bits", "encode", "decode", "max error", "rel. L2", "PSNR", "SSIM", "bias")
    for name in (*shown, "violations"):
        table.add_column(name, justify="right", no_wrap=True)
    for trial in finding.trials:
        table.add_row(*_row(trial))
    return table


def _row(trial: Trial) -> tuple[str, ...]:
    found = trial.quality
    name = trial.name if trial.place == "cpu" else f"{trial.name}, GPU"
    violations = "-" if trial.violations is None else f"{trial.violations:,}"
    sizes = (f"{trial.ratio:.2f}", f"{trial.bits:.2f}")
    speeds = tuple(f"{rate / 1e9:.2f}" for rate in trial.rates())
    if not trial.violations and not found.max_error:
        return (name, *sizes, *speeds, "0", "0", "-", "-", "0", violations)
    return (
        name,
        *sizes,
        *speeds,
        f"{found.max_error:.2e}",
        f"{found.rel_l2:.2e}",
        f"{found.psnr:.1f} dB" if math.isfinite(found.psnr) else "-",
        "-" if found.ssim is None else f"{found.ssim:.5f}",
        f"{found.bias:+.0e}",
        violations,
    )


def _entropy(finding: Finding) -> list[str]:
    """What values tell by themselves, beside what codecs without loss reach."""
    found = finding.entropy
    if found is None:
        return []
    groups = [found.planes[at : at + 8] for at in range(0, found.width, 8)]
    planes = "; ".join(" ".join(f"{one:.2f}" for one in group) for group in groups)
    exact = [one for one in finding.trials if not one.quality.max_error and not one.violations]
    best = max(exact, key=lambda one: one.ratio, default=None)
    reached = "" if best is None else f"; {best.name} reaches {best.ratio:.2f}"
    return [
        f"entropy: {found.bits:.2f} of {found.width} bits a value ({found.values:,} values, "
        f"{found.distinct:,} distinct): coded by themselves they become at most "
        f"{found.ratio:.2f} times smaller{reached}",
        f"by bit plane, from the sign on: {planes}; together {found.plane_bits:.2f} bits",
    ]


def _explained(finding: Finding) -> list[str]:
    lines = [
        "bits: for each value; encode, decode: GB/s of the array, best of several, all cores",
        "(zstd, lz4, archive pack on half of them); PSNR: of the range; bias: mean error / range",
    ]
    if any(trial.quality.ssim is not None for trial in finding.trials):
        lines.append("SSIM: 7 x 7 windows with equal weights on planes of the last two dimensions")
    elif finding.source.array.ndim > 1 and not has_ssim():
        lines.append("SSIM: pip install scikit-image")
    if any(trial.name.startswith("zfp") for trial in finding.trials):
        lines.append(
            "zfp with a bound: tolerance is the absolute error that the bound allows; its encoder "
            "also decodes, to know its error"
        )
    return lines

"""The plot of the part `rtm-codecs`: how far the image is off, against how small the history is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from unspool_studies.bench.rtm_codecs import Trial
from unspool_studies.rtm.quality import VERDICTS

__all__ = ["draw"]

#: What a codec's name begins with, and how its points look.
FAMILIES = (
    ("range=", "bound, of the range", "o-"),
    ("rms=", "bound, of the RMS", "s-"),
    ("psnr=", "target PSNR", "^-"),
    ("l2=", "target L2", "v-"),
    ("pointwise=", "pointwise, with a floor", "D-"),
    ("zfp:", "zfp, fixed rate", "x--"),
)
#: Errors below are drawn here.
LEAST = 1e-8


def draw(trials: Sequence[Trial], file: Path) -> None:
    """Writes the plot."""
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for start, label, look in FAMILIES:
        points = sorted(
            (one.ratio, max(LEAST, min(one.quality.rel_l2, 10.0)), one.name)
            for one in trials
            if one.name.startswith(start)
        )
        if points:
            axes.plot([p[0] for p in points], [p[1] for p in points], look, label=label)
        for ratio, error, name in points:
            text = name.split("=", 1)[1].split(",")[0]
            axes.annotate(text, (ratio, error), (4, 4), textcoords="offset points", fontsize=7)
    for one in trials:
        if one.name == "lossless":
            axes.axvline(one.ratio, color="0.6", linestyle=":", label="lossless")
    limits = [most for most, _ in VERDICTS]
    axes.axhspan(limits[-1], 20.0, color="tab:red", alpha=0.12)
    axes.text(1.05, limits[-1] * 1.2, "the image is ruined", color="tab:red", fontsize=8)
    for most, word in VERDICTS:
        axes.axhline(most, color="0.85", linewidth=0.8, zorder=0)
        axes.text(1.05, most * 0.55, word, color="0.45", fontsize=7)
    axes.set(
        xscale="log", yscale="log", xlabel="times smaller", ylabel="relative error of the image"
    )
    lossy = [one.quality.rel_l2 for one in trials if one.quality.rel_l2 > LEAST]
    axes.set_ylim(min(lossy, default=1e-3) / 10.0, 20.0)
    axes.set_xlim(left=1.0)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(file, dpi=110)

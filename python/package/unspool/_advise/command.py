"""`unspool advise`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from unspool._plan.sizes import rate_of
from unspool.advising import Place, Power, Prices, advise
from unspool.codecs.values import Bound
from unspool.errors import Error, OptionError
from unspool.planning import Compression, Rate

__all__ = ["run_command"]


def run_command(options: argparse.Namespace) -> int:
    """Prints an advice; returns the exit code.

    Raises:
        Error: an option makes no sense, nothing works, or something could not be measured.
        OSError: a file cannot be read or written.
    """
    figure: Path | None = options.figure
    if figure is not None and (
        not figure.absolute().parent.is_dir() or figure.suffix.lower() not in (".png", ".svg")
    ):
        raise OptionError(
            f"--figure {figure}: a .png or .svg in a directory that exists is needed."
        )
    found = advise(
        options.bytes if options.sample is None else _arrays(options.sample),
        _place("--disk", options.disk),
        remote=None if options.remote is None else _place("--remote", options.remote),
        ranks=options.ranks,
        mtbf=options.mtbf,
        rank_mtbf=options.rank_mtbf,
        healed=options.healed,
        work=options.work,
        blocking=options.blocking,
        blocked=options.blocked,
        restart=options.restart,
        codecs=_codecs(options),
        increments=options.increments,
        on_gpu=options.on_gpu,
        writers=options.writers,
        endurance=options.endurance,
        power=_power(options.watts),
        prices=_prices(options),
    )
    print(json.dumps(found.to_dict(), indent=1) if options.json else found)
    if figure is not None:
        found.draw(figure)
    return 0


def _arrays(paths: list[Path]) -> dict[str, Any]:
    """The arrays of files of NumPy."""
    import numpy

    found: dict[str, Any] = {}
    for path in paths:
        try:
            loaded = numpy.load(path, mmap_mode="r", allow_pickle=False)
            many = loaded.files if hasattr(loaded, "files") else None
            found |= (
                {path.stem: loaded}
                if many is None
                else {f"{path.stem}.{name}": loaded[name] for name in many}
            )
        except ValueError as why:
            raise OptionError(f"--sample {path}: {why}") from why
    return found


def _place(name: str, text: str) -> Any:
    """Speeds, or a directory; a directory of such a name goes first."""
    if not text.rstrip().endswith("/s") or Path(text).is_dir():
        return text
    words = text.split(",")
    if len(words) > 2:
        raise OptionError(
            f'{name} {text}: write "2 GB/s" or "2 GB/s,4 GB/s", the second for reading.'
        )
    rates = [rate_of(name, word) for word in words]
    return Place(rates[0], rates[-1])


def _codecs(options: argparse.Namespace) -> list[Any] | None:
    """What is tried, or None for what `advise` takes by itself."""
    found: list[Any] = []
    if options.sample is not None:
        found.append("lossless")
    if options.bound is not None:
        found.append(_bound(options.bound))
    encode, decode = _speed("--encode", options.encode), _speed("--decode", options.decode)
    if options.ratio is not None:
        found.append(Compression(options.ratio, encode, decode))
    elif encode or decode:
        raise OptionError("--encode and --decode are those of --ratio: give that as well.")
    return found or None


def _speed(name: str, text: str | None) -> Rate | None:
    return None if text is None else Rate(rate_of(name, text))


def _bound(text: str) -> Bound:
    kind, _, number = text.partition("=")
    try:
        return Bound(**{kind.strip(): float(number)})
    except Error:
        raise
    except (TypeError, ValueError) as why:
        raise OptionError(f"--bound {text}: write it as range=1e-4.") from why


def _power(text: str | None) -> Power | None:
    if text is None:
        return None
    if text.strip() == "now":
        return Power.now()
    try:
        return Power(*(float(word) for word in text.split(",")))
    except Error:
        raise
    except (TypeError, ValueError) as why:
        raise OptionError(f'--watts {text}: write "700", "700,500,400,60" or "now".') from why


def _prices(options: argparse.Namespace) -> Prices | None:
    if options.node_price is None:
        if options.drive_price or options.kwh_price:
            raise OptionError(
                "--drive-price and --kwh-price go with --node-price: give that as well."
            )
        return None
    return Prices(options.node_price, options.drive_price, options.weeks, options.kwh_price)

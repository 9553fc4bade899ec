"""`unspool.torch.budget`: blocks of a model that are kept, computed again or moved away."""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

import torch
from unspool._history import free_host
from unspool.advice import measure_links
from unspool.advice.blocks import Block, Contention, Forecast, Lane, Way
from unspool.advice.links import Links, LinksError, Rate
from unspool.advice.sizes import OPTIONS, bytes_of
from unspool.errors import OptionError
from unspool.stats import size, table, time

from ._found import Wrapped, blocks_of
from ._inputs import see_all_inputs
from ._kept import STAGE
from ._moving import Carrier
from ._spools import spool_of
from ._stack import Stack
from ._states import Chooser, Planned

__all__ = ["BudgetReport", "budget"]

#: The part of a tier that is counted on: the rest is alignment, and gaps between what lies there.
USABLE = 0.9

#: By how much a GPU computes slower beside copies over its link, which no link says: six layers of
#: a language model in bfloat16 and copies of 256 MiB, on an H100 80GB HBM3 (PCIe 5).
CONTENTION = Contention(away=0.10, late=0.03, back=0.01)

#: Modules between a program and what its blocks are called by.
INSIDE = ("unspool.", "torch.")


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetReport:
    """What `budget` has chosen for each block, what it expects of a step, and what came; `print`
    it for a table.

    Seconds are those of the blocks and of what is computed between them, forwards and backwards.
    They are None before they are known, and those that are expected also where everything is kept.

    Attributes:
        budget: bytes.
        blocks: by the name of each block, `"keep"`, `"recompute"`, `"offload"`, or `"recompute,
            input offloaded"`; empty as long as steps are measured.
        saved_bytes: what the blocks save in all.
        expected_bytes: the most that are kept at once.
        expected_seconds: of a step.
        measured_seconds: of the last step.
        kept_seconds: of a step in which all were kept.
        recomputed_seconds: of one in which all were computed again.
        fell_back: whether blocks are no longer moved, as that took longer than expected.
        why: what the choice costs in a step, in words.
        others: by half and twice the budget, the seconds that a step would be expected to take;
            None where nothing fits. Empty where all is kept and no times were taken.
    """

    budget: int
    blocks: dict[str, str]
    saved_bytes: int | None = None
    expected_bytes: int | None = None
    expected_seconds: float | None = None
    measured_seconds: float | None = None
    kept_seconds: float | None = None
    recomputed_seconds: float | None = None
    fell_back: bool = False
    why: str = ""
    others: dict[int, float | None] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All figures as dictionaries and numbers, ready for `json.dump`."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if not self.blocks:
            return f"a budget of {size(self.budget)}: nothing is chosen before two steps are seen"
        rows = [
            ("a step", "time", "bytes at once"),
            ("expected", _time(self.expected_seconds), _size(self.expected_bytes)),
            ("measured", _time(self.measured_seconds), "-"),
            ("all kept", _time(self.kept_seconds), _size(self.saved_bytes)),
            ("all computed again", _time(self.recomputed_seconds), "-"),
        ]
        rows += [
            (f"within {size(each)}", "too little" if seconds is None else time(seconds), "-")
            for each, seconds in self.others.items()
        ]
        return f"{self._head()}\n{self.why}\n\n{table(rows)}"

    def _head(self) -> str:
        return f"{len(self.blocks)} blocks within {size(self.budget)}: {self._ways()}"

    def _ways(self) -> str:
        counts = Counter(self.blocks.values())
        ways = ", ".join(f"{counts[way]} {way}" for way in Way if counts[way])
        return f"{ways}{' (moving blocks took longer than expected)' if self.fell_back else ''}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time(seconds)


def _size(count: int | None) -> str:
    return "-" if count is None else size(count)


class budget:
    """Keeps what the blocks of a model save for the backward pass within a budget: each block is
    kept, computed again, or moved into a spool, whichever makes a step fastest.

        blocks = unspool.torch.budget(model, "12GiB")
        for batch in data:
            model(batch).backward()
        print(blocks.report)

    Two steps are measured: what the blocks save, and how long they take. In those, all blocks are
    computed again but the last ones. Then a way is chosen for each block by a forecast, like those
    of `unspool.plan`, of a step at the speed of the link. Of one block that is moved, a part may be
    kept. A larger budget is never expected to be slower. Inputs of other shapes are measured anew.
    Where moving blocks turns out 10 % slower than expected in three steps in a row, blocks
    are computed again instead.

    Gradients and buffers are those without it, bit for bit, also with dropout. Modules in
    evaluation mode, and calls without gradients, are as they were. Of several passes at the same
    time, the first one is within the budget, and the blocks of the others are computed again. The
    blocks are called as before after `remove`, or after the end of a `with`; graphs that were made
    stay valid.

    Arguments:
        model: the module.
        budget: bytes, or text such as `"12GiB"`, for the tensors that the blocks save. Parameters,
            what is saved outside of blocks, and gradients come on top.
        blocks: a list of modules, or `"auto"`: modules of one class in a `ModuleList` or a
            `Sequential`, the outermost ones, and units of FSDP.
        spool: where what is moved goes, under versions of its own. Without one, a spool is opened
            when it is first needed: in main memory for tensors of a GPU, and in the folder for
            temporary files for those in main memory, of which a RuntimeWarning says how much.
        links: the speeds of the machine, from `unspool.advice.measure_links`; None measures
            them when not everything can be kept, for about two seconds.

    Raises:
        OptionError: an argument makes no sense, or the model has no repeated blocks.
        NoPlanError: in a forward pass, nothing fits into the budget; the text has the least one.
        All that `Spool.save` raises, in a block of the forward pass, and all that `Spool.restore`
            raises, in the backward pass; and ArrayError there if what a block computes again would
            not be what it computed before.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        budget: int | str,
        *,
        blocks: str | Iterable[torch.nn.Module] = "auto",
        spool: Any = None,
        links: Links | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise OptionError(f"budget(model={model!r:.60}): that is not a module.")
        if not (links is None or isinstance(links, Links)):
            raise OptionError(f"budget(links={links!r:.60}): give Links, or leave it out.")
        self._links, self._spool = links, spool_of("budget", spool)
        self._budget = bytes_of("budget", budget)
        found = blocks_of(model, blocks)
        self._model, self._warned = type(model).__name__, False
        see_all_inputs()
        self._names: dict[int, str] = {}
        self._wrapped: list[Wrapped] = []
        for name, block in found.items():
            wrapped = Wrapped(block, self._call)
            self._names[id(wrapped)] = name
            self._wrapped.append(wrapped)
        chooser = Chooser(self._budget, self._wrapped, self._lane, self._moves)
        self._stack = Stack(chooser, Carrier(self._spool))

    def _call(self, wrapped: Wrapped, args: Any, kwargs: Any) -> Any:
        return self._stack.call(wrapped, args, kwargs)

    @property
    def report(self) -> BudgetReport:
        """What was chosen for steps such as the last one, what is expected, and what came."""
        state, found = self._stack.latest, self._chosen()
        if not isinstance(state, Planned) or state.blocks is None:
            return found
        halved, doubled = self._budget // 2, 2 * self._budget
        others = {each: state.within(each) for each in (halved, doubled)}
        return dataclasses.replace(found, others=others)

    def _chosen(self) -> BudgetReport:
        """The report without what other budgets would change."""
        state = self._stack.latest
        if not isinstance(state, Planned):
            return BudgetReport(self._budget, {})
        forecast, blocks, seen = state.forecast, state.blocks, state.seen
        found = BudgetReport(
            self._budget,
            {
                self._names[id(call.wrapped)]: str(way)
                for call, way in zip(state.calls, forecast.ways, strict=True)
            },
            expected_bytes=forecast.peak_bytes,
            expected_seconds=state.expected,
            measured_seconds=None if seen is None else seen.seconds(),
            saved_bytes=forecast.peak_bytes,
            fell_back=state.fell_back,
            why="Everything fits.",
        )
        if blocks is None:
            return found
        kept = sum(block.forward + block.backward for block in blocks) + state.beside
        return dataclasses.replace(
            found,
            saved_bytes=sum(block.saved for block in blocks),
            kept_seconds=kept,
            recomputed_seconds=kept + sum(block.again for block in blocks),
            why=_why(forecast, blocks),
        )

    def remove(self) -> None:
        """Lets the blocks be called as before. Does nothing the second time."""
        for wrapped in self._wrapped:
            wrapped.remove()
        # A spool of our own is closed once no graph has anything in it.
        self._stack.carrier = Carrier(self._spool)

    def __repr__(self) -> str:
        report = self._chosen()
        ways = report._ways() if report.blocks else "not chosen yet"
        blocks = f"{len(self._wrapped)} blocks within {size(self._budget)}"
        return f"<unspool.torch.budget of a {self._model}, {blocks}: {ways}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _lane(self, device: torch.device) -> Lane | None:
        """How bytes are moved from a device; None where that cannot be measured."""
        tiers = self._tiers(device)
        links = self._links
        if links is None:
            options: dict[str, Any] = {OPTIONS[name]: "auto" for name in tiers}
            if device.type == "cpu" and self._spool is None:
                options["host_memory"] = STAGE
            if "disk" in tiers:
                options["disk"] = tempfile.gettempdir()
            on = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
            try:
                links = measure_links(**options, device=on)
            except LinksError:
                return None
        return _lane_of(links, device, USABLE * max(tiers.values()))

    def _moves(self, lane: Lane | None, count: int) -> None:
        """Says once that steps write to a disk that nobody has named."""
        if not count or lane is None or lane.beside or self._spool is not None or self._warned:
            return
        self._warned = True
        warnings.warn(
            f"budget: each step writes up to {size(count)} of saved tensors to "
            f"{tempfile.gettempdir()}, the folder for temporary files. Give spool= to name another "
            "place, or a larger budget to move less.",
            RuntimeWarning,
            stacklevel=_outside(),
        )

    def _tiers(self, device: torch.device) -> dict[str, float]:
        """The bytes that are free in the tiers of the spool, or of the one that would be opened."""
        if self._spool is not None:
            return {
                tier.name: float("inf") if tier.capacity is None else tier.capacity - tier.used
                for tier in self._spool.stats().tiers
            }
        if device.type != "cpu":
            return {"host": free_host()}
        return {"host": STAGE, "disk": shutil.disk_usage(tempfile.gettempdir()).free // 2}


def _why(forecast: Forecast, blocks: Sequence[Block]) -> str:
    pairs = list(zip(blocks, forecast.ways, strict=True))
    moved, repeated = sum(forecast.moved), [block.again for block, way in pairs if way.repeats]
    parts = []
    if repeated:
        parts.append(f"computing {len(repeated)} blocks again adds {time(sum(repeated))} to a step")
    if moved:
        once = sum(block.forward + block.backward for block in blocks)
        waits = max(0.0, forecast.seconds - once - sum(repeated))
        parts.append(f"moving {size(moved)} away and back adds {time(waits)}")
    text = " and ".join(parts) or "everything fits"
    return f"{text[0].upper()}{text[1:]}."


def _outside() -> int:
    """How many calls up from the caller the program is that calls the model."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(INSIDE):
        frame, level = frame.f_back, level + 1
    return level


def _lane_of(links: Links, device: torch.device, capacity: float) -> Lane:
    """Of a GPU, as far as main memory, beside computing; of main memory, to the last tier."""
    beside = device.type != "cpu"
    away, back = [links.save], [links.restore]
    for link in links.links:
        if not beside or link.fast == "device":
            away.append(link.flush)
            back.append(link.prefetch)
    return Lane(_slowest(away), _slowest(back), beside, capacity, CONTENTION)


def _slowest(rates: list[Rate]) -> Rate:
    return min(rates, key=lambda rate: rate.bytes_per_second)

"""`unspool.torch.scan`: a loop whose graph is real, and of which only states are kept.

The steps run in segments of which autograd keeps nothing, and sees the same graph as of a plain
loop. The carry with which a segment starts is a state in a spool: it is saved before the segment
runs, restored when a gradient first needs a tensor of the segment, and discarded when the graph
lets go of the segment.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from unspool._adjoint.report import Fidelity
from unspool._gradient import Gradient, Learned
from unspool._history import at_death, close_quietly, free_host
from unspool.errors import OptionError

from ._again import DifferentError, Watch, first_time, held, kind_of_step
from ._changed import refuse
from ._checked import Check, Told, count_of
from ._eager import uncompiled
from ._earlier import mark_of
from ._inputs import see_all_inputs
from ._layout import bytes_of_tensor, can_be_saved
from ._ordered_scan import OrderedScan, check_scan
from ._recompute import Frame
from ._segments import ALIGNMENT, OVERHEAD, PROBED, Measure, Segments, Sizes
from ._spools import Snapshot, budget_bytes, open_spool, place_of, spool_of
from ._surroundings import transformed
from ._told import ScanReport, Teller
from ._trees import Outputs, Rows, flatten, taken_apart, unflatten

__all__ = ["scan"]


@uncompiled
def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    budget: int | str = "auto",
    segment: int | str = "auto",
    spool: Any = None,
    codec: Any = None,
    until: Callable[[Any], Any] | None = None,
    check: int = 0,
    fidelity: Told | None = None,
    report: Callable[[ScanReport], Any] | None = None,
) -> tuple[Any, Any]:
    """A loop of `step` over `xs`, differentiable within a budget of memory.

    Arguments and result are those of `jax.lax.scan`:

        carry, ys = init, []
        for n in range(length):
            carry, y = step(carry, xs[n])
            ys.append(y)
        return carry, torch.stack(ys)

    All gradients are those of this loop, bit for bit: of `init`, of `xs`, and of everything that
    `step` reads, also second ones. A backward pass computes each step once more, except the first
    two and the last segment.

    Arguments:
        step: `step(carry, x)` returns `(carry, y)`. It is called again in the backward pass, with
            the same random numbers, buffers, variables and surroundings, which are put back
            afterwards. It may change the carry in place, and take gradients, as in a plain loop.
        init: the first carry: a tensor, or a pytree of tensors and other values.
        xs: a tensor, or a pytree of tensors, whose first dimension is that of the steps; or None.
        length: the number of steps, where `xs` does not say it.
        budget: bytes, or text such as `"8GiB"`, for what is saved of one segment, and on the CPU
            for its states too. `"auto"` is half of what is free where the tensors are.
        segment: the number of steps in a segment. `"auto"` takes the longest segments within the
            budget, by what the second step saves; when all steps fit, nothing is recomputed.
        spool: where the states at which segments start are kept, under versions of its own. Without
            one, a spool is opened in main memory, and beside it on disk in the folder for temporary
            files if that is too small, and closed when the graph is gone.
        codec: of these states, as in `Spool`. With a bound, segments are recomputed from states
            that differ within it: gradients are then those of a nearby trajectory. Or an
            `unspool.Gradient`, which chooses bounds from the accuracy that the gradient has to
            have. In its first backward pass copies of all segments are taken back several times.
        until: `until(carry)` ends the loop after the step that makes it true. It is asked after
            each step, which waits for a GPU. With it, `length` may be left out.
        check: the number of states, spread over the loop, that are also kept without loss, to
            estimate what a codec with a bound does to the gradient. Before the first backward pass,
            copies of all segments are then taken back twice, and those of the checked states three
            times, so that it takes some three times as long. Above 5 % there is an
            `unspool.types.FidelityWarning`.
        fidelity: is called with what `check` or a `Gradient` has found, an
            `unspool.types.Fidelity`. Its arrays are called `init[0]`, `xs[0]` and so on by the
            leaves of the argument, and `params[0]` and so on what `step` reads besides, in no
            particular order.
        report: is called once, when the loop has run, with how it was cut, an object to be printed.
            `report=print` shows it, with what half and twice the budget would change, and on a CPU
            what the resident memory of the process grew by.

    Returns:
        The last carry, and the outputs stacked; None as outputs where no step has one.

    Raises:
        OptionError: an argument makes no sense, or `step` returned no pair; `check` or a `Gradient`
            together with `until`; a `Gradient` that is `strict`, or on an IncrementalSpool.
        ArrayError: `xs` has something that is not a tensor, or `step` an output that is none; with
            `check`, a part of the carry needs a gradient and cannot be saved.
        All that `Spool.save` raises; and, in the backward pass, all that `Spool.restore` raises,
        and ArrayError if what is computed again would not be what was computed before.
    """
    if not callable(step):
        raise OptionError(f"scan(step={step!r}): that is not a function.")
    if segment != "auto" and (
        isinstance(segment, bool) or not isinstance(segment, int) or segment < 1
    ):
        raise OptionError(f'scan(segment={segment!r}): write a number of steps, or "auto".')
    order = codec if isinstance(codec, Gradient) else None
    checks = count_of("scan", check, fidelity, order is not None)
    if checks and until is not None:
        raise OptionError(
            "scan(check=...): the states to be checked are spread over the loop, and with `until` "
            "nobody knows how long it is: give `length` alone."
        )
    tell = Teller(report)
    rows = Rows("scan", xs, length, endless=until is not None)
    see_all_inputs()
    loop = _Loop(step, rows, until)
    given = spool_of("scan", spool)
    if order is not None:
        check_scan(order, given, until)
    if not torch.is_grad_enabled() or transformed():
        return loop.result(loop.run(init, loop.rest()))
    watch = None if order is None else OrderedScan(step, init, rows, order, fidelity)
    carry = init if segment != "auto" else loop.probe(init, watch)
    leaves = [leaf for leaf in flatten(carry)[0] if can_be_saved(leaf)]
    place = place_of(leaves)
    cut = _cut(loop, leaves, budget, segment, given, 2 if checks else 1, tell, watch)
    if loop.ended:
        return tell(loop.result(carry), place)
    restored = 0 if cut is None else -(-loop.left() // cut.segment) - 1
    if not restored and fidelity is not None:
        fidelity(Fidelity((), 0, {}, target=None if order is None else order.relative))
    if cut is None:
        return tell(loop.result(loop.run(carry, loop.rest())), place)
    if restored and watch is not None:
        learned = watch.begin(restored)
        keeper = _Keeper(given, cut, leaves, learned or "lossless", 3)
        watch.keep_early(functools.partial(_Start, keeper, exact=True), keeper.spool)
        found = watch.results(_segmented(loop, carry, keeper, watch), loop.outputs)
    elif restored and checks:
        keeper = _Keeper(given, cut, leaves, codec, min(checks, restored) + 1)
        check_ = Check(step, init, rows, restored, checks, fidelity)
        found = check_.results(_segmented(loop, carry, keeper, check_), loop.outputs)
    else:
        keeper = _Keeper(given, cut, leaves, None if order is not None else codec)
        found = loop.result(_segmented(loop, carry, keeper, None))
    return tell(found, place)


def _cut(
    loop: _Loop,
    leaves: list[torch.Tensor],
    budget: Any,
    segment: Any,
    given: Any,
    alive: int,
    tell: Teller,
    watch: OrderedScan | None,
) -> Segments | None:
    """How the steps that are left are cut; the saved tensors of so many segments are alive at
    once."""
    place = place_of(leaves)
    left = 0 if loop.ended else None if loop.until is not None else loop.left()
    # A spool of our own needs to know how large it may be.
    host = free_host() if given is None else 0
    largest = max(map(bytes_of_tensor, leaves), default=0)
    shared = given is None and place.type == "cpu"
    sizes = Sizes(left, loop.saved, _bytes(leaves), largest, host, shared, alive)
    if segment == "auto":
        limit = budget_bytes("scan", budget, place)
        cut = sizes.cut(limit)
    else:
        limit, cut = None, _as_given(segment, sizes)
    if watch is not None and cut is not None:
        # A budget may be another one each time, and bounds are those of segments of one length.
        length = watch.segment(cut.segment, leaves, left, segment == "auto")
        cut = cut if length == cut.segment else _as_given(length, sizes)
    tell.chosen = limit, sizes, cut
    return cut


def _as_given(segment: int, of: Sizes) -> Segments:
    """Segments of so many steps."""
    if of.steps is None:
        return Segments(segment, of.host, disk=True)
    needed = -(-of.steps // segment) * (of.state + OVERHEAD)
    return Segments(segment, min(needed, of.host), disk=needed > of.host)


def _bytes(leaves: list[torch.Tensor]) -> int:
    """What a carry takes in memory."""
    return sum(bytes_of_tensor(leaf) + ALIGNMENT for leaf in leaves)


#: What goes back through copies of the segments before autograd does.
Watching = Check | OrderedScan | None


class _Loop:
    """The loop as it goes forwards.

    Attributes:
        done: the number of steps that were taken.
        ended: whether there is no step left.
        saved: the bytes that the second step saved.
        grows: whether steps take gradients themselves, as far as is known.
    """

    def __init__(self, step: Callable[[Any, Any], Any], rows: Rows, until: Any) -> None:
        self.step, self.rows, self.until = step, rows, until
        self.outputs = Outputs("scan")
        self.done = self.saved = 0
        self.ended = rows.length == 0
        self.grows = True
        self._watch: Watch | None = None

    @property
    def watch(self) -> Watch:
        """What the steps reach, once some are to be computed again."""
        if self._watch is None:
            self._watch = Watch([self.step], loop=True)
        return self._watch

    def left(self) -> int:
        """How many steps are left; 0 where nobody knows."""
        return 0 if self.rows.length is None else self.rows.length - self.done

    def rest(self) -> Iterable[int]:
        """The numbers of the steps that are left."""
        return itertools.count(self.done) if self.rows.length is None else self.upto(None)

    def upto(self, count: int | None) -> range:
        """The numbers of the next steps, at most `count`."""
        end = self.rows.length
        if count is not None:
            end = self.done + count if end is None else min(end, self.done + count)
        assert end is not None
        return range(self.done, end)

    def run(
        self, carry: Any, numbers: Iterable[int], after: Callable[[], None] | None = None
    ) -> Any:
        """Takes steps, as a plain loop does, and calls `after` after each."""
        for n in numbers:
            carry, y = taken_apart("scan", self.step(carry, self.rows[n]))
            self.outputs.append(y)
            self.done = n + 1
            if after is not None:
                after()
            if self.until is not None and self._stops(carry):
                self.ended = True
                return carry
        self.ended = self.done == self.rows.length
        return carry

    def _stops(self, carry: Any) -> bool:
        # Without a graph: what is saved here would be missing when the segment is computed again.
        leaves, tree = flatten(carry)
        with torch.no_grad():
            seen = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            assert self.until is not None
            return bool(self.until(unflatten(seen, tree)))

    def probe(self, carry: Any, watch: OrderedScan | None) -> Any:
        """Takes two steps, and counts what the second one saves."""
        moment = None
        if watch is not None:
            moment = self.watch.moment(flatten(carry)[0])
            watch.early(carry, self.upto(PROBED), moment)
        measure = Measure()
        measure.known(self.rows.leaves)
        with measure:
            for _ in range(PROBED):
                before = measure.count()
                if not self.ended:
                    carry = self.run(carry, self.upto(1))
            self.saved = measure.count() - before
        if moment is not None:
            self.watch.learn(moment)
        return carry

    def result(self, carry: Any) -> tuple[Any, Any]:
        """What scan returns."""
        return carry, self.outputs.stacked()


class _Keeper:
    """The spool of a loop, and the order in which its states come back.

    Attributes:
        codec: of the states; or what was learned, which has a bound for each of them.
        segment: the steps in a segment.
        spool: the given one, or one of our own with room for `more` states, which is closed when
            nothing refers to this.
    """

    def __init__(
        self, given: Any, cut: Segments, leaves: list[torch.Tensor], codec: Any, more: int = 0
    ) -> None:
        self.codec, self.spool, self.segment = codec, given, cut.segment
        if given is None:
            host = cut.host + more * (_bytes(leaves) + OVERHEAD)
            self.spool = open_spool(place_of(leaves), host, disk=cut.disk)
            at_death(self, close_quietly, self.spool)
        # With one tier alone there is nothing to bring back.
        self._announced = len(self.spool.stats().tiers) < 2
        self._count = 0
        self._saved: dict[int, None] = {}
        # The last segment so far, whose end is compared when it is computed again.
        self._last: weakref.ref[Frame] | None = None

    def keep(self, tensors: list[torch.Tensor]) -> Snapshot:
        """Saves a state."""
        codec = self.codec
        if isinstance(codec, Learned):
            codec = codec.bound(self._count)
        self._count += 1
        snapshot = Snapshot(self, tensors, codec)
        if snapshot.version is not None and not self._announced:
            self._saved[snapshot.version] = None
        return snapshot

    def load(self, snapshot: Snapshot) -> list[torch.Tensor]:
        """A state. The first one that is wanted says that the backward pass has begun."""
        if not self._announced:
            self._announced = True
            self._saved.pop(snapshot.version or 0, None)
            self.spool.expect([each for each in reversed(self._saved) if each in self.spool])
            self._saved.clear()
        return snapshot.load()

    def compare_next(self, frame: Frame, start: _Start, carry: Any) -> None:
        """The segment that ends with a carry is the first one that may be computed again. From a
        state that a codec has changed, results are other ones."""
        if (
            frame.keeps
            or not first_time(frame.kind)
            or not (start.snapshot is None or start.snapshot.exact())
        ):
            return
        before = None if self._last is None else self._last()
        if before is not None:
            before.expected = None
        # Steps may change their carry in place.
        frame.expected = held(flatten(carry)[0], copied=True)
        self._last = weakref.ref(frame)


class _Start:
    """A copy of the carry with which a segment starts; or an exact copy.

    What cannot be saved (numbers, sparse tensors, subclasses, tensors of other devices) is kept as
    it is. A tensor that is in the carry twice is so again.
    """

    def __init__(
        self, keeper: _Keeper, carry: Any, *, exact: bool = False, first: bool = False
    ) -> None:
        leaves, self.tree = flatten(carry)
        tensors = {id(leaf): leaf for leaf in leaves if can_be_saved(leaf)}
        places = {key: place for place, key in enumerate(tensors)}
        self.places = [places.get(id(leaf)) for leaf in leaves]
        self.grows = [leaf.requires_grad for leaf in tensors.values()]
        self.kept = [None if id(leaf) in tensors else leaf for leaf in leaves]
        self.versions = [getattr(leaf, "_version", None) for leaf in self.kept]
        self.keeper = keeper
        made = list(tensors.values())
        # What steps may know by another name: tensors of the user alone.
        grown = [leaf for leaf in made if leaf.requires_grad] if first else []
        self.mark = mark_of(grown) if grown else torch.empty(0, requires_grad=True)
        self.snapshot: Snapshot | None = None
        if made:
            self.snapshot = Snapshot(keeper, made, "raw") if exact else keeper.keep(made)

    def within(self, codec: Any) -> _Start:
        """The same as a codec brings it back."""
        if self.snapshot is None:
            return self
        other = copy.copy(self)
        other.snapshot = Snapshot(self.keeper, self.snapshot.load(), codec)
        return other

    def carry(self) -> Any:
        """The carry."""
        return self._filled([] if self.snapshot is None else self._copies(self.snapshot))

    def leaves_and_carry(self) -> tuple[list[torch.Tensor], Any]:
        """New tensors that gradients can be taken of, and the carry that is made of them."""
        made = [] if self.snapshot is None else self.snapshot.load()
        for tensor, grows in zip(made, self.grows, strict=True):
            tensor.requires_grad_(grows)
        # Steps may change their carry in place, and leaves of a graph they could not.
        return made, self._filled([tensor.clone() for tensor in made])

    def by_leaf(self, gradients: Sequence[Any]) -> list[Any]:
        """The gradients of these tensors in the places of the leaves of the carry."""
        taken, found = set[int](), list[Any]()
        for place in self.places:
            found.append(None if place is None or place in taken else gradients[place])
            taken |= set() if place is None else {place}
        return found

    def _filled(self, copies: Sequence[torch.Tensor]) -> Any:
        for leaf, version in zip(self.kept, self.versions, strict=True):
            if leaf is not None and version is not None and leaf._version != version:
                refuse(leaf, version)
        leaves = [
            kept if place is None else copies[place]
            for place, kept in zip(self.places, self.kept, strict=True)
        ]
        return unflatten(leaves, self.tree)

    def _copies(self, snapshot: Snapshot) -> list[torch.Tensor]:
        copies = self.keeper.load(snapshot)
        # Results of an operation, as the carry was: leaves could not be changed in place.
        return [
            _Result.apply(self.mark, copy) if grow else copy
            for copy, grow in zip(copies, self.grows, strict=True)
        ]


class _Result(torch.autograd.Function):
    """Makes a tensor the result of an operation. Only a gradient that a step takes itself comes
    here: of a segment that is computed again, only what it saves is used."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
        return copy.detach()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise DifferentError(
            "scan: a step calls backward() on something that depends on `init`, or takes a "
            "gradient of it with respect to a tensor of `init`, and is computed again, when that "
            "tensor is not there. Give init.clone() in place of a leaf, or use the carry's "
            "detach() there, or torch.autograd.grad with respect to the carry; or take all steps "
            "in one segment, as by segment=length."
        )


@contextlib.contextmanager
def _keeping(frame: Frame, carry: Any) -> Iterator[None]:
    """A context in which a segment that starts with a carry runs forwards. It keeps what it saves
    from the moment on when a gradient that a step takes goes back through this carry: the graph of
    the steps before is not there when it is computed again."""
    tensors = [each for each in flatten(carry)[0] if isinstance(each, torch.Tensor)]
    nodes = {each.grad_fn for each in tensors if each.grad_fn is not None}
    hooks = [node.register_prehook(lambda _: frame.keep()) for node in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _segmented(loop: _Loop, carry: Any, keeper: _Keeper, check: Watching) -> Any:
    """Takes all steps that are left, in segments; the last one is not computed again, as its memory
    is free once the others are."""
    checked = isinstance(check, Check)
    kind = None if checked else kind_of_step("scan", loop.watch, carry)
    while not loop.ended:
        last = loop.rows.length is not None and loop.left() <= keeper.segment
        if last and loop.until is None:
            carry = _last(loop, carry, keeper, check)
        else:
            carry = _segment(loop, carry, keeper, check, kind)
    loop.watch.changing.settle()
    return carry


def _last(loop: _Loop, carry: Any, keeper: _Keeper, check: Watching) -> Any:
    """Takes the steps that are left. What they change those before must not see."""
    moment = loop.watch.moment(flatten(carry)[0])
    if check is not None:
        exact = functools.partial(_Start, keeper, carry, exact=True)
        check.add(carry, loop.upto(None), None, moment, exact)
    carry = loop.run(carry, loop.rest())
    loop.watch.learn(moment)
    return carry


def _segment(loop: _Loop, carry: Any, keeper: _Keeper, check: Watching, kind: Any) -> Any:
    """Takes the steps of one segment."""
    first, step, rows = loop.done, loop.step, loop.rows
    start = _Start(keeper, carry, first=first == 0)
    moment = loop.watch.moment(flatten(carry)[0])
    if check is not None:
        exact = functools.partial(_Start, keeper, carry, exact=True)
        check.add(carry, loop.upto(keeper.segment), start, moment, exact)
    steps = loop.upto(keeper.segment)

    # What the graph holds must not lead to the outputs of the loop.
    def again() -> list[Any]:
        rows.check()
        carry = start.carry()
        for n in steps:
            carry, _ = step(carry, rows[n])
        return flatten(carry)[0]

    frame = Frame(f"scan: a segment from step {first} on", kind, loop.watch, moment, again)
    frame.holds = loop.grows
    with _keeping(frame, carry), frame.saving():
        carry = loop.run(carry, steps, frame.let_go)
    loop.grows = frame.taken
    steps = range(first, loop.done)
    keeper.compare_next(frame, start, carry)
    return carry

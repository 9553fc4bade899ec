"""The two passes of `unspool.torch.adjoint`, as the driver of `unspool.adjoint` makes them."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from unspool._adjoint.fidelity import CheckedRun
from unspool._adjoint.measured import BoundedRun, name_of
from unspool._adjoint.ordered import Ordered, check_order
from unspool._adjoint.report import AdjointReport
from unspool._adjoint.run import Job, Run
from unspool._gradient import Gradient, Learned
from unspool._history import at_death, close_quietly, free_host, reserve
from unspool.errors import ArrayError
from unspool.schedules import Revolve, Schedule, Stop, StoreAll
from unspool.schedules.given import figure

from ._again import Moment, Now, Watch, compare, first_time, held, kind_of_step
from ._backwards import Gradients
from ._changed import Held
from ._checked import Told
from ._earlier import Earlier, Plain, count_nodes, through
from ._generators import torch_states
from ._graph import check_reached, parts_reached
from ._hooks import without_hooks
from ._layout import Layout, bytes_of_tensor, can_be_saved
from ._ordered import Ran, TorchLoop
from ._spools import open_spool, place_of
from ._surroundings import cached_weights
from ._trees import Outputs, Rows, flatten, taken_apart, unflatten

__all__ = ["Loop", "Passes"]

#: Restores that are announced ahead of the current one.
LOOKAHEAD = 1024

#: What a state takes in a tier beyond its tensors: random numbers, alignment, a head on disk.
OVERHEAD = 16384

#: Steps at the beginning that are taken with their graph.
SEEN = 2

Some = list[torch.Tensor | None]


class Loop:
    """What is to be differentiated.

    Attributes:
        tree: the structure of the carry.
        given: the tensors of the first carry.
        init: the same without a graph.
        params: tensors that `step` reads besides its arguments.
        watch: what the steps reach.
        grows: whether steps take gradients themselves, and so need a graph also where it is not
            kept.
        begun_with: whether the first step was taken.
        earlier: stands for the steps before a step.
        sources: what each tensor of the carry depends on, as sets of `earlier`: of that with which
            the next new step begins; or, where no graph is seen, of all of them.
        parts: of each step that was seen, which of its inputs had a part in each tensor of the
            carry after it.
        unseen: the first step that had a graph though it was called without one.
    """

    def __init__(
        self,
        step: Callable[[Any, Any], Any],
        rows: Rows,
        tree: Any,
        init: Sequence[Any],
        params: list[torch.Tensor],
    ) -> None:
        _check_carry(init)
        self.step, self.rows, self.tree, self.params = step, rows, tree, params
        self.watch, self.grows, self.begun_with = Watch([step, *params], loop=True), False, False
        self.tensors = [*init, *rows.leaves, *params]
        self.begun = self.watch.moment(self.tensors)
        self.kind = kind_of_step("adjoint", self.watch, unflatten(list(init), tree))
        self.gpus = self.begun.gpus
        self.given = list(init)
        self.init: list[torch.Tensor] = [leaf.detach() for leaf in init]
        self.steps = rows.length or 0
        self.earlier = Earlier(init, [*rows.leaves, *params])
        self.sources = self.earlier.sets(self.given)
        self.unseen: int | None = None
        self.parts: list[list[int]] = []

    def seen(self, n: int, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], Any]:
        """The carry after one of the first steps, and its output. They are taken with their graph,
        to see what they read before there is a history, and whether they take gradients."""
        if n == 0:
            self.begun_with, self.grows, self.unseen, self.parts = True, False, None, []
            self.sources = self.earlier.sets(self.given)
        watched = Watched()
        once, found = self._with_graph(n, leaves, self.sources, watched)
        self.grows |= watched.unpacked
        if any(each is not None and each.grad_fn is not None for each in cached_weights()):
            raise ArrayError(
                "adjoint: torch.nn.utils.parametrize.cached() is on, by which all steps share the "
                "graph of one weight, and adjoint keeps no graph: use unspool.torch.scan, or leave "
                "the cache away."
            )
        self.parts.append(once.parts())
        self.sources = self.earlier.after(self.sources, self.parts[-1])
        if n == SEEN - 1 and not self.grows:
            # What the steps after them let in is not seen: it may be everything.
            self.sources = [self.earlier.all] * len(self.sources)
        return found

    def advanced(
        self, n: int, leaves: list[torch.Tensor], *, new: bool
    ) -> tuple[list[torch.Tensor], Any]:
        """The carry after step n, and its output; `new` if it is taken for the first time."""
        if self.grows:
            once, found = self._with_graph(n, leaves, self.sources if new else None)
            if new:
                self.sources = self.earlier.after(self.sources, once.parts())
            return found
        versions, nodes = [leaf._version for leaf in leaves], count_nodes()
        made, y = self._checked(n, leaves, versions, self._plain_step(n, leaves))
        if new and self.unseen is None and count_nodes() != nodes:
            self.unseen = n
        return (made, y) if self.unseen is None else _plain(made, y)

    def check(self, n: int, leaves: Sequence[torch.Tensor]) -> None:
        """Takes step n, of which only then was known that it has a graph, with a look at it."""
        Once(self, leaves, n, sources=self.sources)

    def check_ended(self, n: int, once: Once) -> None:
        """Looks whether a backward pass of a step that was called without a graph in the forward
        pass has come to its arguments, where it would have gone on."""
        ended = [each.grad is not None for each in (*once.carry, *once.x)]
        if self.grows or not any(ended):
            return
        self.parts.append(once.parts())
        self.sources = self.earlier.repeated(self.sources, self.parts)
        if any(map(operator.and_, ended, map(bool, self._sets(n, self.sources)))):
            raise through(n)

    def _with_graph(
        self,
        n: int,
        leaves: list[torch.Tensor],
        sources: Sequence[int] | None,
        watched: Watched | None = None,
    ) -> tuple[Once, tuple[list[torch.Tensor], Any]]:
        """Step n with its graph, the carry after it, and its output."""
        versions = [leaf._version for leaf in leaves]
        once = Once(self, leaves, n, sources=sources, watched=watched)
        return once, _plain(*self._checked(n, leaves, versions, once.returned))

    def _sets(self, n: int, sources: Sequence[int]) -> list[int]:
        """What the tensors with which step n is called depend on, of the carry and of x."""
        carry = sources if n else self.earlier.sets(self.given)
        return [*carry, *self.earlier.sets(self.rows.leaves)]

    def arguments(
        self, n: int, leaves: Sequence[torch.Tensor], rest: Plain, sources: Sequence[int] | None
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The tensors with which step n is called: of the carry, which depends on `sources`, and of
        x. Those that depend on nothing, or all without `sources`, go through `rest`."""
        made = [*leaves, *self.rows.leaves_of(n)]
        if sources is None:
            made = list(map(rest, made))
        else:
            made = self.earlier.arguments(n, made, self._sets(n, sources), rest)
        return made[: len(leaves)], made[len(leaves) :]

    def _plain_step(self, n: int, leaves: list[torch.Tensor]) -> Any:
        """What step n returns without a graph."""
        x = self.rows.leaves_of(n)
        if self.unseen is not None and n > self.unseen:
            leaves, x = self.arguments(n, leaves, lambda each: each, self.sources)
        try:
            return self.step(unflatten(leaves, self.tree), self.rows.tree_of(x))
        except RuntimeError as error:
            if "does not require grad" not in str(error):
                raise
            raise ArrayError(
                f"adjoint: step {n} takes a gradient itself, and the first two steps took none, so "
                "that those after them run without a graph. Compute what it takes the gradient of "
                "within torch.enable_grad(); for a gradient with respect to the carry, take one in "
                "the first step too."
            ) from error

    def _checked(
        self, n: int, leaves: Sequence[torch.Tensor], versions: Sequence[int], returned: Any
    ) -> tuple[list[torch.Tensor], Any]:
        """What step n has returned, if it is as it must be."""
        carry, y = taken_apart("adjoint", returned)
        new, tree = flatten(carry)
        if tree != self.tree:
            raise ArrayError(f"adjoint: the carry of step {n} has another structure than `init`.")
        _check_carry(new)
        for leaf, version in zip(leaves, versions, strict=True):
            if leaf._version != version:
                raise ArrayError(
                    f"adjoint: step {n} has changed its carry in place: it must leave it and "
                    "return another one, as by `u = u + v` in place of `u += v`."
                )
        for now, first in zip(new, self.init, strict=True):
            if (now.shape, now.dtype, now.device) != (first.shape, first.dtype, first.device):
                raise ArrayError(
                    f"adjoint: step {n} made a {now.dtype} of shape {list(now.shape)} of a "
                    f"{first.dtype} of shape {list(first.shape)}: the tensors of the carry must "
                    "keep their shapes, dtypes and devices."
                )
        return new, y


def _plain(carry: Sequence[torch.Tensor], y: Any) -> tuple[list[torch.Tensor], Any]:
    """What a step returned, without its graph."""
    leaves, tree = flatten(y)
    found = [each.detach() if isinstance(each, torch.Tensor) else each for each in leaves]
    return [leaf.detach() for leaf in carry], unflatten(found, tree)


def _check_carry(leaves: Sequence[Any]) -> None:
    if not leaves:
        raise ArrayError("adjoint: there is no tensor in the carry.")
    for leaf in leaves:
        if not can_be_saved(leaf):
            what = type(leaf).__name__
            if isinstance(leaf, torch.Tensor):
                what += f" of shape {list(leaf.shape)} on {leaf.device}"
            raise ArrayError(
                f"adjoint: the carry has a {what}, which cannot be saved: it must consist of "
                "dense tensors with items, on the CPU or a GPU. What never changes can be read by "
                "`step` instead."
            )


class Watched:
    """Whether a step takes a gradient itself. Its graph refers to this, and this to no graph: that
    would be a cycle that the collector of Python does not see.

    Attributes:
        unpacked: whether it has taken one.
    """

    def __init__(self) -> None:
        self.unpacked = False

    @contextlib.contextmanager
    def watching(self, leaves: Sequence[torch.Tensor]) -> Iterator[None]:
        """A context that notes it of the step that runs, of which these are inputs."""
        hooks = [each.register_hook(self._unpack) for each in leaves if each.requires_grad]
        try:
            with saved_tensors_hooks(Held, self._unpack):
                yield
        finally:
            for each in hooks:
                each.remove()

    def _unpack(self, given: Any) -> torch.Tensor | None:
        self.unpacked = True
        return given.get() if isinstance(given, Held) else None


class Once:
    """One step with its graph, and what that graph reaches.

    Arguments:
        sources: what each tensor of the carry depends on by the steps before, so that a gradient
            that the step takes does not end there without a word.
        moment: with which it began, if it is computed again for the last time.
    """

    def __init__(
        self,
        loop: Loop,
        leaves: Sequence[torch.Tensor],
        n: int,
        *,
        sources: Sequence[int] | None = None,
        moment: Moment | None = None,
        watched: Watched | None = None,
    ) -> None:
        with torch.enable_grad():
            self.carry, self.x = loop.arguments(n, leaves, _leaf, sources)
            with self._saving(moment) if watched is None else watched.watching(self.carry):
                self.returned = loop.step(
                    unflatten(self.carry, loop.tree), loop.rows.tree_of(self.x)
                )
        self.after, self.y = (flatten(each)[0] for each in taken_apart("adjoint", self.returned))
        self.params = loop.params
        tensors = [out for out in (*self.after, *self.y) if isinstance(out, torch.Tensor)]
        self.inputs = [*self.carry, *self.x, *self.params]
        check_reached(tensors, self.inputs)

    def parts(self) -> list[int]:
        """Which inputs, as bits, had a part in each tensor of the carry after the step."""
        return parts_reached(self.after, self.inputs)

    def _saving(self, moment: Moment | None) -> Any:
        """A context in which what the step changes is saved as a copy, since it is put back before
        the graph is gone through."""
        if moment is None or not moment.copies.any():
            return contextlib.nullcontext()
        return saved_tensors_hooks(moment.lasting, lambda tensor: tensor)

    def back(self, after: Some, y: Some, sums: Some) -> tuple[Some, Some, Some]:
        """The gradients of the carry and of x, and those of the parameters added to `sums`.

        A sum goes in as the first gradient of its parameter, so that everything is added in the
        order of a plain loop.
        """
        outputs = [*self.after, *self.y, *self.params]
        pairs = [
            (out, gradient)
            for out, gradient in zip(outputs, [*after, *y, *sums], strict=True)
            if gradient is not None and out.requires_grad
        ]
        wanted = [each for each in self.inputs if each.requires_grad]
        if not pairs or not wanted:
            return [None] * len(self.carry), [None] * len(self.x), sums
        # Those of the parameters run once, on the whole gradient.
        with without_hooks(self.params):
            made = iter(
                torch.autograd.grad(
                    [out for out, _ in pairs],
                    wanted,
                    [each for _, each in pairs],
                    allow_unused=True,
                )
            )
        found = [next(made) if each.requires_grad else None for each in self.inputs]
        first, second = len(self.carry), len(self.carry) + len(self.x)
        return found[:first], found[first:second], found[second:]


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point() or tensor.is_complex())


class State(tuple[torch.Tensor, ...]):
    """What is saved of a state; and its tensors, how they lie, its random numbers, and what else
    there was when its step began."""

    leaves: list[torch.Tensor]
    layouts: list[Layout]
    random: list[torch.Tensor]
    moment: Moment


class Begun(NamedTuple):
    """With what a step began, apart from its carry."""

    n: int
    moment: Moment
    random: list[torch.Tensor]


class Carry:
    """The working state as the driver sees it: tensors that never change and are replaced.

    With each state go those of the generators of random numbers, so that a step that is computed
    again draws the same. What else is there when its step begins stays in main memory, by the
    version under which the state is saved.
    """

    frozen = True

    def __init__(self, loop: Loop, leaves: list[torch.Tensor], first: int) -> None:
        self.loop, self.leaves, self.first = loop, leaves, first
        # The first state may lie in memory in another way than those that steps make.
        self.before = self.after = self.layouts = [Layout.whole(leaf) for leaf in leaves]
        # What `now` returns, until there is another state.
        self._now: State | None = None
        # The random numbers of the last state that was made.
        self._random: list[torch.Tensor] = []
        self._step = 0
        self.moments: dict[int, Moment] = {}
        # Whether what is there is not what was there at this state.
        self.elsewhere = False

    def now(self) -> State:
        """The state, with the random numbers with which its step begins."""
        if self._now is None:
            pairs = zip(self.layouts, self.leaves, strict=True)
            loop = self.loop
            random = self._random = torch_states(loop.gpus)
            state = State([*(layout.saved(leaf) for layout, leaf in pairs), *random])
            state.leaves, state.layouts, state.random = self.leaves, self.layouts, random
            # Before the first step, it is that from which the loop begins.
            moment = loop.watch.moment(gpus=loop.gpus) if loop.begun_with else loop.begun
            state.moment = self.moments[self.first + self._step] = moment
            self._now = state
        return self._now

    def stepped(self, leaves: list[torch.Tensor], step: int) -> None:
        """Steps have made another state."""
        if self.after is self.before:
            self.after = [Layout.whole(leaf) for leaf in leaves]
        self.leaves, self.layouts, self._now = leaves, self.after, None
        self._step = step

    def replace(self, _: Any) -> None:
        """What `forward` returned: nothing, as it has called `stepped`."""

    def put_back(self, state: State) -> None:
        """Makes an earlier state the working one."""
        self.leaves, self.layouts, self._now = state.leaves, state.layouts, state
        self.elsewhere = True

    def back_at(self, state: State, n: int, after: Begun | None = None) -> Now:
        """A context in which all is as it was when step n began, of which this is the state; what
        the next step began with says whether the step changes anything."""
        state.moment.check(f"adjoint: step {n}")
        quiet = (
            after is not None
            and after.n == n + 1
            and state.moment.same(after.moment)
            and all(map(torch.equal, state.random, after.random))
        )
        return Now(state.moment, state.random, quiet=quiet)

    def restore(self, spool: Any, version: int, stream: Any) -> None:
        """Makes a state of the spool the working one."""
        layouts = self.before if version == self.first else self.after
        self.put_back(self._read(spool, version, layouts, self.moments[version], stream))

    def loaded(self, spool: Any, version: int, like: State) -> State:
        """A state of the spool that lies as another one."""
        return self._read(spool, version, like.layouts, like.moment, None)

    def _read(
        self, spool: Any, version: int, layouts: list[Layout], moment: Moment, stream: Any
    ) -> State:
        made = [layout.empty() for layout in layouts]
        random = [torch.empty_like(each) for each in self._random]
        state = State([*(target for _, target in made), *random])
        state.leaves, state.layouts, state.random = [leaf for leaf, _ in made], layouts, random
        state.moment = moment
        spool.restore(version, *state, stream=stream)
        return state


class Work:
    """What the driver calls: the steps, and their reversal.

    Attributes:
        counted: whether the schedule knows the number of steps.
        last: the last carry.
        expected: the same as `compare` takes it, if it is to be compared.
    """

    def __init__(self, loop: Loop, carry: Carry, *, counted: bool) -> None:
        self.loop, self.carry, self.counted = loop, carry, counted
        self.outputs = Outputs("adjoint")
        self.last: list[torch.Tensor] = []
        self.expected: Sequence[Any] | None = None
        self._reversed: Begun | None = None
        # The gradients of the outputs of all steps, and what they become on their way back.
        self.y: Some = []
        self.gradients = Gradients(loop.given, loop.rows)
        self.gradients.sums = [None] * len(loop.params)

    def forward(self, state: State, start: int, stop: int) -> Any:
        """Takes steps without a graph."""
        end = min(stop, self.loop.steps)
        if self.carry.elsewhere:
            with self.carry.back_at(state, start):
                self._take(state, start, end)
                self.carry.now()
        else:
            self._take(state, start, end)
        return None if self.counted or end < self.loop.steps else Stop(end)

    def _take(self, state: State, start: int, end: int) -> None:
        leaves, loop = self.carry.leaves, self.loop
        for n in range(start, end):
            new = n == len(self.outputs)
            first = new and n < SEEN
            leaves, y = loop.seen(n, leaves) if first else loop.advanced(n, leaves, new=new)
            if new:
                self.outputs.append(y)
        loop.watch.learn(state.moment)
        self.carry.stepped(leaves, end)

    def at_end(self, _: Any) -> None:
        """The working state is the last one."""
        self.last = self.carry.leaves

    def reverse(self, state: State, n: int) -> None:
        """Takes the gradients back over step n."""
        y, found = self.outputs.of_step(self.y, n), self.gradients
        after, self._reversed = self._reversed, Begun(n, state.moment, state.random)
        if n == self.loop.unseen:
            with self.carry.back_at(state, n, after):
                self.loop.check(n, state.leaves)
        with self.carry.back_at(state, n, after):
            once = Once(self.loop, state.leaves, n, moment=state.moment)
        self.loop.check_ended(n, once)
        if self.expected is not None and n == self.loop.steps - 1:
            compare(self.loop.kind, f"adjoint: step {n}", self.expected, once.after)
            self.expected = None
        found.after, row, found.sums = once.back(found.after, y, found.sums)
        found.add_row(row)
        # What there was when it began is not needed any more.
        self.carry.moments.pop(self.carry.first + n, None)


class Running:
    """A run of the driver that is between its passes. When nobody refers to it any more, the driver
    discards what it has kept: nothing that the driver calls refers to this."""

    def __init__(self, work: Work, run: Run) -> None:
        self.work, self.run = work, run
        run.begin()
        self._abandoned = at_death(self, run.clean_up)

    def finish(self) -> AdjointReport:
        """The other pass."""
        self._abandoned.detach()
        return self.run.finish()


class Passes:
    """Both passes over a loop. A second backward pass begins with another forward pass, as the
    states of the first one are given up on its way."""

    def __init__(
        self,
        loop: Loop,
        schedule: Schedule | None,
        given: Any,
        codec: Any,
        check: int,
        told: Told | None,
    ) -> None:
        state = sum(map(bytes_of_tensor, loop.init)) + OVERHEAD
        self.loop, self.codec = loop, codec
        self.check, self.told = min(check, loop.steps), told
        self.order = codec if isinstance(codec, Gradient) else None
        # What the states of the forward pass were encoded by.
        self.learned: Learned | None = None
        self.spool = given
        if given is None:
            kept = None if schedule is None else figure(schedule, "slots")
            states = min(loop.steps if kept is None else kept, loop.steps) + 2 + self.check
            self.spool = open_spool(place_of(loop.init), min(states * state, free_host()))
            at_death(self, close_quietly, self.spool)
        self.schedule = schedule or _fitting(loop.steps, state, self.spool, 1 + self.check)
        if self.order is not None:
            check_order("torch.adjoint(codec=Gradient(...))", self.spool, self.schedule)
        self.running: Running | None = None
        self.outputs = Outputs("adjoint")
        self.ended: Moment | None = None

    def forward(self) -> list[torch.Tensor]:
        """The tensors of the last carry and those of the outputs."""
        if self.order is not None:
            self.learned = Ordered(self._ordered(()), self._key()).due()
        with torch.no_grad():
            running = self.running = self.loop.begun.around.run(self._run, cached=False)
        self.outputs = running.work.outputs
        self.ended = self.loop.watch.moment(self.loop.tensors)
        self.ended.copies.end()
        if first_time(self.loop.kind) or self.check:
            running.work.expected = held(running.work.last)
        return [*running.work.last, *self.outputs.tensors()]

    def brings_back(self, tensor: torch.Tensor) -> bool:
        """Whether steps find a tensor as it was, so that it may have changed since, such as a table
        with a largest norm, which each look at its rows changes."""
        return self.ended is not None and any(
            tensor is each for each, _ in self.ended.copies.contents
        )

    def backward(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients of init, xs and params, from those of what `forward` returned."""
        assert self.ended is not None
        back = functools.partial(self._back, gradients)
        return list(self.ended.within("adjoint", back, cached=False))

    def _back(self, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        if self.order is None:
            found, _, report = self._once(gradients, None)
            fidelity = report.fidelity
        else:
            loop = self._ordered(gradients)
            if self.running is None:
                self.learned = Ordered(loop, self._key()).due()
            fidelity = Ordered(loop, self._key()).go(self.learned)
            found = loop.gradients
        if self.told is not None and fidelity is not None:
            self.told(fidelity)
        return found

    def _ordered(self, gradients: Sequence[torch.Tensor | None]) -> TorchLoop:
        """The loop, with the gradients of its results."""
        assert self.order is not None
        back = functools.partial(self._once, gradients)
        return TorchLoop(self.order, self.loop.steps, self.spool, gradients, back)

    def _key(self) -> Any:
        shapes = [(tuple(each.shape), str(each.dtype)) for each in self.loop.tensors]
        return name_of(self.schedule), repr(shapes)

    def _once(self, gradients: Sequence[torch.Tensor | None], learned: Learned | None) -> Ran:
        """One backward pass, after a forward pass unless there was one."""
        loop = self.loop
        if self.running is None:
            self.learned = learned
            with Now(loop.begun):
                self.running = self._run()
        running, self.running = self.running, None
        work, carried = running.work, len(loop.init)
        work.outputs = self.outputs
        found = work.gradients
        found.after, work.y = list(gradients[:carried]), list(gradients[carried:])
        report = running.finish()
        columns = zip(*found.rows(), strict=True)
        rows = [loop.rows.gathered(place, column) for place, column in enumerate(columns)]
        return [*found.after, *rows, *found.sums], found, report

    def _run(self) -> Running:
        """The forward pass."""
        loop, first = self.loop, reserve(self.loop.steps + 2 + self.check)
        if loop.begun_with:
            loop.watch.changing.begin()
        carry = Carry(loop, loop.init, first)
        work = Work(loop, carry, counted=figure(self.schedule, "steps") is not None)
        job = Job(
            schedule=self.schedule,
            spool=self.spool,
            forward=work.forward,
            reverse=work.reverse,
            state=carry,
            part=None,
            at_end=work.at_end,
            first=first,
            progress=None,
            stream=None,
            lookahead=LOOKAHEAD,
            codec=None if self.order else self.codec,
        )
        run = BoundedRun(job, self.learned) if self.order else Run(job)
        if self.check:
            run = CheckedRun(job, work.gradients, self.check, "torch.adjoint")
        running = Running(work, run)
        loop.watch.changing.settle()
        return running


def _fitting(steps: int, state: int, spool: Any, more: int) -> Schedule:
    """All states where the spool has room for them and `more`, and Revolve with as many as there is
    room for otherwise."""
    tiers = spool.stats().tiers
    if any(tier.capacity is None for tier in tiers):
        return StoreAll(steps)
    slots = max(max(tier.capacity - tier.used for tier in tiers) // state - more, 1)
    return StoreAll(steps) if slots >= steps else Revolve(steps, int(slots))

"""Computing again what was computed before: the same computation, or an error that says why not.

A `Watch` knows what a step or a block reaches. A `Moment` is what was there when it began to run:
variables, buffers that it changes, generators of random numbers, and what surrounds it. When it
is computed again, all of that is as it was, and afterwards it is as it was when that began.
What cannot be brought back is compared: the versions of all tensors that are reached, and, for the
first time of each kind of computation, its results.
"""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from unspool.errors import ArrayError

from ._changed import Held
from ._copies import Changing, Swapped
from ._generators import Generators, torch_states, torch_states_put
from ._places import Content
from ._reached import PLAIN, SIMPLE, Reached, memory_of
from ._surroundings import Surroundings
from ._trees import flatten

__all__ = [
    "DifferentError",
    "Moment",
    "Now",
    "Stopped",
    "Watch",
    "compare",
    "first_time",
    "held",
    "kind_of_step",
]

#: Kinds of computations that were compared; the oldest is forgotten.
KINDS = 1024

_lock = threading.Lock()
_compared: OrderedDict[Any, None] = OrderedDict()


class Stopped(BaseException):
    """Ends a recomputation from within an operation, which would make another error of some."""


class DifferentError(ArrayError, RuntimeError):
    """What is computed again would not be what was computed before."""


def first_time(kind: Any) -> bool:
    """Whether computations of this kind were never compared; those of None always are."""
    with _lock:
        return kind is None or kind not in _compared


def kind_of_step(call: str, watch: Watch, carry: Any) -> Any:
    """What steps have in common of which one need be compared: their code and all that it reaches,
    and the shapes of the carry."""
    shapes = tuple(
        (each.shape, each.dtype, each.device) if isinstance(each, torch.Tensor) else type(each)
        for each in flatten(carry)[0]
    )
    return call, watch.reached.kinds, shapes


class Watch:
    """What functions and modules reach, and which of it they change; with `loop`, as the steps of
    one loop."""

    def __init__(self, roots: Sequence[Any], *, loop: bool = False) -> None:
        self.roots, self._lock = roots, threading.Lock()
        # What was in the places at the last moment, and the identities of the values.
        self._content: Content | None = None
        self._known: set[int] = set()
        self._walk()
        self.changing = Changing(self.reached, loop=loop)

    def _walk(self) -> None:
        self.reached = Reached(*self.roots)
        self.devices = {each.device for each in self.reached.tensors()}
        self.generators = Generators(self.reached.generators)

    def moment(self, tensors: Sequence[Any] = (), *, gpus: list[int] | None = None) -> Moment:
        """What is there now; with what surrounds it and PyTorch's own generators of random numbers,
        also of the devices of `tensors`. Without these where another moment has them, which is of
        `gpus`."""
        with self._lock:
            last, places = self._content, self.reached.places
            content = places.keep(last)
            same = last is not None and content.marks is last.marks
            if last is not None and not same and self._replaced():
                self._walk()
                self.changing.walked(self.reached)
                places = self.reached.places
                content = places.keep(None)
            if not same:
                self._known = set(map(id, places.values()))
            self._content = content
            if gpus is not None:
                return Moment(self, content, gpus)
            given = {each.device for each in tensors if isinstance(each, torch.Tensor)}
            devices = self.devices | given
            around = Surroundings({each.type for each in devices})
            used = sorted({each.index for each in devices if each.type == "cuda"})
            return Moment(self, content, used, around)

    def _replaced(self) -> bool:
        """Whether something other than a number or the like is there that was not."""
        return any(
            id(each) not in self._known and not isinstance(each, SIMPLE)
            for each in self.reached.places.values()
        )

    def learn(self, moment: Moment, *, ended: bool = True) -> None:
        """A computation that began at a moment has ended; or, without `ended`, it needs itself
        computed again before it has."""
        with self._lock:
            self.changing.learn(moment.copies)
            if ended:
                moment.copies.end()


class Moment:
    """What is there when a computation begins.

    Attributes:
        around: what surrounds it.
        copies: of what it changes in place.
    """

    def __init__(self, watch: Watch, content: Content, gpus: list[int], around: Any = None) -> None:
        self.reached, self.generators = watch.reached, watch.generators
        self.gpus, self.around = gpus, around
        self.torch = None if around is None else torch_states(gpus)
        self.random = self.generators.states()
        self.content = content
        self.grows = self.reached.grows()
        self.copies = watch.changing.copies()

    def same(self, other: Moment) -> bool:
        """Whether what ran from this moment to another one has changed nothing of this, PyTorch's
        own generators apart."""
        return (
            self.content is other.content
            and not self.content.left
            and not self.copies.any()
            and self.grows == other.grows
            and all(map(operator.is_, self.random, other.random))
        )

    def check(self, what: str) -> None:
        """It can be computed again.

        Raises:
            DifferentError: something that it needs is not known.
        """
        lost = self.copies.lost()
        if lost is not None:
            raise _lost(what, lost)

    def suspects(self) -> list[torch.Tensor]:
        """The tensors that were changed in place since the computation ended, and that cannot be
        brought back."""
        return self.copies.suspects()

    def lasting(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that stays what it is when what is changed is as it was."""
        if not self.copies.any():
            return tensor
        memory = memory_of(tensor)
        changed = (memory_of(each) for each, _ in self.copies.all_contents())
        return tensor if memory is None or memory not in changed else tensor.clone()

    def again(self, what: str, function: Callable[[], Any]) -> Any:
        """Calls a function as at this moment; `what` it computes again is for messages.

        Raises:
            DifferentError: it reads a tensor that was changed in place since, or something that it
                needs is not known.
        """
        with Now(self):
            return self.within(what, function)

    def within(self, what: str, function: Callable[[], Any], *, cached: bool = True) -> Any:
        """Calls a function in the same surroundings, in which leaves need a gradient as they did.
        Raises as `again`, which see."""
        self.check(what)
        suspects, grows = self.suspects(), self.reached.grows()

        def guarded() -> Any:
            if not suspects:
                return function()
            guard = Guard(what, suspects)
            try:
                with guard:
                    return function()
            except Stopped:
                if guard.failed is not None:
                    raise guard.failed from None
                raise

        self.reached.grow(self.grows)
        try:
            return self.around.run(guarded, cached=cached)
        finally:
            self.reached.grow(grows)


class Now:
    """A context in which all is as it was at a moment, and after which all is as it is now.

    Arguments:
        moment: what was there.
        states: of PyTorch's own generators, where the moment does not have them.
        quiet: whether what runs within changes nothing of this and draws no random numbers: nothing
            is put back where nothing differs, and no generator is looked at.
    """

    def __init__(
        self,
        moment: Moment,
        states: Sequence[torch.Tensor] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self._moment, self._quiet = moment, quiet
        self._states = moment.torch if states is None else states

    def __enter__(self) -> None:
        moment, reached = self._moment, self._moment.reached
        self._content = reached.places.copy(moment.content)
        if self._quiet:
            self._quiet = self._content is moment.content and reached.grows() == moment.grows
        if self._quiet:
            return
        self._swapped = Swapped(moment.copies)
        self._random, self._torch = moment.generators.states(), torch_states(moment.gpus)
        self._grows = reached.grows()
        try:
            reached.places.put(moment.content, self._content)
            self._swapped.put()
            self._put(moment.grows, moment.random, self._states, self._random)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        if self._quiet:
            return
        self._moment.reached.places.put(self._content)
        self._swapped.put_back()
        now = self._moment.generators.states()
        self._put(self._grows, self._random, self._torch, now)
        if kind is None:
            self._swapped.check_alone()

    def _put(self, grows: Any, random: Any, states: Any, now: Any) -> None:
        moment = self._moment
        moment.reached.grow(grows)
        moment.generators.put(random, now)
        if states is not None:
            torch_states_put(states, moment.gpus)


class Guard(TorchDispatchMode):
    """A context in which certain tensors must not be read.

    Attributes:
        failed: the error for the one that was.
    """

    def __init__(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.failed: DifferentError | None = None
        self._what = what
        self._tensors = {memory_of(each): each for each in tensors}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in flatten((args, kwargs))[0]:
            if isinstance(each, torch.Tensor):
                memory = memory_of(each)
                found = None if memory is None else self._tensors.get(memory)
                if found is not None:
                    self.failed = _changed(self._what, found)
                    raise Stopped
        return func(*args, **(kwargs or {}))


def compare(kind: Any, what: str, expected: Sequence[Any], found: Sequence[Any]) -> None:
    """Compares the results of a computation with those that it had, tensors that were kept with
    their versions.

    Raises:
        DifferentError: they are not the same.
    """
    for place, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one is None or one.tensor._version != one.version:
            continue
        if not _alike(one.tensor, other.detach()):
            raise DifferentError(
                f"{what}: computed again, its result {place}, a tensor of shape "
                f"{list(one.tensor.shape)}, is another one than in the forward pass, so that the "
                "gradient would be wrong. It depends on something that is not the same any more: a "
                "generator of random numbers, an iterator, a file, a clock, or a variable of a "
                "library. Give it to the step as an argument, or keep it in an attribute or a "
                "variable that the step reads; or compute this without unspool.torch."
            )
    if kind is None:
        return
    with _lock:
        _compared[kind] = None
        if len(_compared) > KINDS:
            _compared.popitem(last=False)


def held(values: Sequence[Any], *, copied: bool = False) -> list[Held | None]:
    """Results as `compare` takes them, and None where one is no plain tensor."""
    return [
        Held(each.detach().clone() if copied else each)
        if type(each) in PLAIN and each.layout is torch.strided
        else None
        for each in values
    ]


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are the same, but for the order of a sum."""
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    if torch.equal(one, other):
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return False
    near = torch.finfo(one.dtype).eps ** 0.5
    one, other = one.nan_to_num(), other.nan_to_num()
    return bool((one - other).abs().max() <= near * one.abs().max())


def _changed(what: str, tensor: torch.Tensor) -> DifferentError:
    return DifferentError(
        f"{what}: it is computed again for the backward pass, and reads a tensor of shape "
        f"{list(tensor.shape)} that has been modified by an inplace operation since the forward "
        "pass (an optimiser's step, load_state_dict, or the like). Go back before the tensor is "
        "changed; or give it a new tensor in place of changing it."
    )


def _lost(what: str, tensor: torch.Tensor) -> DifferentError:
    return DifferentError(
        f"{what}: it has changed a tensor of shape {list(tensor.shape)} in place, which may be a "
        "gradient, and did not do so before, so that there is no copy of what it was, and it "
        "cannot be computed again. It is copied from now on: run a model's step once more. In a "
        "loop, change it in the first step too, so that it is copied; and set gradients to None "
        "before the loop, as by zero_grad()."
    )

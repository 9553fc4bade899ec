"""Copies of what steps and blocks change in place: tensors that they reach, and gradients.

A backward pass within a step, an optimiser or an assignment changes `.grad` of leaves. `Changing`
learns after each computation which tensors and which gradients it has changed; `Copies` are what
was there before it. What a loop changes for the first time in a later step had the same contents
until then, which were copied before the first step, up to `LEARNED` bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ._adders import Adders
from ._reached import Reached, has_version, version_of

__all__ = ["Changing", "Copies", "Swapped"]

#: Bytes of tensors, and of gradients, that are copied to learn which of them a step changes.
LEARNED = 64 << 20

#: Tensors with their contents; or leaves with their gradients.
Pairs = Sequence[tuple[torch.Tensor, Any]]

NONE: Any = ()


@dataclass
class Late:
    """What computation `last` was the first to change, so that copies since `since` are without it.

    Attributes:
        contents, gradients: the same as those of `Copies`.
        lost: tensors that were changed, and of which there is no copy.
        sure: whether it was `last`, and not one before it.
    """

    since: int
    last: int
    sure: bool = True
    contents: list[tuple[torch.Tensor, Any]] = field(default_factory=list)
    gradients: list[tuple[torch.Tensor, Any]] = field(default_factory=list)
    lost: list[torch.Tensor] = field(default_factory=list)


class Changing:
    """What computations that reach the same change in place.

    Arguments:
        reached: what they reach.
        loop: whether they are the steps of one loop, one after the other.
    """

    def __init__(self, reached: Reached, *, loop: bool) -> None:
        self._loop, self._count, self._since = loop, 0, 1
        self.late: list[Late] = []
        self.adders = Adders()
        # What was seen when the last step ended, with which the next one begins.
        self._seen: Seen | None = None
        # The tensors that are changed; whether a computation has told of all that is reached.
        self._tensors: list[torch.Tensor] = []
        self._learned = False
        # The leaves whose gradients are changed, by their identity.
        self._leaves: dict[int, torch.Tensor] = {}
        # What tensors had before the first computation, with their versions.
        self._first: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self.walked(reached)

    def walked(self, reached: Reached) -> None:
        """Something else is reached from now on, and may be changed."""
        there = _identities(reached.tensors())
        self._tensors = [each for each in self._tensors if id(each) in there]
        self.reached, self._learned, self._seen = reached, False, None
        # Whether there is nothing more to be learned.
        self._settled = False
        self.adders.listen(reached.tensors())

    def copies(self) -> Copies:
        """Copies for the computation that begins now."""
        self._count += 1
        tensors = self._tensors if self._learned else self._candidates()
        seen, self._seen = self._seen, None
        if not self._settled:
            seen = seen or Seen(self.reached)
        found = Copies(self, self._count, tensors, self._leaves.values(), seen)
        if not self._learned:
            self._remember(found)
        return found

    def begin(self) -> None:
        """The steps of the loop are taken once more, from the first one on."""
        self._loop, self._since, self._settled = True, self._count + 1, False

    def settle(self) -> None:
        """All steps of the loop have ended."""
        self._lose_silent()
        self._first, self._loop, self._seen, self._settled = {}, False, None, self._learned

    def _candidates(self) -> list[torch.Tensor]:
        known = _identities(self._tensors)
        found = [each for each in self.reached.tensors() if id(each) not in known]
        return [*self._tensors, *_smallest(each for each in found if _is_state(each))]

    def _remember(self, copies: Copies) -> None:
        """Copies are those of the first step, also of gradients that it may not change."""
        self._lose_silent()
        self._first = {id(each): (each, each._version, copy) for each, copy in copies.contents}
        for each in _smallest(each for each in copies.seen.gradients if each is not None):
            # The version is read first, as other threads may be adding to gradients.
            known = each, version_of(each), each.detach().clone()
            self._first.setdefault(id(each), known)

    def learn(self, copies: Copies) -> None:
        """A computation has ended, or is itself computed again before it has."""
        if copies.ended:
            return
        before, copies.seen = copies.seen, Seen(copies.reached)
        changed, added = copies.seen.changed(before), copies.seen.added(before)
        if not self._learned:
            self._learn_first(copies)
            added += self._silent()
        late = Late(self._since if self._loop else copies.number, copies.number)
        if changed:
            self._learn_tensors(copies, late, changed)
        if added:
            self._learn_gradients(copies, late, added)
        if late.gradients or late.contents or late.lost:
            self.late.append(late)
        if not self._loop:
            self._first = {}
        elif not self.adders.several:
            self._seen = copies.seen

    def _silent(self) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
        """Leaves whose gradients were changed as by `.data`, which no version tells."""
        found: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        if self.adders.several:
            # A gradient may have been added to, and its version not be there yet.
            return found
        for leaf, gradient in zip(self.reached.refs(), self.reached.gradients(), strict=True):
            first = self._first.get(id(gradient))
            if first is None or id(leaf) in self._leaves or first[1] != version_of(gradient):
                continue
            if not _equal(gradient, first[2]):
                found.append((leaf, gradient, -1))
        return found

    def _lose_silent(self) -> None:
        """Nobody knows which step has changed a gradient."""
        lost = [gradient for _, gradient, _ in self._silent()]
        if lost:
            self.late.append(Late(self._since, self._count, sure=False, lost=lost))

    def _learn_first(self, copies: Copies) -> None:
        kept = _identities([*self._tensors, *self.reached.normalised()])
        copies.contents = [
            (tensor, copy)
            for tensor, copy in copies.contents
            if id(tensor) in kept or not torch.equal(tensor, copy)
        ]
        self._tensors, self._learned = [tensor for tensor, _ in copies.contents], True

    def _learn_tensors(self, copies: Copies, late: Late, changed: Sequence[torch.Tensor]) -> None:
        copied, known = _copied(copies.all_contents()), _identities(self._tensors)
        for each in changed:
            if id(each) not in copied:
                self._keep(late, each)
            if id(each) not in known:
                self._tensors.append(each)

    def _learn_gradients(self, copies: Copies, late: Late, added: Sequence[Any]) -> None:
        copied = _copied(copies.all_gradients())
        for leaf, gradient, version in added:
            if id(leaf) in copied or not copies.since.is_own(leaf):
                continue
            self._leaves[id(leaf)] = leaf
            late.gradients.append((leaf, gradient))
            if gradient is None:
                continue
            if version_of(gradient) == version:
                late.contents.append((gradient, gradient.detach().clone()))
            else:
                self._keep(late, gradient)

    def _keep(self, late: Late, tensor: torch.Tensor) -> None:
        """Keeps what a tensor had before the first step, if that is known."""
        known = self._first.get(id(tensor))
        if known is not None and known[0] is tensor:
            late.contents.append((tensor, known[2]))
        else:
            late.lost.append(tensor)


class Seen:
    """The versions and the gradients of all tensors that are reached."""

    __slots__ = ("_grown", "_reached", "gradients", "versions")

    def __init__(self, reached: Reached) -> None:
        self._reached = reached
        self.versions, self.gradients = reached.versions(), reached.gradients()
        grown = [each for each in self.gradients if each is not None]
        self._grown = [version_of(each) for each in grown] if grown else NONE

    def changed(self, before: Seen) -> list[torch.Tensor]:
        """The tensors that were changed in place since."""
        return self._reached.changed(before.versions, self.versions)

    def added(self, before: Seen) -> list[tuple[torch.Tensor, torch.Tensor | None, int]]:
        """The leaves whose gradients were changed since, with those that they had, and the
        versions of these."""
        gradients, versions = before.gradients, before._grown
        if versions == self._grown and all(map(operator.is_, gradients, self.gradients)):
            return []
        left, found = iter(versions), []
        for leaf, one, other in zip(self._reached.refs(), gradients, self.gradients, strict=True):
            version = 0 if one is None else next(left)
            if leaf is not None and (one is not other or version_of(one) != version):
                found.append((leaf, one, version))
        return found


class Copies:
    """What was there when a computation began, of what it changes in place.

    Attributes:
        number: counts the computations.
        reached: what it reaches.
        contents: tensors that are changed, and what they had.
        gradients: leaves, and the gradients that they had.
        since: what threads have added to gradients since.
        seen: what was last seen of all that is reached, until the computation has ended.
        ended: whether it has, or nothing is learned from it.
    """

    # There is one for each state that is kept: few objects make it.
    __slots__ = (
        "_held", "_late", "_versions", "adders", "contents", "ended", "gradients", "number",
        "reached", "seen", "since",
    )  # fmt: skip

    def __init__(
        self,
        changing: Changing,
        number: int,
        tensors: Sequence[torch.Tensor],
        leaves: Collection[torch.Tensor],
        seen: Seen | None,
    ) -> None:
        self.number, self.reached, self._late = number, changing.reached, changing.late
        self.adders, self.ended = changing.adders, seen is None
        if seen is None:
            self._versions = self.reached.versions()
        else:
            self.seen = seen
        self.contents = _cloned(tensors)
        self.gradients: Pairs = [(each, each.grad) for each in leaves] if leaves else NONE
        self._held = _cloned(each for _, each in self.gradients if each is not None)
        self.since = self.adders.since()

    def end(self) -> None:
        """What is changed from now on was not changed by the computation."""
        if not self.ended:
            self._versions, self.ended = self.seen.versions, True
            del self.seen

    def any(self) -> bool:
        """Whether anything that is here may be changed."""
        return bool(self.contents or self.gradients or self._lates())

    def lost(self) -> torch.Tensor | None:
        """A tensor that the computation may have been the first to change, and of which there is
        no copy."""
        for late in self._lates():
            if late.lost and (late.last == self.number or not late.sure):
                return late.lost[0]
        return None

    def suspects(self) -> list[torch.Tensor]:
        """The tensors that were changed since the computation ended, and of which there is no
        copy."""
        versions = self._versions if self.ended else self.seen.versions
        changed = self.reached.changed(versions, self.reached.versions())
        changed += [each for late in self._lates() for each in late.lost]
        if not changed:
            return []
        known = _copied(self.all_contents())
        return [each for each in changed if id(each) not in known]

    def all_gradients(self) -> Pairs:
        """Leaves, and the gradients that they had."""
        return _first_of(self.gradients, (late.gradients for late in self._lates()))

    def all_contents(self) -> Pairs:
        """Tensors, also gradients, and what they had."""
        return _first_of(self.contents, (self._held, *(late.contents for late in self._lates())))

    def _lates(self) -> Sequence[Late]:
        if not self._late:
            return ()
        return [late for late in self._late if late.since <= self.number <= late.last]


class Swapped:
    """What copies are of, while it has again what it had."""

    def __init__(self, copies: Copies) -> None:
        self._contents, self._gradients = copies.all_contents(), copies.all_gradients()
        self._contents_now = [(each, each.detach().clone()) for each, _ in self._contents]
        self._gradients_now = [(each, each.grad) for each, _ in self._gradients]
        self._since = copies.adders.since()

    def put(self) -> None:
        """All has what it had."""
        _write(self._contents, self._gradients)

    def put_back(self) -> None:
        """All has what it has now."""
        _write(self._contents_now, self._gradients_now)

    def check_alone(self) -> None:
        """No other thread has changed gradients meanwhile. Raises as `Since.check_alone`."""
        self._since.check_alone([each for each, _ in self._gradients])


def _write(contents: Pairs, gradients: Pairs) -> None:
    """Tensors have again what they had, and the versions that they have; and leaves the gradients
    that they had."""
    for tensor, copy in contents:
        with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(tensor):
            tensor.copy_(copy)
    for leaf, gradient in gradients:
        if leaf.grad is not gradient:
            leaf.grad = gradient


def _first_of(own: Pairs, others: Iterable[Pairs]) -> Pairs:
    """Pairs, each tensor with the first that there is of it."""
    more = [pair for pairs in others for pair in pairs]
    if not more:
        return own
    found = {id(each): (each, value) for each, value in own}
    for each, value in more:
        found.setdefault(id(each), (each, value))
    return list(found.values())


def _cloned(tensors: Iterable[torch.Tensor]) -> Pairs:
    return [(each, each.detach().clone()) for each in tensors] or NONE


def _identities(tensors: Iterable[torch.Tensor]) -> set[int]:
    return set(map(id, tensors))


def _copied(pairs: Pairs) -> set[int]:
    return {id(each) for each, _ in pairs}


def _smallest(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The smallest tensors, up to `LEARNED` bytes."""
    left, chosen = LEARNED, list[torch.Tensor]()
    for each in sorted(tensors, key=lambda each: each.numel() * each.element_size()):
        left -= each.numel() * each.element_size()
        if left < 0:
            break
        chosen.append(each)
    return chosen


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.layout is not torch.strided or torch.equal(one, other)


def _is_state(tensor: torch.Tensor) -> bool:
    """Whether a computation may change it, and it can be brought back."""
    return (
        has_version(tensor)
        and tensor.grad_fn is None
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and not tensor.is_quantized
    )

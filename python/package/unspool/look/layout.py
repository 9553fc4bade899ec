"""Which arrays of many checkpoints make one variable along the steps, and what is left out.

A dataset has arrays of one dtype and shape. So a variable has the steps in which its array has the
form that most of them have; the others are named. Shared by the dataset of xarray and the store of
Zarr.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .. import _arrays
from ..errors import ArrayError, Error
from .checkpoints import Array, Checkpoints
from .dims import Dims, names_of
from .leaves import is_text

__all__ = ["Layout", "Numbers", "Variable", "each_of", "warn_of"]

#: The most threads that read steps, and how few steps are read without them.
THREADS, FEW = 8, 8

#: How many of the sentences on what is left out a warning has.
SHOWN = 4

#: The dtypes of numbers and texts along the steps.
KINDS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", str: "object"}


class Variable(NamedTuple):
    """An array along the steps.

    Attributes:
        name: of the array.
        dtype: that of NumPy.
        shape: the shape of one step.
        dims: the names of all dimensions, that of the steps first.
        steps: in which the array has this form.
        attrs: its dtype, codec and bound, as the newest of these steps has them.
        is_in_parts: whether parts of that one can be read alone.
    """

    name: str
    dtype: Any
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    steps: list[int]
    attrs: dict[str, Any]
    is_in_parts: bool


class Numbers(NamedTuple):
    """A number or text along the steps."""

    name: str
    dtype: str
    dim: str
    steps: list[int]
    values: Callable[[Sequence[int]], list[Any]]


class Layout:
    """What a dataset of checkpoints has.

    Attributes:
        steps: all of them.
        dims: the names of dimensions of steps, by the steps that they stand for.
        variables: arrays by name.
        numbers: numbers and texts by name.
        left_out: what is not in it, each as a sentence.

    Raises:
        OptionError: names of dimensions are given that do not fit.
    """

    def __init__(
        self, checkpoints: Checkpoints, dims: Dims, along: str, skip: Sequence[str]
    ) -> None:
        self._checkpoints, self._along = checkpoints, along
        self.left_out = list(checkpoints.faults)
        forms = self._forms()
        self.steps = list(forms)
        self.dims = {tuple(self.steps): along}
        names = dict.fromkeys(
            name for of_step in forms.values() for name in of_step if not is_text(name)
        )
        chosen = {
            name: found for name in names if name not in skip and (found := self._form(name, forms))
        }
        shapes = {name: form[1] for name, (form, _) in chosen.items()}
        named = names_of(shapes, dims, self._saved_dims(), along)
        self.variables = {
            name: self._variable(name, form, steps, named[name])
            for name, (form, steps) in chosen.items()
        }
        with_tree = [step for step, form in forms.items() if any(map(is_text, form))]
        with_numbers = self.steps if checkpoints.has_manifests else with_tree
        self.numbers = self._numbers({*names, *skip, along}, with_numbers)

    def _forms(self) -> dict[int, dict[str, tuple[str, tuple[int, ...]]]]:
        found = {}
        for step in self._checkpoints.steps:
            try:
                found[step] = self._checkpoints.forms(step)
            except Error as why:
                self.left_out.append(f"step {step}: {why}")
        return found

    def _form(
        self, name: str, forms: Mapping[int, Mapping[str, Any]]
    ) -> tuple[tuple[str, tuple[int, ...]], list[int]] | None:
        """The form that most steps have, of several the one of the newest step, and its steps."""
        if name == self._along:
            self.left_out.append(f"{name}: the dimension of the steps has this name (see dim=)")
            return None
        has = {step: of_step[name] for step, of_step in forms.items() if name in of_step}
        counts = Counter(reversed(has.values()))
        form = max(counts, key=lambda one: counts[one])
        others = [step for step, one in has.items() if one != form]
        if others:
            shown = f"{form[0]}{list(form[1])}"
            more = f" and in {len(others) - 1} more steps" if len(others) > 1 else ""
            self.left_out.append(
                f"{name} in step {others[0]}{more}: it is not {shown} as in the others"
            )
        try:
            _arrays.numpy_dtype(form[0])
        except Error as why:
            self.left_out.append(f"{name}: {why}")
            return None
        return form, [step for step, one in has.items() if one == form]

    def _saved_dims(self) -> dict[str, tuple[str, ...]]:
        try:
            return self._checkpoints.dims(self.steps[-1]) if self.steps else {}
        except Error as why:
            self.left_out.append(f"step {self.steps[-1]}: {why}")
            return {}

    def _variable(
        self, name: str, form: tuple[str, tuple[int, ...]], steps: list[int], dims: tuple[str, ...]
    ) -> Variable:
        along = self._dim_of(steps, name)
        dtype = _arrays.numpy_dtype(form[0])
        try:
            about = self._checkpoints.about(steps[-1], name)
            attrs, is_in_parts = _attrs(form[0], about), about.is_in_parts
        except Error as why:
            self.left_out.append(f"attributes of {name}: {why}")
            attrs, is_in_parts = {"dtype": form[0]}, False
        return Variable(name, dtype, form[1], (along, *dims), steps, attrs, is_in_parts)

    def _dim_of(self, steps: list[int], name: str) -> str:
        """The dimension of these steps: arrays that lack in the same steps share one."""
        return self.dims.setdefault(tuple(steps), f"{name}_{self._along}")

    def _numbers(self, taken: set[str], steps: list[int]) -> dict[str, Numbers]:
        """Those that the first and the last of these steps have."""
        try:
            first, last = [self._checkpoints.values(step) for step in (steps[0], steps[-1])]
        except Error as why:
            self.left_out.append(f"numbers and texts: {why}")
            return {}
        except IndexError:
            return {}
        found = {}
        for name in first:
            kind = _kind(first[name], last.get(name))
            if kind is not None and name not in taken:
                values = _Values(self._checkpoints, name, kind)
                found[name] = Numbers(name, kind, self._dim_of(steps, name), steps, values)
        return found


class _Values:
    """The values of one name, which are read when they are asked for."""

    def __init__(self, checkpoints: Checkpoints, name: str, kind: str) -> None:
        self._checkpoints, self._name, self._kind = checkpoints, name, kind

    def __call__(self, steps: Sequence[int]) -> list[Any]:
        return each_of(self._value, steps)

    def _value(self, step: int) -> Any:
        value = self._checkpoints.values(step).get(self._name)
        kind = KINDS.get(type(value))
        if kind != self._kind and (kind, self._kind) != ("int64", "float64"):
            raise ArrayError(
                f"{self._name} in step {step} is {value!r}, and elsewhere {self._kind}: "
                "leave it out by drop_variables."
            )
        return value


def _kind(first: Any, last: Any) -> str | None:
    """The dtype that both values fit."""
    kinds = {KINDS.get(type(first)), KINDS.get(type(last))}
    return "float64" if kinds == {"int64", "float64"} else kinds.pop() if len(kinds) == 1 else None


def each_of(call: Callable[[int], Any], steps: Sequence[int]) -> list[Any]:
    """What a call returns for each step; several threads read where there are many."""
    if len(steps) <= FEW:
        return [call(step) for step in steps]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(call, steps))


def _attrs(dtype: str, about: Array) -> dict[str, Any]:
    found: dict[str, Any] = {"dtype": dtype, "codec": about.achieved.codec}
    stream = about.stream()
    if stream is not None and stream.bound:
        found |= {"bound": stream.bound, "bound_kind": stream.kind}
    if stream is not None and stream.max_error is not None and stream.kind != "lossless":
        found["max_error"] = stream.max_error
    return found


def warn_of(place: str, left_out: Sequence[str], where: str) -> None:
    """Warns of what is left out; `where` has all of it."""
    if left_out:
        more = len(left_out) - SHOWN
        rest = [f"and {more} more: see {where}"] if more > 0 else []
        text = "; ".join([*left_out[:SHOWN], *rest])
        warnings.warn(f"{place}: left out: {text}", RuntimeWarning, stacklevel=4)

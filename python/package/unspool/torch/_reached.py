"""What a step or a block reaches besides its arguments: the places that hold its variables, its
tensors, and its generators of random numbers.

The walk begins at functions and modules, and follows closures, defaults, the globals that code
names, attributes, and the items of containers. It stops at libraries and after `LIMIT` objects.
Tensors are referred to weakly, as they may lead to graphs.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from ._places import Array, Cell, Class, Items, Names, Place, Places, Table

__all__ = ["PLAIN", "Reached", "has_version", "hooks_of", "memory_of", "version_of"]

PLAIN = (torch.Tensor, torch.nn.Parameter)

#: Objects that are looked at, and items of one container.
LIMIT, ITEMS = 20_000, 1000

#: Of these packages, and of others that are installed, nothing is walked but modules of a model,
#: containers, and generators.
LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "unspool", "jax", "jaxlib"})
#: What a module has for itself: lists of hooks, and the dictionaries that are places by themselves.
INTERNALS = frozenset(set(torch.nn.Module().__dict__) - {"training"})
HOOKS = ("_forward_hooks", "_forward_pre_hooks")

#: Objects of libraries that hold what the user gives them, and what they know of it.
HOLDERS = (
    types.SimpleNamespace,
    argparse.Namespace,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
)

SIMPLE = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)


class Reached:
    """What was reached.

    Attributes:
        places: where variables are.
        generators: of one's own, of PyTorch, NumPy and Python.
        kinds: the code and the classes that were seen.
    """

    def __init__(self, *roots: Any) -> None:
        self._places: list[Place] = []
        self.generators: list[Any] = []
        self._tensors: list[weakref.ref[torch.Tensor]] = []
        self._normalised: list[weakref.ref[torch.Tensor]] = []
        self._seen: dict[int, Any] = {}
        self._ahead: deque[Any] = deque(roots)
        self._names: set[tuple[int, str]] = set()
        # A step may be of a package that is installed.
        packages = {_package(getattr(root, "__module__", None)) for root in roots}
        self._own = packages - LIBRARIES
        while self._ahead and len(self._seen) < LIMIT:
            self._visit(self._ahead.popleft())
        self.kinds = frozenset(map(_kind, self._seen.values()))
        # Only identities were of interest.
        self._seen.clear()
        self.places = Places(self._places)

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that are still there, and whose versions are counted."""
        found = (each() for each in self._tensors)
        return [each for each in found if each is not None]

    def refs(self) -> list[torch.Tensor | None]:
        """The same, and None for each that is gone."""
        return [each() for each in self._tensors]

    def gradients(self) -> list[torch.Tensor | None]:
        """The gradients of all tensors that keep one."""
        return [
            each.grad if each is not None and (each.is_leaf or each.retains_grad) else None
            for each in (ref() for ref in self._tensors)
        ]

    def versions(self) -> list[int | None]:
        """The versions of all tensors, for `changed`."""
        return [None if (each := ref()) is None else each._version for ref in self._tensors]

    def changed(self, since: list[int | None], now: list[int | None]) -> list[torch.Tensor]:
        """The tensors whose versions are not the same."""
        if since == now:
            return []
        found = (
            ref()
            for ref, one, other in zip(self._tensors, since, now, strict=True)
            if one != other and other is not None
        )
        return [each for each in found if each is not None]

    def grows(self) -> list[bool | None]:
        """Which tensors need a gradient."""
        return [None if (each := ref()) is None else each.requires_grad for ref in self._tensors]

    def grow(self, grows: list[bool | None]) -> None:
        """Leaves need a gradient as they did when `grows` was called."""
        if self.grows() == grows:
            return
        for ref, needed in zip(self._tensors, grows, strict=True):
            each = ref()
            if each is not None and needed is not None and each.is_leaf:
                each.requires_grad_(needed)

    def normalised(self) -> list[torch.Tensor]:
        """Tensors that layers are known to change, though not always: the statistics of BatchNorm,
        and tables with a largest norm."""
        return [each for each in (ref() for ref in self._normalised) if each is not None]

    def _foreign(self, module: Any) -> bool:
        """Whether what a module of this name defines is of a library."""
        package = _package(module)
        return package not in self._own and _installed(package)

    def _visit(self, value: Any) -> None:
        if isinstance(value, SIMPLE) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._tensor(value)
        elif isinstance(value, torch.nn.Module):
            self._module(value)
        elif _is_generator(value):
            self.generators.append(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self._ahead += (value.__self__, value.__func__)
        elif isinstance(value, types.BuiltinMethodType):
            self._ahead.append(value.__self__)
        elif isinstance(value, functools.partial):
            self._ahead += (value.func, value.args, value.keywords)
        elif isinstance(value, type):
            self._class(value)
        elif _numpy(value, "ndarray"):
            self._places.append(Array(value))
        else:
            self._container(value)

    def _tensor(self, tensor: torch.Tensor) -> None:
        if has_version(tensor):
            self._tensors.append(weakref.ref(tensor))
            if threading.active_count() == 1:
                # A step that adds to its gradient calls them; and so might another thread, whose
                # changes must stay.
                self._ahead += hooks_of(tensor)

    def _container(self, value: Any) -> None:
        if isinstance(value, dict):
            self._places.append(Table(value))
            self._ahead += _some(value.values())
        elif isinstance(value, list | set | deque):
            self._places.append(Items(value))
            self._ahead += _some(value)
        elif isinstance(value, tuple | frozenset):
            self._ahead += _some(value)
        elif not isinstance(value, types.ModuleType):
            self._object(value)

    def _object(self, value: Any) -> None:
        """An object of a class of the user's, or one that wraps a function."""
        wrapped = getattr(type(value), "__wrapped__", None) or vars_of(value).get("__wrapped__")
        if isinstance(wrapped, types.FunctionType):
            self._ahead.append(wrapped)
        if self._foreign(type(value).__module__) and not isinstance(value, HOLDERS):
            return
        self._ahead.append(type(value))
        attributes = vars_of(value)
        if attributes:
            self._places.append(Table(attributes))
            self._ahead += _some(attributes.values())

    def _module(self, module: torch.nn.Module) -> None:
        attributes = module.__dict__
        # The order is that in which a module finds its own.
        self._places.append(Table(attributes, INTERNALS))
        for name in ("_parameters", "_buffers", "_modules"):
            if isinstance(attributes.get(name), dict):
                self._places.append(Table(attributes[name], whole=True))
                self._ahead += attributes[name].values()
        self._ahead += [each for key, each in attributes.items() if key not in INTERNALS]
        for name in HOOKS:
            self._ahead += attributes.get(name, {}).values()
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.training:
            found = (module.running_mean, module.running_var)
            self._normalised += [weakref.ref(each) for each in found if each is not None]
        if getattr(module, "max_norm", None) and isinstance(module.weight, torch.Tensor):
            # A table whose rows are changed when they are first read.
            self._normalised.append(weakref.ref(module.weight))
        if not self._foreign(type(module).__module__):
            self._ahead.append(type(module))

    def _class(self, kind: type) -> None:
        if issubclass(kind, torch.autograd.Function):
            # What its two functions share runs in the backward pass as well.
            return
        for base in kind.__mro__:
            if self._foreign(base.__module__):
                continue
            place = Class(base)
            if place.names:
                self._places.append(place)
            for value in list(vars(base).values()):
                value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                self._ahead.append(value)

    def _function(self, function: types.FunctionType) -> None:
        if self._foreign(function.__globals__.get("__name__")):
            # What it wraps may be the user's.
            self._ahead.append(function.__dict__.get("__wrapped__"))
            return
        self._ahead += function.__defaults__ or ()
        self._ahead += (function.__kwdefaults__ or {}).values()
        if function.__dict__:
            self._places.append(Table(function.__dict__))
            self._ahead += function.__dict__.values()
        for cell in function.__closure__ or ():
            if id(cell) not in self._seen:
                self._seen[id(cell)] = cell
                place = Cell(cell)
                self._places.append(place)
                self._ahead += place.copy()
        self._named(function.__globals__, set(_code_names(function.__code__)))

    def _named(self, scope: dict[str, Any], names: set[str]) -> None:
        """The globals that code names; of a module of the user's, the attributes that it names."""
        found = [name for name in names if (id(scope), name) not in self._names]
        self._names.update((id(scope), name) for name in found)
        held = [name for name in found if name in scope]
        if held:
            self._places.append(Names(scope, tuple(held)))
        for name in held:
            value = scope[name]
            if not isinstance(value, types.ModuleType):
                self._ahead.append(value)
            elif not self._foreign(value.__name__):
                self._named(vars(value), names)


def has_version(tensor: torch.Tensor) -> bool:
    """Whether changes in place of a tensor are counted."""
    return type(tensor) in PLAIN and not tensor.is_inference()


def version_of(tensor: torch.Tensor | None) -> int:
    """How often a tensor was changed in place, as far as that is counted."""
    return 0 if tensor is None or tensor.is_inference() else tensor._version


def hooks_of(tensor: torch.Tensor) -> list[Any]:
    """The hooks that are called when something is added to the gradient of a tensor."""
    both = tensor._backward_hooks, tensor._post_accumulate_grad_hooks
    return [hook for hooks in both for hook in (hooks or {}).values()]


def memory_of(tensor: torch.Tensor) -> int | None:
    """What tensors in the same memory have in common."""
    plain = type(tensor) in PLAIN and tensor.layout is torch.strided
    return tensor.untyped_storage()._cdata if plain else None


def _kind(value: Any) -> Any:
    return value.__code__ if isinstance(value, types.FunctionType) else type(value)


def _some(values: Any) -> Iterator[Any]:
    for number, value in enumerate(list(values)):
        if number == ITEMS:
            return
        yield value


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object that has a dictionary of them."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}


@functools.lru_cache(maxsize=4096)
def _code_names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code has, with that of functions within it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found.update(_code_names(constant))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _installed(package: str) -> bool:
    """Whether a package is not of the user's program."""
    if package in LIBRARIES:
        return True
    module = sys.modules.get(package)
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(folder in place for place in places for folder in ("site-packages", "dist-packages"))


def _package(name: Any) -> str:
    return str(name).partition(".")[0]


def _is_generator(value: Any) -> bool:
    return isinstance(value, torch.Generator | random.Random) or (
        _numpy(value, "random.Generator", "random.RandomState", "random.BitGenerator")
    )


def _numpy(value: Any, *names: str) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or not type(value).__module__.startswith("numpy"):
        return False
    for name in names:
        kind: Any = numpy
        for part in name.split("."):
            kind = getattr(kind, part, ())
        if isinstance(value, kind):
            return True
    return False

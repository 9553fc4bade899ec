"""Which modules of a model are its blocks, and how a block is called in another way than it was."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from unspool.errors import OptionError

__all__ = ["Wrapped", "blocks_of"]

#: Units of these classes are blocks wherever they are.
UNITS = ("FSDPModule", "FullyShardedDataParallel")

#: Of which members are blocks where there are several of one class.
LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


def blocks_of(model: torch.nn.Module, given: Any) -> dict[str, torch.nn.Module]:
    """The blocks by their names, in the order of the model.

    Raises:
        OptionError: there are none, or those that were given are not in the model.
    """
    names = {id(module): name for name, module in model.named_modules()}
    found = list(_repeated(model)) if isinstance(given, str) else list(_checked(given, names))
    if isinstance(given, str) and given != "auto":
        raise OptionError(f'budget(blocks={given!r}): give a list of modules, or "auto".')
    if not found:
        raise OptionError(f"budget(blocks=...): {_none(model)}")
    return {names[id(block)]: block for block in found}


def _none(model: torch.nn.Module) -> str:
    lists = [each for each in model.modules() if isinstance(each, LISTS)]
    single = {type(member).__name__ for each in lists for member in _repeated_in(each, _single)}
    layers = f"such as {', '.join(sorted(single))}" if single else "of PyTorch"
    return (
        "the model has no repeated blocks, which are modules of one class in a ModuleList or a "
        f"Sequential. Single layers {layers} are none. Give a list of modules."
    )


def _checked(given: Iterable[Any], names: dict[int, str]) -> Iterator[torch.nn.Module]:
    if not isinstance(given, Iterable):
        raise OptionError(f"budget(blocks={given!r:.60}): give a list of modules.")
    inside: set[int] = set()
    for block in given:
        if id(block) not in names:
            raise OptionError(
                f"budget(blocks=...): a {type(block).__name__} in it is not a module of the model."
            )
        if id(block) in inside:
            raise OptionError(
                f"budget(blocks=...): {names[id(block)]} is there twice, or inside another block."
            )
        inside.update(id(each) for each in block.modules())
        yield block


def _repeated(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The outermost members of lists that have others of their class beside them, and units."""
    listed = isinstance(module, LISTS)
    several = list(_repeated_in(module, _composed)) if listed else []
    for member in module.children():
        if member in several or _is_unit(member):
            yield member
        else:
            yield from _repeated(member)


def _repeated_in(
    module: torch.nn.Module, counts: Callable[[torch.nn.Module], bool]
) -> Iterator[torch.nn.Module]:
    """The members that have others of their class beside them, of those that count."""
    members = [member for member in module.children() if counts(member)]
    kinds = Counter(map(type, members))
    yield from (member for member in members if kinds[type(member)] > 1)


def _composed(module: torch.nn.Module) -> bool:
    """Whether it is more than a list of modules or a single layer."""
    listed = isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict)
    return not listed and not _single(module)


def _single(module: torch.nn.Module) -> bool:
    """Whether it is one layer of PyTorch, of which nothing need be computed again."""
    return not list(module.children()) and type(module).__module__.startswith("torch.")


def _is_unit(module: torch.nn.Module) -> bool:
    """Whether it is sharded by itself, and nothing in it is."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kinds = tuple(getattr(fsdp, name) for name in UNITS if hasattr(fsdp, name))
    return isinstance(module, kinds) and (
        sum(isinstance(each, kinds) for each in module.modules()) == 1
    )


class Wrapped:
    """What takes the place of the `forward` of a block; of a block that was compiled, of that.

    Attributes:
        watch: what the block reaches, once it is computed again.
    """

    def __init__(self, block: torch.nn.Module, call: Callable[..., Any]) -> None:
        compiled = getattr(block, "_compiled_call_impl", None) is not None
        self.name = "_compiled_call_impl" if compiled else "forward"
        self.block, self._call = block, call
        self.watch: Any = None
        self.original = getattr(block, self.name)
        self._lazy = True
        self._before = block.__dict__.get(self.name)
        setattr(block, self.name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            return self.original(*args, **kwargs)
        return self._call(self, args, kwargs)

    def makes_parameters(self) -> bool:
        """Whether the next call makes parameters of the block, as that of a lazy module does."""
        self._lazy = self._lazy and any(map(is_lazy, self.block.parameters()))
        return self._lazy

    def __reduce__(self) -> Any:
        # A copy of the block, and a block in a file, are called as the block was.
        return _itself, (self.original,)

    def remove(self) -> None:
        """Lets the block be called as it was. Does nothing the second time."""
        self._call = None  # type: ignore[assignment]
        if self.block.__dict__.get(self.name) is not self:
            return
        if self._before is None:
            delattr(self.block, self.name)
        else:
            setattr(self.block, self.name, self._before)


def _itself(original: Any) -> Any:
    return original

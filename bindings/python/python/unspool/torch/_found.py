"""Which modules of a model are its blocks, and how a block is called in another way than it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from unspool.errors import OptionError

__all__ = ["Wrapped", "blocks_of"]

#: Units of these classes are blocks wherever they are.
UNITS = ("FSDPModule", "FullyShardedDataParallel")


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
        raise OptionError(
            "budget(blocks=...): the model has no repeated blocks, which are modules of one class "
            "in a ModuleList or a Sequential. Give a list of modules."
        )
    return {names[id(block)]: block for block in found}


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
    members = list(module.children())
    listed = isinstance(module, torch.nn.ModuleList | torch.nn.Sequential)
    kinds = [type(member) for member in members if _composed(member)]
    for member in members:
        if (listed and kinds.count(type(member)) > 1) or _is_unit(member):
            yield member
        else:
            yield from _repeated(member)


def _composed(module: torch.nn.Module) -> bool:
    """Whether it is more than one layer of PyTorch, of which nothing need be computed again."""
    if isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
        return False
    return any(True for _ in module.children()) or not type(module).__module__.startswith("torch.")


def _is_unit(module: torch.nn.Module) -> bool:
    """Whether it is sharded by itself, and nothing in it is."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kinds = tuple(getattr(fsdp, name) for name in UNITS if hasattr(fsdp, name))
    return isinstance(module, kinds) and (
        sum(isinstance(each, kinds) for each in module.modules()) == 1
    )


class Wrapped:
    """What takes the place of the `forward` of a block; of a block that was compiled, of that."""

    def __init__(self, block: torch.nn.Module, call: Callable[..., Any]) -> None:
        compiled = getattr(block, "_compiled_call_impl", None) is not None
        self.name = "_compiled_call_impl" if compiled else "forward"
        self.block, self._call = block, call
        self.original = getattr(block, self.name)
        self._before = block.__dict__.get(self.name)
        setattr(block, self.name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            return self.original(*args, **kwargs)
        return self._call(self, args, kwargs)

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

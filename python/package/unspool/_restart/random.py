"""The states of random number generators as JSON, and back. No library is imported for that."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

from ..errors import ArrayError

__all__ = ["EVERYWHERE", "check", "is_generator", "set_state", "state"]

#: Generators by the module and the name of their class, and of one of those it is made from.
_KINDS = {
    ("numpy.random._generator", "Generator"): "numpy.Generator",
    ("numpy.random.mtrand", "RandomState"): "numpy.RandomState",
    ("torch._C", "Generator"): "torch.Generator",
    ("torch", "Generator"): "torch.Generator",
}


class _Everywhere:
    """The generators that Python, NumPy and PyTorch have for all of a process, those of GPUs
    among them."""


EVERYWHERE = _Everywhere()


def _kind(value: Any) -> str | None:
    if isinstance(value, random.Random):
        return "random.Random"
    if value is EVERYWHERE:
        return "everywhere"
    names = ((base.__module__, base.__name__) for base in type(value).__mro__)
    found = next((_KINDS[name] for name in names if name in _KINDS), None)
    module, name = type(value).__module__, type(value).__name__
    if module.split(".")[0] == "cupy" and name in ("Generator", "RandomState"):
        return "cupy"
    return found


def is_generator(value: Any) -> bool:
    """Whether it makes random numbers."""
    return _kind(value) is not None


def state(name: str, generator: Any) -> dict[str, Any]:
    """The state of a generator, as JSON has it.

    Raises:
        ArrayError: it cannot be read.
    """
    kind = _kind(generator)
    if kind == "numpy.Generator":
        found: Any = generator.bit_generator.state
    elif kind == "numpy.RandomState":
        found = generator.get_state(legacy=False)
    elif kind == "torch.Generator":
        found = bytes(generator.get_state().tolist()).hex()
    elif kind == "random.Random":
        found = generator.getstate()
    elif kind == "everywhere":
        found = {of: state(name, one)["state"] for of, one in _everywhere().items()}
    else:
        raise ArrayError(
            f"{name}: CuPy does not give out the state of its generators. Make one from the step, "
            "such as cupy.random.default_rng([seed, step]), after each checkpoint and restart."
        )
    return {"kind": kind, "state": _plain(found)}


def check(name: str, generator: Any, saved: dict[str, Any]) -> None:
    """Refuses a generator of another kind than the one that was saved.

    Raises:
        ArrayError: it is of another kind.
    """
    kind, inner = _kind(generator), None
    if kind == saved["kind"] == "everywhere":
        _check_gpus(name, saved["state"])
    if kind == saved["kind"] == "numpy.Generator":
        inner = type(generator.bit_generator).__name__
    if kind != saved["kind"] or (inner and inner != saved["state"]["bit_generator"]):
        was = saved["state"]["bit_generator"] if inner else saved["kind"]
        raise ArrayError(f"{name}: a {inner or kind} was given, and a {was} was saved.")


def set_state(generator: Any, saved: dict[str, Any]) -> None:
    """Gives a generator the state that another one of its kind had."""
    kind, found = saved["kind"], _read(saved["state"])
    if kind == "numpy.Generator":
        generator.bit_generator.state = found
    elif kind == "numpy.RandomState":
        generator.set_state(found)
    elif kind == "torch.Generator":
        torch = sys.modules["torch"]
        generator.set_state(torch.tensor(list(bytes.fromhex(found)), dtype=torch.uint8))
    elif kind == "everywhere":
        _set_everywhere(found)
    else:
        version, numbers, gauss = found
        generator.setstate((version, tuple(numbers), gauss))


#: The generator of a whole process by the name of its library, and what has it.
_OF_PROCESS = {"random": ("random", "_inst"), "numpy": ("numpy.random.mtrand", "_rand")}


def _everywhere(needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The generators of this process by the names of their libraries, of those that are loaded or
    needed. Those of GPUs are there when PyTorch has used one."""
    found: dict[str, Any] = {}
    for name, (module, attribute) in _OF_PROCESS.items():
        if name in sys.modules or name in needed:
            found[name] = getattr(importlib.import_module(module), attribute)
    gpus = any(name.startswith("cuda:") for name in needed)
    torch = importlib.import_module("torch") if "torch" in needed else sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        found["torch"] = torch.default_generator
        if gpus:
            torch.cuda.init()
        if torch.cuda.is_initialized():
            many = enumerate(torch.cuda.default_generators)
            found |= {f"cuda:{number}": one for number, one in many}
    return found


def _check_gpus(name: str, saved: dict[str, Any]) -> None:
    gpus = sum(of.startswith("cuda:") for of in saved)
    if not gpus:
        return
    there = importlib.import_module("torch").cuda.device_count()
    if there != gpus:
        raise ArrayError(
            f"{name}: the random numbers of {gpus} GPUs were saved, and {there} are here. Restore "
            "without rng=True, and seed each generator anew."
        )


def _set_everywhere(saved: dict[str, Any]) -> None:
    """Gives the generators of this process the states that they had."""
    there = _everywhere(tuple(saved))
    for of, found in saved.items():
        kind = _kind(there[of])
        set_state(there[of], {"kind": kind, "state": found})


def _plain(value: Any) -> Any:
    """The same without arrays."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if type(value).__name__ == "ndarray":
        return {"array": value.tolist(), "dtype": value.dtype.name}
    if type(value).__module__ == "numpy":
        return value.item()
    return value


def _read(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"array", "dtype"}:
        return sys.modules["numpy"].array(value["array"], value["dtype"])
    return {key: _read(inner) for key, inner in value.items()}

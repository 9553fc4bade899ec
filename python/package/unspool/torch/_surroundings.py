"""What surrounds a computation and has a part in it: autocast, modes, and settings of PyTorch."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.utils import parametrize
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

__all__ = ["Surroundings", "cached_weights", "transformed"]


def transformed() -> bool:
    """Whether forward-mode tangents may flow, or a function is being transformed by `torch.func`:
    both are of an operation as it runs, and not of one that is computed again."""
    within = torch._C._functorch.peek_interpreter_stack() is not None
    return within or forward_ad._current_level >= 0


def cached_weights() -> list[Any]:
    """The weights in the cache of parametrisations."""
    return list(parametrize._cache.values())


def _cache() -> tuple[int, Any]:
    return parametrize._cache_enabled, dict(parametrize._cache)


def _put_cache(state: tuple[int, Any]) -> None:
    parametrize._cache_enabled, parametrize._cache = state[0], dict(state[1])


def _deterministic() -> tuple[bool, bool]:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warns


def _put_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


#: How a setting of `torch._C` is read and written, by the names of both.
_NAMED = (
    ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    ("_get_mkldnn_deterministic", "_set_mkldnn_deterministic"),
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_sdp_priority_order", "_set_sdp_priority_order"),
    (
        "_get_deterministic_fill_uninitialized_memory",
        "_set_deterministic_fill_uninitialized_memory",
    ),
)

_SETTINGS: list[tuple[Any, Any]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    (_deterministic, _put_deterministic),
    (_cache, _put_cache),
    *(
        (getattr(torch._C, get), getattr(torch._C, put))
        for get, put in _NAMED
        if hasattr(torch._C, get) and hasattr(torch._C, put)
    ),
]

#: Precisions of matrix products, of the interface that this PyTorch has.
if hasattr(torch._C, "_get_fp32_precision_getter"):
    _SETTINGS += [
        (
            lambda where=where: torch._C._get_fp32_precision_getter(*where),
            lambda value, where=where: torch._C._set_fp32_precision_setter(*where, value),
        )
        for where in (
            ("generic", "all"),
            ("cuda", "matmul"),
            ("cuda", "conv"),
            ("mkldnn", "matmul"),
        )
    ]
else:
    _SETTINGS.append((torch.get_float32_matmul_precision, torch.set_float32_matmul_precision))


class Surroundings:
    """What surrounds a computation now."""

    def __init__(self, kinds: set[str]) -> None:
        self._cached = torch.is_autocast_cache_enabled()
        self._autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
            for kind in sorted({"cpu", *kinds})
            if torch.amp.is_autocast_available(kind)
        ]
        self._settings = [get() for get, _ in _SETTINGS]
        self._context = contextvars.copy_context()
        self._modes = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]

    def run(self, function: Any, *, cached: bool = True) -> Any:
        """Calls a function within the same surroundings. Without `cached`, autocast has no cache:
        what it converts without a graph must not be found there when a graph is made, nor the other
        way round."""
        return self._context.copy().run(self._within, function, cached)

    def _within(self, function: Any, cached: bool) -> Any:
        cached = cached and self._cached
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._set())
            for kind, enabled, dtype in self._autocast:
                stack.enter_context(
                    torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cached)
                )
            now = (*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack())
            for mode in self._modes:
                if not any(mode is each for each in now):
                    # Of a mode for a device, another one: it is not entered twice.
                    device = isinstance(mode, DeviceContext)
                    stack.enter_context(DeviceContext(mode.device) if device else mode)
            return function()

    @contextlib.contextmanager
    def _set(self) -> Iterator[None]:
        changed = []
        for (get, put), value in zip(_SETTINGS, self._settings, strict=True):
            before = get()
            if before != value:
                put(value)
                changed.append((put, before))
        try:
            yield
        finally:
            for put, before in reversed(changed):
                put(before)

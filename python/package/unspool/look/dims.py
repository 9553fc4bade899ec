"""Names for the dimensions of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import OptionError

__all__ = ["Dims", "names_of"]

#: One sequence of names for all arrays of as many dimensions, or some for each array by name.
Dims = Sequence[str] | Mapping[str, Sequence[str]] | None

Shapes = Mapping[str, tuple[int, ...]]
Names = dict[str, tuple[str, ...]]


def names_of(shapes: Shapes, given: Dims, saved: Mapping[str, Sequence[str]], along: str) -> Names:
    """The names of the dimensions of each array: those that are given, else those that it was saved
    with, where their lengths agree, else `dim_0` and so on. Where shapes differ, the first array of
    a shape gives its name to these: `u_dim_0`.

    Raises:
        OptionError: names are given for another number of dimensions, or one for several lengths,
            or that of an array or of the dimension of the steps.
    """
    found = _given(shapes, given)
    lengths = _lengths(shapes, found)
    for dim, several in lengths.items():
        if len(several) > 1 or dim == along or dim in shapes:
            what = "an array or the dimension of the steps has this name"
            what = what if len(several) == 1 else f"it would have lengths {sorted(several)}"
            raise OptionError(f"dims: {dim!r}: {what}.")
    for name, dims in saved.items():
        if name in shapes and name not in found and len(dims) == len(shapes[name]):
            pairs = zip(dims, shapes[name], strict=True)
            agree = all(lengths.setdefault(dim, {length}) == {length} for dim, length in pairs)
            taken = {along, *shapes}.intersection(dims)
            if agree and not taken and len(set(dims)) == len(dims):
                found[name] = tuple(dims)
    rest = {name: shape for name, shape in shapes.items() if name not in found}
    first = {shape: name for name, shape in reversed(rest.items())}
    for name, shape in rest.items():
        before = f"{first[shape]}_" if len(first) > 1 or "dim_0" in lengths else ""
        found[name] = tuple(f"{before}dim_{axis}" for axis in range(len(shape)))
    return found


def _given(shapes: Shapes, given: Dims) -> Names:
    if isinstance(given, str):
        raise OptionError(f"dims={given!r}: give a sequence of names.")
    if not isinstance(given, Mapping):
        wanted = tuple(given or ())
        return {name: wanted for name, shape in shapes.items() if len(shape) == len(wanted) > 0}
    for name, dims in given.items():
        if name in shapes and len(dims) != len(shapes[name]):
            raise OptionError(f"dims: {name!r} has {len(shapes[name])} dimensions: {list(dims)}.")
    return {name: tuple(dims) for name, dims in given.items() if name in shapes}


def _lengths(shapes: Shapes, names: Names) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, dims in names.items():
        for dim, length in zip(dims, shapes[name], strict=True):
            found.setdefault(dim, set()).add(length)
    return found

"""What `codec=` was given, in the words of the extension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unspool.codecs.values import Bound, NvComp, Word, Zfp
from unspool.errors import OptionError

__all__ = ["ADVICE", "word_of", "words_of"]

ADVICE = (
    'write None, "lossless", "auto", a bound such as unspool.Bound(range=1e-4), unspool.Zfp(...), '
    'or one for each array by name, such as {"u": unspool.Bound(abs=1e-3), '
    '"*": "lossless"}'
)

#: The key of a mapping for all regions that it does not name.
OTHERS = "*"


def words_of(codec: Any, place: str) -> tuple[Word, dict[str, Word]]:
    """The codec of all regions, and those of single regions by name.

    Arguments:
        codec: what a caller gave.
        place: where, as it begins an error: `"Spool(codec=...)"`.

    Raises:
        OptionError: it is no codec.
    """
    if not isinstance(codec, Mapping):
        return word_of(codec, place), {}
    words: dict[str, Word] = {}
    for key, value in codec.items():
        name = _name(key, place)
        if name in words:
            text = f"{place}: {int(name)} and {name!r} are the same array; give one of them."
            raise OptionError(text)
        words[name] = word_of(value, f"{place}: {key!r}")
    if not words:
        raise OptionError(f"{place}: an empty mapping says nothing; {ADVICE}.")
    return words.pop(OTHERS, word_of(None, place)), words


def _name(key: Any, place: str) -> str:
    """Arrays that are given by position are called by it."""
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
        return str(key)
    raise OptionError(
        f"{place}: {key!r} is no name of an array; give the name under which it is saved, its "
        f'position, or "{OTHERS}" for all others.'
    )


def word_of(codec: Any, place: str) -> Word:
    """One codec in words.

    Raises:
        OptionError: it is none.
    """
    # Arrays compare with text item by item: only what is text may be compared with it.
    match codec:
        case None:
            return "raw", "", 0.0, 0.0
        case str() if codec in ("raw", "lossless", "auto"):
            return codec, "", 0.0, 0.0
        case Bound():
            return "bound", codec.kind, codec.value, codec.floor or 0.0
        case Zfp():
            return "zfp", codec.kind, codec.value, 0.0
        case NvComp():
            return "nvcomp", codec.name, codec.abs or 0.0, 0.0
    raise OptionError(f"{place}: {_shown(codec)} is no codec{_hint(codec)}; {ADVICE}.")


def _hint(codec: Any) -> str:
    if isinstance(codec, type) and codec in (Bound, Zfp, NvComp):
        return " but a class"
    if hasattr(codec, "dtype") and hasattr(codec, "shape"):
        return " but an array (one that is called codec has to be given by position)"
    if isinstance(codec, int | float) and not isinstance(codec, bool):
        return " (a bound has to say of what: absolute, of the range, ...)"
    return ""


def _shown(codec: Any) -> str:
    """As it is written, but in one short line."""
    text = " ".join(repr(codec).split())
    return text if len(text) <= 80 else f"{text[:77]}..."

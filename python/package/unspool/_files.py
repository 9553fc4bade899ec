"""Files that are there completely or not at all, and files of JSON that say what they are."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from .errors import OptionError, StorageError, shown

__all__ = ["AnyPath", "Format", "Kept", "absolute", "read_text", "same", "whole", "write_json"]

#: A path as Python takes it.
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]

T = TypeVar("T")


def absolute(path: AnyPath, option: str) -> Path:
    """The path that is meant now, whatever the working directory becomes.

    Raises:
        OptionError: it is not a path; `option` is what it was given for.
        StorageError: it is relative, and the working directory is gone.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        text = ""
    if not text or "\0" in text:
        raise OptionError(f"{option}={shown(path)}: write a path.")
    try:
        # Links are left as they are, so that `..` after one leads where the system goes.
        return Path(text).absolute()
    except OSError as why:
        text = f"{option}={text!r}: the working directory is gone: {why}."
        raise StorageError(text) from why


def same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file or directory, also by links and mounts."""
    try:
        return one.samefile(other)
    except OSError:
        # What is not there yet may be named by a link that leads nowhere.
        return one.resolve() == other.resolve()


def read_text(path: AnyPath, errors: str = "strict") -> str:
    """The text of a regular file: a pipe is not waited for, and a device has no end.

    Raises:
        StorageError: it is another kind of file.
        OSError: it cannot be read.
        UnicodeDecodeError: it is not text, with errors that are strict.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="utf-8", errors=errors) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageError(f"{os.fsdecode(path)} is not a regular file.")
        return file.read()


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to; it becomes `path` when the block ends well, and else vanishes."""
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], content: Any, indent: int | None = None) -> None:
    """Writes a file of JSON, as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(content, indent=indent) + "\n"
    with whole(Path(path)) as part, part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        # A crash of the machine after the renaming must not leave an empty file.
        os.fsync(file.fileno())


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of objects in JSON that are marked with what they are, and with a version.

    Attributes:
        mark: the name under which the version stands: `"unspool_links"`.
        version: what is written, and the only one that is read.
        what: an object of this kind, in words: "file of links".
        error: what is raised for everything else.
        indent: of the text of a file.
    """

    mark: str
    version: int
    what: str
    error: type[Exception]
    indent: int | None = None

    def marked(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, with the mark in front."""
        return {self.mark: self.version, **fields}

    def made(self, found: Any, make: Callable[[dict[str, Any]], T]) -> T:
        """What `make` makes of the fields of a marked object.

        Raises:
            Exception: `error`, when it is not marked, or `make` refuses the fields.
        """
        if not isinstance(found, Mapping) or self.mark not in found:
            text = f'this is not a {self.what}: it lacks "{self.mark}": {self.version}'
            raise self.error(text)
        if found[self.mark] != self.version:
            raise self.error(
                f"this {self.what} has format {found[self.mark]!r:.20}, and only {self.version} "
                "is read here: make it anew, or read it with the Unspool that wrote it"
            )
        try:
            return make({name: value for name, value in found.items() if name != self.mark})
        except KeyError as why:
            text = f"this {self.what} is incomplete or changed: it lacks {why}"
            raise self.error(text) from why
        except (TypeError, ValueError, AttributeError, OverflowError) as why:
            text = f"this {self.what} is incomplete or changed: {why}"
            raise self.error(text) from why

    def read(self, path: str | os.PathLike[str], make: Callable[[Any], T]) -> T:
        """What `make` makes of the object in a file.

        Raises:
            Exception: `error`, with the path in front, when the file holds something else.
            OSError: it cannot be read.
        """
        text = read_text(path, errors="replace")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as why:
            text = f"{os.fspath(path)}: this is not a {self.what}, as it is not JSON: {why}"
            raise self.error(text) from why
        try:
            return make(found)
        except self.error as why:
            raise self.error(f"{os.fspath(path)}: {why}") from why


class Kept:
    """A record that files of JSON keep: subclasses are dataclasses and say in which format."""

    __slots__ = ()
    _format: ClassVar[Format]

    def _fields(self) -> dict[str, Any]:
        record: Any = self
        return asdict(record)

    @classmethod
    def _of_fields(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """All of it as nested dictionaries, lists and numbers, ready for `json.dump`."""
        return self._format.marked(self._fields())

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Made from what `to_dict` gave.

        Raises:
            Error: it is something else; the class of the error is that of the format.
        """
        return cls._format.made(found, cls._of_fields)

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Writes a file of JSON, as a whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        write_json(path, self.to_dict(), self._format.indent)

    @classmethod
    def load_from(cls, path: str | os.PathLike[str]) -> Self:
        """Reads what `save_to` wrote.

        Raises:
            Error: the file holds something else; its class is that of the format.
            OSError: it cannot be read.
        """
        return cls._format.read(path, cls.from_dict)

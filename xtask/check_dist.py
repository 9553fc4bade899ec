"""Checks the files of a release, wheels and sources: `python xtask/check_dist.py FILE...`.

A wheel has to be one that clusters can install (glibc 2.28), for every Python from 3.11 on, and as
large as PyPI and its users expect. That of a command has no Python. All carry the licence, the
licences of the crates that are linked in, and the long description; a source distribution
everything that cargo needs.
"""

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import notices

TAG = re.compile(r"^(\w+)-[^-]+-(cp311-abi3|py3-none)-(manylinux_2_28_(?:x86_64|aarch64))\.whl$")
# Kernels take 14.5 MB of it, our code 4.4, and the client of object stores 2.3.
MOST_BYTES = 22 << 20
# The crates of wheels that hold a command and the library that it preloads, and their most bytes.
COMMANDS = {"unspool_messages": "unspool-recorder", "unspool_paging": "unspool-pager"}
MOST_OF_A_COMMAND = 8 << 20
NOTICES = "THIRD-PARTY.txt"


def main(files):
    """Prints what is wrong with each file; the exit code is 1 if anything is."""
    wrong = False
    for file in map(Path, files):
        found = list(wheel(file) if file.suffix == ".whl" else sources(file))
        for fault in found:
            print(f"{file}: {fault}", file=sys.stderr)
        wrong = wrong or bool(found)
        if not found:
            print(f"{file}: {file.stat().st_size / 2**20:.1f} MiB, as it should be")
    return int(wrong)


def wheel(file):
    """What is wrong with a wheel."""
    tag = TAG.search(file.name)
    command = COMMANDS.get(tag[1]) if tag else None
    if not tag or tag[2] != ("py3-none" if command else "cp311-abi3"):
        yield "not tagged as one for manylinux_2_28: build it with zig (`make wheels`)"
        return
    most = MOST_OF_A_COMMAND if command else MOST_BYTES
    if file.stat().st_size > most:
        yield f"{file.stat().st_size} bytes: it may have {most}"
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        folder = about.removesuffix("METADATA")
        yield from described(archive.read(about).decode(), names, f"{folder}licenses/")
        if f"{folder}licenses/{NOTICES}" in names:
            text = archive.read(f"{folder}licenses/{NOTICES}").decode()
            yield from noticed(text, command or "unspool-python")
    if f'"{tag[3]}"' not in said("auditwheel", "show", file):
        yield f"it is not consistent with {tag[3]}: `auditwheel show` says why"
    if command:
        return
    if subprocess.run([tool("abi3audit"), "--strict", file], capture_output=True).returncode:
        yield "it uses more than the stable ABI of Python 3.11: `abi3audit --strict` says what"


def sources(file):
    """What is wrong with a source distribution."""
    with tarfile.open(file) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder, filter="data")
        root = next(Path(folder).iterdir())
        names = {path.relative_to(root).as_posix() for path in root.rglob("*")}
        yield from described((root / "PKG-INFO").read_text(encoding="utf-8"), names, "")
        if NOTICES in names:
            yield from noticed((root / NOTICES).read_text(encoding="utf-8"), "unspool-python")
        # Not with --locked: the lock also has what only crates that are left out need.
        locked = packages(root / "Cargo.lock")
        command = ["cargo", "metadata", "--format-version=1"]
        resolved = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if resolved.returncode:
            yield f"cargo finds not all that it needs: {resolved.stderr.strip()}"
        elif other := packages(root / "Cargo.lock") - locked:
            yield f"cargo takes other packages than those of the lock: {sorted(other)}"


def packages(lock):
    """The names and versions in a lock file."""
    found = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    return {(one["name"], one["version"]) for one in found}


def described(metadata, names, licenses):
    """What is missing in the metadata: the description, and licences that are in the file."""
    fields = Parser().parsestr(metadata)
    if len(fields.get_payload()) < 500:
        yield "no long description: set `readme` in pyproject.toml"
    files = fields.get_all("License-File") or []
    for name in ["LICENSE", NOTICES]:
        if name not in files or f"{licenses}{name}" not in names:
            yield f"no {name}: `license-files` in pyproject.toml names it, and `make` writes it"


def noticed(text, crate):
    """What is wrong with the licences of the crates that are linked into one of ours."""
    if text != notices.text([crate]):
        yield f"{NOTICES} is not that of the lock: `make wheels` or `make sdist` writes it anew"


def said(name, *arguments):
    """What a tool prints, on one line."""
    done = subprocess.run([tool(name), *arguments], capture_output=True, text=True)
    return " ".join(done.stdout.split())


def tool(name):
    """A command that is installed beside this Python."""
    return Path(sys.executable).parent / name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prints the walk of a save and of a restore: the files they pass, by room, as coverage sees them.

    make walk                              (needs llvm-tools: rustup component add llvm-tools)
    python xtask/walk.py EXTENSION DRIVER  (an extension and a fake CUDA driver with coverage)

The extension is run twice, with few and with more of the operation, on an array of a GPU, with a
codec and everything warm. A file counts when one function of it runs more often in the longer run;
accessors of a line count too, the checker of stream order and the driver of the tests do not. A
crossing is an import of a counted file by one in another room.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEW, MANY = 8, 40
# By the program below, in a process of its own: `mode` is what is repeated `count` times.
PROGRAM = """
import sys
sys.path[:0] = {paths!r}
from fake_gpu import CaiArray, Driver
import numpy as np, os, unspool
driver = Driver(os.environ["UNSPOOL_CUDA_DRIVER"])
driver.context()
mode, count = {mode!r}, {count}
values = np.arange(4096, dtype="f4").reshape(64, 64)
arrays = [CaiArray(driver, values + version) for version in range({most} + 4)]
with unspool.Spool({options}) as spool:
    saves = count if mode == "save" else {most}
    for version in range(saves + 4):
        spool.save(version, arrays[version])
    target = CaiArray(driver, values)
    for version in range(count if mode == "restore" else 0):
        spool.restore(version, target)
"""
OPTIONS = "device={size!r}, host={size!r}, on='cuda', codec='lossless'".format(size="64MiB")


def main(extension: str, driver: str) -> int:
    """Prints the table of each operation."""
    for mode in ("save", "restore"):
        few, many = (counts(extension, driver, mode, count) for count in (FEW, MANY))
        files = {name for name in many if many[name] - few.get(name, 0) >= MANY - FEW}
        print(table(mode, sorted(files)))
    return 0


def counts(extension: str, driver: str, mode: str, count: int) -> dict[str, int]:
    """For each file of the project the runs of its function that ran most."""
    with tempfile.TemporaryDirectory() as folder:
        raw, merged = f"{folder}/raw", f"{folder}/merged"
        paths = [str(ROOT / "tests/python"), str(ROOT / "python/tests")]
        text = PROGRAM.format(paths=paths, mode=mode, count=count, most=MANY, options=OPTIONS)
        package = staged(Path(folder), extension)
        environment = {
            "LLVM_PROFILE_FILE": raw,
            "UNSPOOL_CUDA_DRIVER": driver,
            "PYTHONPATH": str(package),
        }
        subprocess.run([sys.executable, "-c", text], env=os.environ | environment, check=True)
        subprocess.run([tool("llvm-profdata"), "merge", raw, "-o", merged], check=True)
        command = [tool("llvm-cov"), "export", extension, f"-instr-profile={merged}"]
        told = subprocess.run(command, capture_output=True, check=True).stdout
    return by_file(json.loads(told)["data"][0]["functions"])


def staged(folder: Path, extension: str) -> Path:
    """A copy of the package, by links, with this extension."""
    package = folder / "package" / "unspool"
    package.mkdir(parents=True)
    for path in (ROOT / "python/package/unspool").iterdir():
        if path.suffix != ".so":
            (package / path.name).symlink_to(path)
    (package / "_unspool.abi3.so").symlink_to(extension)
    return package.parent


def by_file(functions: list[dict]) -> dict[str, int]:
    """The functions of our own sources by file."""
    found: dict[str, int] = {}
    for function in functions:
        name = function["filenames"][0].removeprefix(f"{ROOT}/")
        if not name.startswith("/") and "/src/" in name:
            found[name] = max(found.get(name, 0), function["count"])
    return found


def table(mode: str, files: list[str]) -> str:
    """The files of an operation by room."""
    files = [name for name in files if room(name) != "verify"]
    rooms = Counter(room(name) for name in files)
    rows = [f"{mode}: {rooms.total()} files, {len(rooms)} rooms, {crossings(files)} crossings"]
    return "\n".join(rows + [f"{count:5}  {name}" for name, count in sorted(rooms.items())])


def room(name: str) -> str:
    """The room of a file: its crate."""
    return name.split("/src/")[0].removeprefix("engine/")


def crossings(files: list[str]) -> int:
    """How often a counted file names the crate of another room."""
    crates = {room(name): crate(name) for name in files}
    named: dict[str, set[str]] = defaultdict(set)
    for name in files:
        text = (ROOT / name).read_text(encoding="utf-8")
        words = set(re.findall(r"\bunspool(?:_\w+)?\b(?=::)", text))
        named[name] = {other for other, word in crates.items() if word in words}
    return sum(len(others - {room(name)}) for name, others in named.items())


def crate(name: str) -> str:
    """The name by which Rust knows the crate of a file."""
    manifest = (ROOT / name.split("/src/")[0] / "Cargo.toml").read_text(encoding="utf-8")
    return re.search(r'^name = "(.*)"', manifest, re.MULTILINE)[1].replace("-", "_")


def tool(name: str) -> str:
    """A tool of the Rust toolchain."""
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout
    found = list(Path(root.strip()).glob(f"lib/rustlib/*/bin/{name}"))
    if not found:
        raise SystemExit(f"{name} is missing: rustup component add llvm-tools")
    return str(found[0])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Prints the files and rooms that a save and a restore go through: `python xtask/walk.py`.

An array on a GPU (the driver of the tests), three tiers, from Python: what runs once more for each
save, its way down to the disk included, and for each restore, its way up included. Needs the
component llvm-tools of Rust (`rustup component add llvm-tools`).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "walk"
LIBRARY = TARGET / "debug" / "lib_unspool.so"
DRIVER = TARGET / "debug" / "libunspool_fakecuda.so"

# What a run does: so many saves, and as many restores of each as there are passes.
PROGRAM = """
import sys, tempfile
import unspool
from fake_gpu import CaiArray, Driver
import numpy as np, os

saves, restores = int(sys.argv[1]), int(sys.argv[2])
driver = Driver(os.environ["UNSPOOL_CUDA_DRIVER"])
driver.context()
u = CaiArray(driver, np.arange(4096, dtype="f4").reshape(64, 64))
tiers = {"device_memory": "256KiB", "host_memory": "256KiB", "device": "cuda"}
with tempfile.TemporaryDirectory() as folder, unspool.Spool(**tiers, disk=folder) as spool:
    for version in range(saves):
        spool.save(version, u)
    spool.flush()
    order = [version for version in range(saves - 1, saves - 1 - restores, -1)]
    spool.expect(order)
    for version in order:
        spool.restore(version, u)
"""


def main():
    """Builds what is measured, and prints both walks."""
    flags = {"RUSTFLAGS": "-Cinstrument-coverage", "CARGO_TARGET_DIR": str(TARGET)}
    quiet = {"LLVM_PROFILE_FILE": "/dev/null"}
    build = "cargo build --locked --quiet --package unspool-python --package unspool-fakecuda"
    subprocess.run(build.split(), cwd=ROOT, env=os.environ | flags | quiet, check=True)
    with tempfile.TemporaryDirectory() as folder:
        few, many = counted(folder, 20, 5), counted(folder, 60, 5)
        more = counted(folder, 60, 45)
    for name, before, after in [("a save", few, many), ("a restore", many, more)]:
        # As often as there are more calls: not what a timer does now and then.
        files = {place for place, count in (after - before).items() if count >= 40}
        show(name, {file for file, _ in files})


def counted(folder, saves, restores):
    """How often each function ran, by its file and name."""
    package = Path(folder) / "unspool"
    if not package.exists():
        package.symlink_to(ROOT / "python" / "package" / "unspool")
    extension = ROOT / "python" / "package" / "unspool" / "_unspool.abi3.so"
    raw, merged = Path(folder) / "raw", Path(folder) / "merged"
    env = os.environ | {
        "LLVM_PROFILE_FILE": str(raw),
        "UNSPOOL_CUDA_DRIVER": str(DRIVER),
        "PYTHONPATH": os.pathsep.join([folder, str(ROOT / "tests" / "python")]),
    }
    extension.unlink(missing_ok=True)
    extension.symlink_to(LIBRARY)
    try:
        arguments = [sys.executable, "-c", PROGRAM, str(saves), str(restores)]
        subprocess.run(arguments, env=env, check=True, timeout=300)
    finally:
        extension.unlink()
    subprocess.run([tool("profdata"), "merge", raw, "-o", merged], check=True)
    export = [tool("cov"), "export", LIBRARY, f"-instr-profile={merged}"]
    told = subprocess.run(export, check=True, capture_output=True).stdout
    counts = Counter()
    for function in json.loads(told)["data"][0]["functions"]:
        file = Path(function["filenames"][0])
        if file.is_relative_to(ROOT):
            counts[str(file.relative_to(ROOT)), function["name"]] += function["count"]
    return counts


def tool(name):
    """A tool of LLVM that belongs to the compiler."""
    sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
    found = next(Path(sysroot).glob(f"lib/rustlib/*/bin/llvm-{name}"), None)
    if found is None:
        sys.exit(f"llvm-{name} is not there: rustup component add llvm-tools")
    return found


def room(file):
    """The folder in which a crate has its sources."""
    return file.partition("/src/")[0]


def show(name, files):
    """Prints the files by room."""
    rooms = Counter(map(room, files))
    print(f"{name}: {len(files)} files of {len(rooms)} rooms")
    for place, count in sorted(rooms.items()):
        inside = sorted(file.partition("/src/")[2] for file in files if room(file) == place)
        print(f"  {count:3}  {place}: {' '.join(inside)}")


if __name__ == "__main__":
    main()

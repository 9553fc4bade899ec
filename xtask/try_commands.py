"""Installs the wheels of the commands and runs them: `python xtask/try_commands.py WHEEL...`.

In an environment of its own, where no compiler, no library and no setting of this copy is at hand:
the commands have to find what they preload where pip has put it.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

# An array of 64 MiB that repeats, gone through twice.
PROGRAM = """
values = bytearray(bytes(range(256)) * (1 << 18))
for lap in range(2):
    for start in range(0, len(values), 4096):
        values[start] = (values[start] + 1) % 256
print(sum(values[::4096]), len(values))
"""
RANKS = Path(__file__).parent.parent / "packages/messages/recorder/tests/programs/ranks.c"


def main(wheels):
    """Prints what was tried; the exit code is 1 after a failure."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        install = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-index"]
        said(place / "venv/bin/python", *install, *wheels)
        paging(place / "venv/bin")
        messages(place)
    return 0


def paging(commands):
    """Runs a program with paged memory, where the kernel allows that, and compares what it says."""
    plain = said(sys.executable, "-c", PROGRAM)
    options = ["--resident", "25%", "--match", "16MiB", "--stats"]
    run = [commands / "unspool-paging", "run", *options, "--", sys.executable, "-c", PROGRAM]
    paged = subprocess.run(run, capture_output=True, text=True, env=bare())
    if paged.returncode or paged.stdout != plain:
        sys.exit(f"unspool-paging: {paged.stdout} in place of {plain}: {paged.stderr}")
    print(f"unspool-paging: the same result; {paged.stderr.strip() or 'not paged here'}")


def messages(place):
    """Records the messages of four ranks where there is an MPI; else asks for help."""
    command = place / "venv/bin/unspool-messages"
    if "simulate" not in said(command, "--help"):
        sys.exit("unspool-messages: its help does not name its commands")
    if subprocess.run("command -v mpicc mpirun", shell=True, capture_output=True).returncode:
        print("unspool-messages: help only, as no MPI is here")
        return
    said("mpicc", "-O1", RANKS, "-lm", "-o", place / "ranks")
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
    said(command, "record", "-o", place / "run.msg", "--", *mpirun, place / "ranks")
    print("unspool-messages:", said(command, "report", place / "run.msg").splitlines()[0])


def said(*command):
    """What a command prints; its failure is ours."""
    done = subprocess.run(command, capture_output=True, text=True, env=bare())
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def bare():
    """The environment without what names libraries."""
    return {name: text for name, text in os.environ.items() if not name.startswith("LD_")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Whether the verdict on messages depends on what else runs: break-even, idle and loaded.

    python lab/benches/python/python_break_even.py [--command unspool-messages] [--busy 4]

Records the same program (`recorder/tests/programs/ranks.c`, four ranks) beside nothing and beside
processes that compute, in turns, and prints up to which network each way without loss pays. Needs
an MPI.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).parents[3] / "packages/messages/recorder/tests/programs/ranks.c"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"]
WAYS = ("LZ4", "Zstandard", "Twine", "predicted in time, order 1")


def spin() -> None:
    """Computes until it is ended."""
    while True:
        sum(range(10_000))


def break_even(command: str, folder: Path) -> dict[str, float]:
    """Bytes a second of the network up to which each way pays, of one recording."""
    record = [command, "record", "-o", folder / "run.msg", "--", *MPIRUN, folder / "ranks"]
    subprocess.run(record, check=True, capture_output=True)
    report = [command, "report", folder / "run.msg", "--json"]
    told = json.loads(subprocess.run(report, check=True, capture_output=True).stdout)
    found = {one["outcome"]["scheme"]: one["break_even"] for one in told["schemes"]}
    return {way: found[way] for way in WAYS if way in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default="unspool-messages")
    parser.add_argument("--busy", type=int, default=4, help="processes that compute")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {way: {"idle": [], "loaded": []} for way in WAYS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run(["mpicc", "-O1", PROGRAM, "-lm", "-o", folder / "ranks"], check=True)
        for _ in range(options.rounds):
            for load in ("idle", "loaded"):
                count = options.busy if load == "loaded" else 0
                busy = [multiprocessing.Process(target=spin) for _ in range(count)]
                for one in busy:
                    one.start()
                for way, speed in break_even(options.command, folder).items():
                    found[way][load].append(speed)
                for one in busy:
                    one.terminate()
    print("| way | pays up to, MB/s, idle | loaded | ratio |\n| --- | --- | --- | --- |")
    for way, loads in found.items():
        idle, loaded = (statistics.median(loads[load]) for load in ("idle", "loaded"))
        # What saves nothing pays nowhere.
        if idle > 0:
            print(f"| {way} | {idle / 1e6:.0f} | {loaded / 1e6:.0f} | {loaded / idle:.2f} |")


if __name__ == "__main__":
    main()

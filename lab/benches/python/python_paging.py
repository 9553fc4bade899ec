"""What paging costs: programs on arrays of which 100 to 25 % are in memory.

    python lab/benches/python/python_paging.py [--mib 192] [--rounds 2] [--only cg ...]

Each program runs on plain memory and on `unspool.paged`, without an order and with it; the best of
the rounds counts, and the ratio to plain memory of the same run is shown, also of the time of all
processors, the threads of paging included, which other work on the machine moves less. The
kernel's own swap, zram and zswap are in `python_paging_kernel.py`: they need root and a limit on
the process. What each program does is said in `unspool_studies.paging.programs`, of the package
`unspool-studies`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

import numpy as np
import unspool
from unspool_studies.paging.programs import PROGRAMS, Program, timed

SHARES = (100, 75, 50, 25)


def keep_temporaries() -> None:
    """Starts this program again with an allocator that keeps what is freed.

    Otherwise the C library asks the kernel for new memory for each temporary array, and the first
    write to each page of it is a page fault. It stops doing that once arrays of that size have been
    freed in the process, so what ran before would change the time of a program.
    """
    keeping = {f"MALLOC_{which}_THRESHOLD_": str(1 << 30) for which in ("MMAP", "TRIM")}
    if keeping.items() - os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | keeping)


def cases(program: Program) -> Iterator[tuple[int, str, unspool.types.PagedArray]]:
    for share in SHARES:
        for order in ("none", "given") if share < 100 else ("none",):
            array = unspool.paged(program.shape, program.dtype, program.nbytes * share // 100)
            if order == "given":
                array.expect(program.order)
            yield share, order, array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=192, help="MiB of the array")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    options = parser.parse_args()
    keep_temporaries()
    print("| program | in memory | order | time | to plain | cpu | loads | ahead | late | factor |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in options.only:
        program = PROGRAMS[name](options.mib)
        memory = np.zeros(program.shape, program.dtype)
        program.fill(memory)
        plain, work, expected = timed(program, memory, options.rounds)
        print(f"| {name} | plain | | {plain:.2f} s | 1.00 | 1.00 | | | | |", flush=True)
        for share, order, array in cases(program):
            program.fill(array)
            took, worked, result = timed(program, array, options.rounds)
            assert result == expected, f"{name}: {result} is not {expected}"
            stats = array.paging()
            print(
                f"| {name} | {share} % | {order} | {took:.2f} s | {took / plain:.2f} | "
                f"{worked / work:.2f} | "
                f"{stats.loads} | {stats.loads_ahead} | {stats.late} | {stats.factor:.2f} |",
                flush=True,
            )
            del array


if __name__ == "__main__":
    main()

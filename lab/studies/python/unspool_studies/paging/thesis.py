"""What the third chapter of the dissertation has in print. Heights of bars are in its pictures
only."""

from __future__ import annotations

__all__ = [
    "ALPHA",
    "DRAMS",
    "FACTORS",
    "LATENCIES",
    "PAGE",
    "SIZES",
    "SPEEDS",
    "STANDS_FOR",
    "SWEEP_DRAM",
    "WORKING_SETS",
]

#: Bytes of a page there.
PAGE = 4096

#: Problem sizes, and the working sets that they have, in bytes (Table 3.1).
SIZES = ("1x", "2x", "4x", "8x")
WORKING_SETS = {
    "HPCCG": dict(zip(SIZES, (4_202_496, 4_272_128, 4_612_096, 5_414_912), strict=True)),
    "miniFE": dict(zip(SIZES, (4_239_360, 4_423_680, 4_517_888, 5_308_416), strict=True)),
    "LAMMPS": dict(zip(SIZES, (4_264_960, 4_811_776, 6_193_152, 8_552_448), strict=True)),
}

#: KiB of memory in which pages are as they were, where there is paging, and of the sweeps of
#: Figures 3.8 and 3.9.
DRAMS = (4096, 2048, 1024)
SWEEP_DRAM = 4096

#: One minus encoded over raw bytes, as Tables 3.4 to 3.6 take it.
ALPHA = 0.9

#: Microseconds to read and to write a page that the simulator was given (Table 3.3).
LATENCIES = {
    "disk": (25.0, 200.0),
    "HPCCG": (100.0, 117.0),
    "miniFE": (92.0, 132.0),
    "LAMMPS": (28.0, 42.0),
}

#: The sweeps of Figure 3.8, and of Figure 3.9: how many times as fast the codec is.
FACTORS = (0.9, 0.8, 0.7, 0.6)
SPEEDS = (10.0, 1.0, 0.1)

#: Our programs, and those whose place they take.
STANDS_FOR = {"cg": "HPCCG", "fe": "miniFE", "lj": "LAMMPS"}

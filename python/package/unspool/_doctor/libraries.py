"""The array libraries of this Python, and nvCOMP, without importing them: that takes seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import metadata

from unspool._doctor.facts import Finding

#: Gives the version of a package, or None.
Version = Callable[[str], str | None]

#: The packages that each library comes in, by what they say about CUDA.
PACKAGES = {
    "numpy": ("numpy",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
    "torch": ("torch",),
    "jax": ("jax",),
    "nvcomp": ("nvidia-libnvcomp-cu13", "nvidia-libnvcomp-cu12"),
}

#: The major versions of nvCOMP whose functions are known.
NVCOMP_MAJORS = ("5", "6")

#: What brings CUDA to JAX, by its major version.
JAX_PLUGINS = {13: "jax-cuda13-plugin", 12: "jax-cuda12-plugin"}


def installed(version: Version | None = None) -> dict[str, str]:
    """The versions of the libraries that are installed, by name.

    Arguments:
        version: gives the version of a package, or None.
    """
    version = version or _version
    found = {name: _first(packages, version) for name, packages in PACKAGES.items()}
    return {name: text for name, text in found.items() if text is not None}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first(packages: tuple[str, ...], version: Version) -> str | None:
    for package in packages:
        found = version(package)
        if found is not None:
            # CuPy's packages say in their names for which CUDA they are.
            return f"{found} ({package})" if len(packages) > 1 else found
    return None


def findings(driver: tuple[int, int] | None, version: Version | None = None) -> list[Finding]:
    """What is wrong with the libraries on a machine with a GPU.

    Arguments:
        driver: the newest CUDA that the driver supports.
        version: gives the version of a package, or None.
    """
    if driver is None:
        return []
    version, major = version or _version, driver[0]
    arrays = [*_torch(version), *_jax(version, major), *_cupy(version, major)]
    return [*arrays, *_nvcomp(version, major)]


def _torch(version: Version) -> Iterator[Finding]:
    found = version("torch")
    if found is not None and found.endswith("+cpu"):
        yield _without_cuda("PyTorch", found, "install it from https://pytorch.org for your CUDA")


def _jax(version: Version, driver: int) -> Iterator[Finding]:
    found, remedy = version("jax"), f"pip install 'jax[cuda{driver}]'"
    majors = [major for major, plugin in JAX_PLUGINS.items() if version(plugin) is not None]
    if found is not None and not majors:
        yield _without_cuda("JAX", found, remedy)
    elif found is not None and min(majors) > driver:
        yield _too_new("JAX", min(majors), driver, remedy)


def _cupy(version: Version, driver: int) -> Iterator[Finding]:
    made_for = re.search(r"cupy-cuda(\d+)x", installed(version).get("cupy", ""))
    if made_for is not None and int(made_for[1]) > driver:
        yield _too_new("CuPy", int(made_for[1]), driver, f"pip install cupy-cuda{driver}x")


def _nvcomp(version: Version, driver: int) -> Iterator[Finding]:
    found = {package: version(package) for package in PACKAGES["nvcomp"]}
    present = {package: text for package, text in found.items() if text is not None}
    for package, text in present.items():
        if text.partition(".")[0] not in NVCOMP_MAJORS:
            yield Finding(
                "note",
                "nvCOMP",
                f"{package} {text} is installed; versions {' and '.join(NVCOMP_MAJORS)} are known "
                "here.",
                "It is not loaded, since its functions may differ: NvComp(...) is refused.",
                "Install a known one: pip install 'unspool[nvcomp]'.",
            )
    if len(present) > 1:
        yield Finding(
            "note",
            "nvCOMP",
            "nvCOMP is installed for CUDA 12 and for CUDA 13, both in the same folder.",
            "The one that was installed later has overwritten the other.",
            f"Uninstall both, then: pip install nvidia-libnvcomp-cu{min(max(driver, 12), 13)}.",
        )
    elif f"nvidia-libnvcomp-cu{driver + 1}" in present:
        yield _too_new("nvCOMP", driver + 1, driver, f"pip install nvidia-libnvcomp-cu{driver}")


def _without_cuda(name: str, version: str, remedy: str) -> Finding:
    return Finding(
        "note",
        name,
        f"{name} {version} is installed without CUDA, on a machine with a GPU.",
        "Its arrays are in main memory; every save copies them to the GPU or the host.",
        f"If it should compute on the GPU: {remedy}.",
    )


def _too_new(name: str, made_for: int, driver: int, remedy: str) -> Finding:
    return Finding(
        "missing",
        name,
        f"{name} is made for CUDA {made_for}, and the driver supports CUDA {driver}.",
        "It will not find the GPU, or fail at its first kernel.",
        f"Install a newer driver, or: {remedy}.",
    )

"""Makes a wheel of a package and its extension, as cargo has built that for the tests.

`python xtask/dev_wheel.py PACKAGE LIBRARY FOLDER`. A wheel for this machine alone. Those that are
published are built in release by maturin.
"""

import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(package, library, folder):
    """Writes the wheel of `package` with `library` into `folder`."""
    about = tomllib.loads((package / "pyproject.toml").read_text())
    project, maturin = about["project"], about["tool"]["maturin"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name = project["name"].replace("-", "_")
    tag = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    sources = package / maturin["python-source"]
    info = f"{name}-{version}.dist-info"
    files = {
        str(file.relative_to(sources)): file.read_bytes()
        for file in sorted((sources / name).rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so"
    }
    files[maturin["module-name"].replace(".", "/") + ".abi3.so"] = library.read_bytes()
    files[f"{info}/METADATA"] = metadata(project, version).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = entry_points(project).encode()
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in files).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as wheel:
        for file, content in files.items():
            wheel.writestr(file, content)


def metadata(project, version):
    """The text of METADATA: name, version and dependencies."""
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {needed}" for needed in project["dependencies"]]
    return "\n".join(lines) + "\n"


def entry_points(project):
    """The commands of a package, and what it offers to others."""
    groups = {"console_scripts": project["scripts"], **project.get("entry-points", {})}
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in entries.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

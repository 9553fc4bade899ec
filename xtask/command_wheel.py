"""Makes the wheel of a command and of the library that it preloads.

`python xtask/command_wheel.py PROJECT BUILT ARCHITECTURE FOLDER`. PROJECT has the `pyproject.toml`,
BUILT the command and the library, built against the symbols of glibc 2.28. The wheel has no Python.
It puts the command into `bin` and the library where the command looks for it, as `make install`
does.
"""

import base64
import hashlib
import sys
import tomllib
import zipfile
from pathlib import Path

import notices

ROOT = Path(__file__).resolve().parent.parent


def main(project, built, architecture, folder):
    """Writes the wheel of `project` into `folder`."""
    about = tomllib.loads((project / "pyproject.toml").read_text())
    name, tag = about["project"]["name"], f"py3-none-manylinux_2_28_{architecture}"
    stem = f"{name.replace('-', '_')}-{version()}"
    info, library = f"{stem}.dist-info", about["tool"]["unspool"]["library"]
    linked = notices.text([about["tool"]["unspool"]["crate"]])
    files = {
        f"{stem}.data/scripts/{name}": (built / name).read_bytes(),
        f"{stem}.data/data/libexec/unspool/{library}": (built / library).read_bytes(),
        f"{info}/METADATA": metadata(project, about["project"]).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: command_wheel\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n".encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{info}/licenses/THIRD-PARTY.txt": linked.encode(),
    }
    lines = [f"{file},sha256={digest(content)},{len(content)}\n" for file, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"{stem}-{tag}.whl", files)


def version():
    """That of all packages."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def metadata(project, about):
    """The text of METADATA."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {about['name']}",
        f"Version: {version()}",
        f"Summary: {about['description']}",
        f"Keywords: {','.join(about['keywords'])}",
        f"License-Expression: {about['license']}",
        "License-File: LICENSE",
        "License-File: THIRD-PARTY.txt",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Topic :: Scientific/Engineering",
        f"Requires-Python: {about['requires-python']}",
        *(f"Project-URL: {label}, {url}" for label, url in about["urls"].items()),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (project / about["readme"]).read_text(encoding="utf-8")


def digest(content):
    """The checksum of a file, as RECORD has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write(path, files):
    """Writes a wheel; the command and the library can be executed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            mode = 0o755 if ".data/" in name else 0o644
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            wheel.writestr(entry, content)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))

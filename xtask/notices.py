"""Prints the licences of the crates that are linked into some of ours: `notices.py CRATE...`.

Needs no network once the crates are downloaded, as their licences lie beside their sources. The
standard library of Rust, which is linked as well, is named with them.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where a published wheel or a library that `make install` makes can run.
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
LICENSE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$", re.IGNORECASE)
SOURCE = {".c", ".h", ".py", ".rs"}
RUST = "The standard library of Rust, https://github.com/rust-lang/rust: MIT OR Apache-2.0"
RULE = "\n" + "-" * 80 + "\n\n"


def main(names):
    """Prints the text for the crates of these names."""
    print(text(names), end="")


def text(names):
    """What is linked into the crates of these names, by name, and each licence once."""
    crates = linked(metadata(), names)
    users = {}
    for crate in crates:
        for license in licenses(crate, crates):
            users.setdefault(license, []).append(f"{crate['name']} {crate['version']}")
    users.setdefault(apache(), []).append("the standard library of Rust")
    listed = "\n".join([RUST, *map(described, crates)])
    parts = [f"{', '.join(used)}:\n\n{license}\n" for license, used in users.items()]
    head = f"Packages of others that are linked into {', '.join(names)}, and their licences:"
    return RULE.join([f"{head}\n\n{listed}\n", *parts])


def metadata():
    """All packages that the lock names, and what each depends on."""
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    command += [f"--filter-platform={platform}" for platform in PLATFORMS]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def linked(found, names):
    """The crates of others that are linked into those of these names, sorted by name."""
    crates = {crate["id"]: crate for crate in found["packages"]}
    nodes = {node["id"]: node["deps"] for node in found["resolve"]["nodes"]}
    ours = {crates[one]["name"]: one for one in found["workspace_members"]}
    waiting, seen = [ours[name] for name in names], set()
    while waiting:
        one = waiting.pop()
        # A macro runs in the compiler.
        macro = any("proc-macro" in target["kind"] for target in crates[one]["targets"])
        if macro or one in seen:
            continue
        seen.add(one)
        waiting += [dep["pkg"] for dep in nodes[one] if None in kinds(dep)]
    others = [crates[one] for one in seen if crates[one]["source"]]
    return sorted(others, key=lambda crate: (crate["name"], crate["version"]))


def kinds(dependency):
    """How a crate is used: None in what is linked, "dev" in tests, "build" in build scripts."""
    return [kind["kind"] for kind in dependency["dep_kinds"]]


def described(crate):
    """A line that says what a crate is."""
    return f"{crate['name']} {crate['version']}, {crate['repository']}: {crate['license']}"


def licenses(crate, crates):
    """The texts of a crate's licences, also those of C sources in it.

    Without a text of its own it has that of a crate from the same repository.
    """
    home = crate["repository"] or crate["id"]
    kin = [one for one in crates if one["repository"] == home]
    for one in [crate, *kin]:
        if found := texts(Path(one["manifest_path"]).parent):
            return found
    if "Apache-2.0" in (crate["license"] or ""):
        return [apache()]
    sys.exit(f"{described(crate)}: no text of its licence; say in xtask/notices.py where it is")


def texts(folder):
    """The texts of the licences in a folder, without the GPL, beside which zstd has the BSD's."""
    files = [path for path in folder.rglob("*") if LICENSE.match(path.name) and path.is_file()]
    found = [read(path) for path in sorted(files) if path.suffix not in SOURCE]
    return [one for one in dict.fromkeys(found) if "GNU GENERAL PUBLIC LICENSE" not in one]


def read(path):
    """A text without the spaces at the ends of its lines, so that the same text is the same."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip("\n").splitlines()
    return "\n".join(line.rstrip() for line in lines)


def apache():
    """The Apache License, which is ours."""
    return read(ROOT / "LICENSE")


if __name__ == "__main__":
    main(sys.argv[1:])

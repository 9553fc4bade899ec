#!/usr/bin/env bash
# Makes the virtual environment of the project: venv.sh PYTHON FOLDER
# Needs Python 3.11 or later; works without ensurepip where pip itself is there.
set -euo pipefail

python=$1
folder=$2

fail() {
    printf '%s\n' "$@" >&2
    exit 1
}

command -v "$python" >/dev/null ||
    fail "$python is not there." \
        "Install Python 3.11 or later (Debian: apt-get install python3 python3-venv)," \
        "or name another one: make PYTHON=/path/to/python3 ..."

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: Unspool needs 3.11 or later." \
        "Name another one: make PYTHON=/path/to/python3 ..."

rm -rf "$folder"
if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv "$folder"
elif "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --without-pip "$folder"
    "$python" -m pip --quiet --python "$folder/bin/python" install pip
else
    fail "$python has neither ensurepip nor pip, so it cannot make a virtual environment." \
        "Install what is missing (Debian: apt-get install python3-venv) and try again."
fi
"$folder/bin/python" -m pip --version >/dev/null

#!/bin/sh
# Prints what the listener adds to a message: overhead.sh FOLDER-OF-THE-BUILD.
set -eu

[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
command -v mpicc >/dev/null && command -v mpirun >/dev/null || { echo "skipped: no MPI"; exit 0; }
built=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpicc -O2 "$here/tests/programs/overhead.c" -o "$folder/overhead"
cd "$folder"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    "$built/unspool-messages" record --analysis 0 -o run.msg -- mpirun -n 1 ./overhead

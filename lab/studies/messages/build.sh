#!/bin/sh
# Compiles the programs of the study of messages: build.sh FOLDER, into that folder.
set -eu

[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
compile() {
    "${MPICC:-mpicc}" -std=c11 -O2 -Wall -Wextra -Werror "$@" -lm
}
for program in hpccg minife minimd wave su3 rate; do
    compile "$here/$program.c" -o "$1/$program"
done
cp "$here/lammps.sh" "$1/lammps"
cp "$here/lammps.in" "$1/"
compile -shared -fPIC "$here/slow.c" -o "$1/slow.so" -ldl

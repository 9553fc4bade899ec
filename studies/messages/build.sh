#!/bin/sh
# Compiles the programs of the study of messages: build.sh FOLDER, into that folder.
set -eu

[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
for program in hpccg minife minimd wave su3 rate; do
    "${MPICC:-mpicc}" -std=c11 -O2 -Wall -Wextra -Werror "$here/$program.c" -o "$1/$program" -lm
done

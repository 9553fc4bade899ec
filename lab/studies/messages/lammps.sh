#!/bin/sh
# LAMMPS as the package of the same name has it: lammps NXxNYxNZ STEPS own|random, cells of the
# lattice along x and y, and layers of them along z for each rank. Its potential comes with it.
set -eu

[ $# = 3 ] || { echo "usage: $0 NXxNYxNZ STEPS own|random" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
sizes=$1 steps=$2 data=$3
x=${sizes%%x*} z=${sizes##*x}
y=${sizes#*x} y=${y%x*}
z=$((z * ${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-1}}))
export LAMMPS_POTENTIALS="${LAMMPS_POTENTIALS:-/usr/share/lammps/potentials}"
exec lmp -log none -in "$here/lammps.in" \
    -var x "$x" -var y "$y" -var z "$z" -var steps "$steps" -var data "$data"

#!/bin/sh
# Installs the C library: install.sh PREFIX FOLDER-OF-THE-BUILD, under $DESTDIR if that is set.
set -eu

[ $# = 2 ] || { echo "usage: $0 PREFIX FOLDER" >&2; exit 2; }
prefix=$1 built=$2
here=$(cd "$(dirname "$0")" && pwd)
package='/^\[workspace.package\]/,/^\[/'
version=$(sed -n "${package}s/^version = \"\(.*\)\"/\1/p" "$here/../Cargo.toml")
abi=$(sed -n 's/^#define UNSPOOL_ABI //p' "$here/include/unspool.h")
to=${DESTDIR:-}$prefix

mkdir -p "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/unspool" "$to/share/unspool"
install -m 644 "$here/include/unspool.h" "$here/include/unspool_mpi.h" \
    "$here/include/unspool.hpp" "$to/include"
install -m 644 "$here/fortran/unspool.f90" "$here/fortran/unspool_mpi.c" "$to/share/unspool"
install -m 755 "$built/libunspool_c.so" "$to/lib/libunspool.so.$version"
ln -sf "libunspool.so.$version" "$to/lib/libunspool.so.$abi"
ln -sf "libunspool.so.$abi" "$to/lib/libunspool.so"
install -m 644 "$built/libunspool_c.a" "$to/lib/libunspool.a"
# What debuggers want is nine tenths of both.
if command -v strip >/dev/null; then
    strip --strip-debug "$to/lib/libunspool.so.$version" "$to/lib/libunspool.a"
fi
filled() { sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/$1" > "$to/$2"; }
filled unspool.pc.in lib/pkgconfig/unspool.pc
filled cmake/unspool-config-version.cmake.in lib/cmake/unspool/unspool-config-version.cmake
install -m 644 "$here/cmake/unspool-config.cmake" "$to/lib/cmake/unspool"
echo "installed unspool $version in $to"

#!/bin/sh
# Installs the C library, VELOC's interface and the commands unspool-messages and unspool-paging, or
# removes them: install.sh install|uninstall PREFIX LIBDIR FOLDER-OF-THE-BUILD, under $DESTDIR.
set -eu
umask 022

fail() { echo "$*" >&2; exit 1; }
usage="usage: $0 install|uninstall PREFIX LIBDIR FOLDER"
[ $# = 4 ] || fail "$usage"
case $1 in install | uninstall) ;; *) fail "$usage" ;; esac
action=$1 prefix=${2%/} libdir=${3%/} built=$4
here=$(cd "$(dirname "$0")" && pwd)
root=$here/..
veloc=$root/packages/veloc

case $2 in
    /*) ;;
    *) fail "PREFIX=$2: give an absolute path, such as $PWD/$2" ;;
esac
libdir=${libdir#"$prefix"/}
case /$libdir/ in
    //* | */../*) fail "LIBDIR=$3: give a folder below PREFIX=$2, such as lib64" ;;
esac
up=$(echo "$libdir" | sed 's|[^/][^/]*|..|g')
to=${DESTDIR:-}$prefix
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
abi=$(sed -n 's/^#define UNSPOOL_ABI //p' "$here/include/unspool.h")
# The release of VELOC whose functions ours are.
veloc_version=1.8

# put MODE FILE NAME: FILE becomes NAME below PREFIX; without its debug information, which is nine
# tenths, where it is a library or a command.
put() {
    [ "$action" = install ] || { rm -f "$to/$3"; return; }
    mkdir -p "$(dirname "$to/$3")"
    install -m "$1" "$2" "$to/$3"
    case $3 in
        bin/* | *.a | *.so | *.so.*)
            strip=${STRIP:-strip}
            if command -v "$strip" >/dev/null; then "$strip" --strip-debug "$to/$3"; fi ;;
    esac
}

# named TARGET NAME: NAME below PREFIX is a link to TARGET beside it.
named() {
    if [ "$action" = install ]; then ln -sf "$1" "$to/$2"; else rm -f "$to/$2"; fi
}

# filled FILE NAME VERSION: NAME below PREFIX is FILE with the paths and the version put in.
filled() {
    put 644 "$1" "$2"
    [ "$action" = install ] || return 0
    plain=$(echo "$prefix" | sed 's/[&|\\]/\\&/g')
    sed -e "s|@PREFIX@|$plain|" -e "s|@LIBDIR@|$libdir|" -e "s|@UP@|$up|" -e "s|@VERSION@|$3|" \
        "$1" > "$to/$2"
}

# Whether VELOC itself is in PREFIX: its files have the same names.
veloc_itself() {
    if [ -e "$to/include/veloc.h" ]; then
        ! grep -q Unspool "$to/include/veloc.h"
    else
        [ -e "$to/$libdir/libveloc-client.so" ]
    fi
}

c_library() {
    for header in unspool.h unspool_mpi.h unspool.hpp; do
        put 644 "$here/include/$header" "include/$header"
    done
    put 644 "$here/fortran/unspool.f90" share/unspool/unspool.f90
    put 644 "$here/fortran/unspool_mpi.c" share/unspool/unspool_mpi.c
    put 755 "$built/libunspool_c.so" "$libdir/libunspool.so.$version"
    named "libunspool.so.$version" "$libdir/libunspool.so.$abi"
    named "libunspool.so.$abi" "$libdir/libunspool.so"
    put 644 "$built/libunspool_c.a" "$libdir/libunspool.a"
    filled "$here/unspool.pc.in" "$libdir/pkgconfig/unspool.pc" "$version"
    cmake=$libdir/cmake/unspool
    filled "$here/cmake/unspool-config.cmake.in" "$cmake/unspool-config.cmake" "$version"
    filled "$here/cmake/version.cmake.in" "$cmake/unspool-config-version.cmake" "$version"
}

velocs_interface() {
    filled "$veloc/veloc-client.pc.in" "$libdir/pkgconfig/veloc-client.pc" "$version"
    # Where VELOC has them.
    cmake=share/veloc/cmake
    filled "$veloc/velocConfig.cmake.in" "$cmake/velocConfig.cmake" "$veloc_version"
    filled "$here/cmake/version.cmake.in" "$cmake/velocConfigVersion.cmake" "$veloc_version"
    put 755 "$built/libveloc_client.so" "$libdir/libveloc-client.so"
    put 644 "$veloc/include/veloc/defs.h" include/veloc/defs.h
    put 644 "$veloc/include/veloc.h" include/veloc.h
    put 644 "$veloc/include/veloc-gpu/veloc.h" include/veloc-gpu/veloc.h
}

commands() {
    for command in unspool-messages unspool-paging; do
        put 755 "$built/$command" "bin/$command"
    done
    # What the commands preload; they look for it beside bin, wherever LIBDIR is.
    for library in libunspool_recorder.so libunspool_pager.so; do
        put 755 "$built/$library" "libexec/unspool/$library"
    done
}

licences() {
    put 644 "$root/LICENSE" share/doc/unspool/LICENSE
    put 644 "$built/THIRD-PARTY.txt" share/doc/unspool/THIRD-PARTY.txt
}

missing=
for file in libunspool_c.so libunspool_c.a libveloc_client.so unspool-messages \
    libunspool_recorder.so unspool-paging libunspool_pager.so THIRD-PARTY.txt; do
    [ "$action" = uninstall ] || [ -e "$built/$file" ] || missing="$missing $file"
done
[ -z "$missing" ] || fail "missing in $built:$missing. Build it before: make build-c"

c_library
commands
licences
if veloc_itself; then
    echo "left out VELOC's interface: VELOC itself is in $to; for ours choose another PREFIX" >&2
else
    velocs_interface
fi
if [ "$action" = uninstall ]; then
    for folder in "$libdir/cmake/unspool" include/veloc include/veloc-gpu libexec/unspool \
        share/unspool share/doc/unspool share/veloc/cmake share/veloc; do
        rmdir "$to/$folder" 2>/dev/null || :
    done
fi
echo "${action}ed unspool $version in $to"

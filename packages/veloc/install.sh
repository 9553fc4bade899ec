#!/bin/sh
# Installs VELOC's interface: install.sh PREFIX FOLDER-OF-THE-BUILD, under $DESTDIR if that is set.
set -eu

[ $# = 2 ] || { echo "usage: $0 PREFIX FOLDER" >&2; exit 2; }
prefix=$1 built=$2
here=$(cd "$(dirname "$0")" && pwd)
package='/^\[workspace.package\]/,/^\[/'
version=$(sed -n "${package}s/^version = \"\(.*\)\"/\1/p" "$here/../../Cargo.toml")
to=${DESTDIR:-}$prefix

if [ -e "$to/lib/libveloc-client.so" ] &&
    ! grep -qs Unspool "$to/lib/pkgconfig/veloc-client.pc"; then
    echo "left out VELOC's interface: VELOC itself is in $to; choose another PREFIX for it" >&2
    exit 0
fi
mkdir -p "$to/include/veloc" "$to/lib/pkgconfig"
install -m 644 "$here/include/veloc.h" "$to/include"
install -m 644 "$here/include/veloc/defs.h" "$to/include/veloc"
install -m 755 "$built/libveloc_client.so" "$to/lib/libveloc-client.so"
if command -v strip >/dev/null; then
    strip --strip-debug "$to/lib/libveloc-client.so"
fi
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/veloc-client.pc.in" \
    > "$to/lib/pkgconfig/veloc-client.pc"
echo "installed VELOC's interface of unspool $version in $to"

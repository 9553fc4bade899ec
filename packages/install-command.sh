#!/bin/sh
# Installs a command and the library that it preloads, under $DESTDIR:
# install-command.sh PREFIX FOLDER-OF-THE-BUILD COMMAND LIBRARY.
set -eu

[ $# = 4 ] || { echo "usage: $0 PREFIX FOLDER COMMAND LIBRARY" >&2; exit 2; }
to=${DESTDIR:-}$1 built=$2 command=$3 library=$4

mkdir -p "$to/bin" "$to/lib"
install -m 755 "$built/$command" "$to/bin"
install -m 755 "$built/$library" "$to/lib"
if command -v strip >/dev/null; then
    strip --strip-debug "$to/bin/$command" "$to/lib/$library"
fi
echo "installed $command in $to"

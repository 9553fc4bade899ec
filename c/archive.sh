#!/bin/sh
# Packs what `make install` would install as an archive: archive.sh ARCHITECTURE FOLDER-OF-THE-BUILD
# TO. It can be unpacked anywhere: the files of pkg-config name their folder by their own place.
set -eu
architecture=$1 built=$2 to=$3
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml")
name=unspool-c-$version-linux-$architecture
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT

# What is built is stripped already, and by tools of its own architecture.
STRIP=: DESTDIR=$staged "$here/install.sh" install "/$name" lib "$built"
for file in "$staged/$name"/lib/pkgconfig/*.pc; do
    sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$file"
done
tar -C "$staged" --owner=0 --group=0 -czf "$to/$name.tar.gz" "$name"
echo "$to/$name.tar.gz"

#!/usr/bin/env bash
# Builds target/packages/postgresql-NN-pg-rowsource_VERSION_ARCH.deb for the PostgreSQL of PG_CONFIG:
# what `make install` installs, and the documents.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
command -v dpkg-deb >/dev/null || die "dpkg-deb not found: packages are built on Debian"
scripts/build.sh
major=$(major)
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" pg_rowsource.control)-1
name=postgresql-$major-pg-rowsource
package=$TARGET/packages/${name}_${version}_$(dpkg --print-architecture)
rm -rf "$package"
make -s --no-print-directory install DESTDIR="$package" PG_CONFIG="$PG_CONFIG"
strip --strip-unneeded "$package$("$PG_CONFIG" --pkglibdir)/pg_rowsource.so"
documents=$package/usr/share/doc/$name
install -d "$documents"
install -m 644 LICENSE "$documents/copyright"
gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
gzip -9nc README.md >"$documents/README.md.gz"
# The C library that this machine's is forward compatible with: what the symbols of ours ask for.
glibc=$(objdump -T "$package$("$PG_CONFIG" --pkglibdir)/pg_rowsource.so" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
install -d "$package/DEBIAN"
cat >"$package/DEBIAN/control" <<CONTROL
Package: $name
Source: pg-rowsource
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $(sed -n 's/.*"maintainer": "\(.*\)".*/\1/p' META.json) <maintainers@pg-rowsource.invalid>
Depends: postgresql-$major, libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Section: database
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$package" | cut -f1)
Homepage: $(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
Description: row source execution statistics for PostgreSQL $major
 Counts rows, blocks, WAL and temporary I/O of every plan node exactly and samples
 its time while statements run, cheaply enough to stay on in production, and shows
 the figures afterwards: as a table like Oracle's ALLSTATS LAST, and as views.
CONTROL
dpkg-deb --root-owner-group --build "$package" "$package.deb" >/dev/null
rm -rf "$package"
echo "$package.deb"

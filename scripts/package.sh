#!/usr/bin/env bash
# Builds target/packages/postgresql-NN-pg-rowsource_*.deb for the PostgreSQL of PG_CONFIG, and pg-rowsource-cli_*.deb, from debian/. It does so in a folder of its own,
# because debian/control names one major, dpkg-buildpackage writes to the parent folder, and pg_buildext knows no paths with spaces.
set -euo pipefail
. "$(dirname "$0")/common.sh"
unset ROWSOURCE_PROFILE
"$ROOT/scripts/setup.sh" debhelper postgresql-server-dev-all >&2
major=$(major)
own_base
packages=$TARGET/packages folder=$BASE/package-$major/build log=$TARGET/packages/$major.log
rm -rf "${folder%/build}" "$packages"/*-"$major"-*.deb
mkdir -p "$folder" "$packages"
cp -r "$ROOT"/{debian,README.md,CHANGELOG.md,docs} "$folder/"
ln -s "$ROOT/Makefile" "$folder/"
cd "$folder"
# Any minor version will do. Debian's list asks for the newest, which a suite may not have yet.
: >debian/minor_versions
# setup.sh has looked for what the build needs, and accepts any version of LLVM.
command=(dpkg-buildpackage -b -us -uc -d)
export PG_SUPPORTED_VERSIONS=$major CARGO_TARGET_DIR=$TARGET
# pg_buildext looks for pg_config in one place only: there it sees that of a server in a chroot. No test can run here then.
place=/usr/lib/postgresql/$major/bin
if [ "$PG_CONFIG" != "$place/pg_config" ]; then
    export DEB_BUILD_OPTIONS=nocheck
    command=(unshare --mount sh -ec 'mount -t tmpfs tmpfs /usr/lib/postgresql
        mkdir -p "$0"; ln -s "$PG_CONFIG" "$0/pg_config"; exec "$@"' "$place" "${command[@]}")
fi
pg_buildext updatecontrol
"${command[@]}" >"$log" 2>&1 || die "the package could not be built: $(grep -iE 'error' "$log" | tail -n 1) (see $log)"
mv "${folder%/build}"/*.deb "$packages/"
rm -rf "${folder%/build}"
ls "$packages/postgresql-$major-pg-rowsource"_*.deb

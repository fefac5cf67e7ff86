#!/usr/bin/env bash
# Builds target/packages/postgresql-NN-pg-rowsource_*.deb for the PostgreSQL of PG_CONFIG from debian/. It uses a separate
# folder, because debian/control names one major and dpkg-buildpackage writes to the parent folder.
set -euo pipefail
. "$(dirname "$0")/common.sh"
scripts=$ROOT/scripts
"$scripts/setup.sh" debhelper postgresql-server-dev-all >&2
major=$(major)
folder=$TARGET/packages/build-$major
log=$TARGET/packages/$major.log
rm -rf "$folder" "$TARGET"/packages/*-"$major"-*.deb
mkdir -p "$folder"
cp -r "$ROOT"/{debian,README.md,CHANGELOG.md} "$folder/"
ln -s "$ROOT/Makefile" "$folder/"
cd "$folder"
# Accepts any minor version, because the library calls no function that only the newest has. Debian's own list requires the
# newest, which a suite may not have yet.
: >debian/minor_versions

# setup.sh has already checked the build's requirements, and accepts any version of LLVM.
command=(dpkg-buildpackage -b -us -uc -d)
export PG_SUPPORTED_VERSIONS=$major CARGO_TARGET_DIR=$TARGET
# pg_buildext reads pg_config at one path only. Put the script there that answers for a server in a chroot.
place=/usr/lib/postgresql/$major/bin
if [ "$PG_CONFIG" != "$place/pg_config" ]; then
    export DEB_BUILD_OPTIONS=nocheck
    command=(unshare --mount sh -ec 'mount -t tmpfs tmpfs /usr/lib/postgresql; mkdir -p "$0"; ln -s "$PG_CONFIG" "$0/pg_config"; exec "$@"'
        "$place" "${command[@]}")
fi
pg_buildext updatecontrol
"${command[@]}" >"$log" 2>&1 || die "the package could not be built: $(grep -iE 'error' "$log" | tail -n 1) (see $log)"
rm -rf "$folder"
ls "$TARGET/packages/postgresql-$major-pg-rowsource"_*.deb

#!/usr/bin/env bash
# Installs the package of a major with apt, as a DBA would, into a plain chroot of its suite. There it runs the package's own
# test (debian/tests), and the tests of updating and loading the extension:
#   scripts/package-test.sh MAJOR      (with PG_CONFIG of that major)
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
cd "$ROOT"
major=${1:?usage: package-test.sh MAJOR}
scripts/chroot.sh "$major" base
package=$(scripts/package.sh)
suite=$(suite_of "$major")
clean=$MATRIX/clean-$major
kept=$MATRIX/packages-$suite
log=$MATRIX/package-$major.log
rm -rf "$clean" "${ROWSOURCE_RUN:?}"
cp -a "$MATRIX/base-$suite" "$clean"
# Keeps downloaded packages for the next run.
mkdir -p "$kept"
cp -n "$kept"/*.deb "$MATRIX/$major"/var/cache/apt/archives/*.deb "$clean/var/cache/apt/archives/" 2>/dev/null || true
cp "$package" "$clean/tmp/"
in_chroot "$clean" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install "/tmp/${package##*/}" make procps >"$log" 2>&1 ||
    die "apt cannot install ${package##*/}: $(grep '^E:' "$log" | tail -n 1) (see $log)"
cp -n "$clean"/var/cache/apt/archives/*.deb "$kept/" 2>/dev/null || true
# Majors are tested at the same time, so each has its own port.
in_chroot "$clean" env AUTOPKGTEST_TMP=/tmp PGPORT=$((54300 + major)) LC_ALL=C.UTF-8 debian/tests/installcheck
export INSTALLED=1 PG_ROOT=$clean
scripts/server-tests.sh upgrade loading
# The test of pg_upgrade needs the chroot of 15.
[ "$major" = 15 ] || rm -rf "$clean"
rm -rf "$ROWSOURCE_RUN"

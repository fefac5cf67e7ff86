#!/usr/bin/env bash
# Installs the package of a major with apt into a chroot of its suite that has nothing but apt, as a DBA would, and runs
# there the package's own test (debian/tests), and what updates and loads the extension:
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
# What was downloaded before need not be again.
mkdir -p "$kept"
cp -n "$kept"/*.deb "$MATRIX/$major"/var/cache/apt/archives/*.deb "$clean/var/cache/apt/archives/" 2>/dev/null || true
cp "$package" "$clean/tmp/"
in_chroot "$clean" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install "/tmp/${package##*/}" make procps >"$log" 2>&1 ||
    die "apt cannot install ${package##*/}: $(grep '^E:' "$log" | tail -n 1) (see $log)"
cp -n "$clean"/var/cache/apt/archives/*.deb "$kept/" 2>/dev/null || true
# Majors are tested side by side: each has its port.
in_chroot "$clean" env AUTOPKGTEST_TMP=/tmp PGPORT=$((54300 + major)) LC_ALL=C.UTF-8 debian/tests/installcheck
export INSTALLED=1 PG_ROOT=$clean
scripts/server-tests.sh upgrade loading
# 15 is what pg_upgrade starts from.
[ "$major" = 15 ] || rm -rf "$clean"
rm -rf "$ROWSOURCE_RUN"

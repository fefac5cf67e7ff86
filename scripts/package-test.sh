#!/usr/bin/env bash
# Installs the package of a major with apt into a chroot of its suite that has nothing but apt, as a DBA
# would, and runs the regress suite and what installs, updates and loads the extension against it:
#   scripts/package-test.sh MAJOR      (with PG_CONFIG of that major)
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
major=${1:?usage: package-test.sh MAJOR}
scripts/chroot.sh "$major" base
clean=$MATRIX/clean-$major
kept=$MATRIX/packages-$(suite_of "$major")
log=$MATRIX/package-$major.log
package=$(scripts/package.sh)
rm -rf "$clean"
cp -a "$MATRIX/base-$(suite_of "$major")" "$clean"
mkdir -p "$kept" "$clean/tmp/package"
# What was downloaded before need not be again.
cp -n "$kept"/*.deb "$MATRIX/$major"/var/cache/apt/archives/*.deb "$clean/var/cache/apt/archives/" 2>/dev/null || true
cp "$package" "$clean/tmp/package/"
in_chroot "$clean" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
    "/tmp/package/${package##*/}" procps >"$log" 2>&1 ||
    die "apt cannot install ${package##*/}: $(grep '^E:' "$log" | tail -n 1) (see $log)"
cp -n "$clean"/var/cache/apt/archives/*.deb "$kept/" 2>/dev/null || true
rm -rf "${ROWSOURCE_RUN:?}"
export INSTALLED=1 PG_ROOT=$clean
scripts/server-tests.sh regress upgrade loading
# 15 is what pg_upgrade starts from.
[ "$major" = 15 ] || rm -rf "$clean"
rm -rf "$ROWSOURCE_RUN"

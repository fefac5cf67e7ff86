#!/usr/bin/env bash
# Installs the package of a major with apt into a chroot of its suite that has nothing but apt, as a DBA would, and runs
# there the package's own test (debian/tests), and what updates and loads the extension:
#   scripts/package-test.sh MAJOR      (with PG_CONFIG and a ROWSOURCE_RUN of that major)
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
major=${1:?usage: package-test.sh MAJOR} clean=$MATRIX/clean-$1
rm -rf "${ROWSOURCE_RUN:?}"
scripts/chroot.sh "$major" "$clean" "$(scripts/package.sh)" make procps
# Majors are tested side by side: each has its port.
in_chroot "$clean" env AUTOPKGTEST_TMP=/tmp PGPORT=$((54300 + major)) LC_ALL=C.UTF-8 debian/tests/installcheck
INSTALLED=1 PG_ROOT=$clean scripts/server-tests.sh upgrade loading
# 15 is what pg_upgrade starts from.
[ "$major" = 15 ] || rm -rf "$clean"

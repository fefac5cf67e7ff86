#!/usr/bin/env bash
# Runs a command in the chroot ROWSOURCE_INSIDE, also for cargo-nextest, with the folders that the tests share with it mounted
# at the same paths. The mounts end with the command, which replaces this shell, so that it gets signals directly.
set -euo pipefail
[ -n "${ROWSOURCE_UNSHARED:-}" ] || ROWSOURCE_UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
unset ROWSOURCE_UNSHARED
. "$(dirname "$0")/common.sh"
mount -t proc proc "$ROWSOURCE_INSIDE/proc"
mount --rbind /dev "$ROWSOURCE_INSIDE/dev"
for folder in "$ROOT" "$TARGET" "$MATRIX" ${ROWSOURCE_RUN:+"$ROWSOURCE_RUN"} ${CARGO_HOME:+"$CARGO_HOME"}; do
    mkdir -p "$folder" "$ROWSOURCE_INSIDE$folder"
    mount --bind "$folder" "$ROWSOURCE_INSIDE$folder"
done
exec chroot "$ROWSOURCE_INSIDE" /bin/sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"

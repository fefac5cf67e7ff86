#!/usr/bin/env bash
# Runs a command in the chroot ROWSOURCE_INSIDE, with the folders that the tests share with it at their
# own places: cargo's runner for test programs, too. The mounts are in a namespace that ends with the
# command, and the command replaces this shell, so that signals meant for it reach it.
set -euo pipefail
[ -n "${ROWSOURCE_UNSHARED:-}" ] || ROWSOURCE_UNSHARED=1 exec unshare --mount --propagation private "$0" "$@"
unset ROWSOURCE_UNSHARED
. "$(dirname "$0")/common.sh"
inside=$ROWSOURCE_INSIDE
mount -t proc proc "$inside/proc"
mount --rbind /dev "$inside/dev"
for folder in "$ROOT" "$TARGET" "${ROWSOURCE_RUN:-}"; do
    [ -n "$folder" ] || continue
    mkdir -p "$inside$folder"
    mount --bind "$folder" "$inside$folder"
done
exec chroot "$inside" /bin/sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"

#!/usr/bin/env bash
# Stops the throwaway servers and removes everything that was built.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -d "$TARGET" ] || exit 0
if [ -x "$PG_CONFIG" ] && { [ -d "$TARGET/run" ] || [ -f "$TARGET/run.path" ]; }; then
    choose_run
    stop_test_servers
    stop_server "$RUN/play" immediate
    stop_server "$RUN/demo" immediate
    [ ! -f "$TARGET/run.path" ] || rm -rf "${RUN%/run}"
fi
rm -rf "$TARGET"

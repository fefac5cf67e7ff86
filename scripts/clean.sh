#!/usr/bin/env bash
# Stops the throwaway servers, and removes all that was built.
set -euo pipefail
. "$(dirname "$0")/common.sh"
if [ -d "$TARGET" ] && [ -x "$PG_CONFIG" ]; then
    choose_run
    stop_test_servers
    stop_server "$RUN/play" immediate
    stop_server "$RUN/demo" immediate
    rm -rf "$RUN"
    rmdir "${RUN%/run}" 2>/dev/null || true
fi
rm -rf "$TARGET"

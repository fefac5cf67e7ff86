#!/usr/bin/env bash
# Stops the server that `make demo KEEP=1` left running.
set -euo pipefail
. "$(dirname "$0")/common.sh"
choose_run
stop_server "$RUN/demo"

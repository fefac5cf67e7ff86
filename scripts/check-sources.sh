#!/usr/bin/env bash
# Checks that `unsafe` occurs only in src/pg/ (and in core's TSC clock), and that files stay small.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
failed=0
# The word is allowed in attributes (`#[unsafe(no_mangle)]`, `allow(unsafe_code, reason = ...)`) and in comments.
if grep -rnE '\bunsafe\b' --include='*.rs' --exclude-dir=pg src | grep -vE '^[^:]+:[0-9]+: *(//|#!?\[|reason = ")'; then
    echo "check-sources.sh: the lines above use unsafe outside src/pg/" >&2
    failed=1
fi
find src core/src tests bench/src -name '*.rs' -exec wc -l {} + | awk '
    $2 == "total" || $1 <= 500 { next }
    $1 > 600 { print "check-sources.sh: " $2 " has " $1 " lines, more than 600: split it"; failed = 1; next }
    { print "check-sources.sh: warning: " $2 " has " $1 " lines, more than 500" }
    END { exit failed }' >&2 || failed=1
exit $failed
